//! What a turn cost this machine: busy time of its engines, by stage, and how much of it was of no use.
//!
//! The figures are those of the requests' meters. Engines on other machines report none.

use super::record::{StageCost, TurnCost};
use super::turn::Turn;
use crate::limits::SessionLimits;
use crate::product::ResponseMeters;
use antiphon_telemetry::Metrics;
use antiphon_types::{Compute, Meter};
use std::time::Duration;

/// Compute of a stage: of use, dropped with a speculative response, spoken and not heard.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    stage: &'static str,
    used: Compute,
    speculation: Compute,
    unheard: Compute,
}

impl Spent {
    fn total(&self) -> Compute {
        self.used + self.speculation + self.unheard
    }
}

/// Meters of the responses of a turn.
#[derive(Debug, Default)]
pub(super) struct TurnMeters {
    /// Of the response that answers it.
    pub(super) response: ResponseMeters,
    /// Of the filler's speech.
    pub(super) filler: Meter,
    /// Of the recognizer, for utterances that are not in the turn any more.
    pub(super) dropped_utterances: Vec<Meter>,
    /// Of speculative responses that were dropped, of which a turn has few.
    pub(super) dropped: Vec<ResponseMeters>,
}

impl Turn {
    /// The compute so far; `None`: its engines report none.
    pub(super) fn cost(&self) -> Option<TurnCost> {
        let spent = self.spent();
        let total: Compute = spent.iter().map(Spent::total).sum();
        if total == Compute::default() {
            return None;
        }
        let [stt, llm, tts] = spent.map(|stage| shown(stage.total()));
        let filler = shown(self.meters.filler.compute());
        let wasted: Compute = spent.iter().map(|stage| stage.speculation + stage.unheard).sum();
        let wasted_ms = ms(wasted.cpu + wasted.gpu);
        Some(TurnCost { cpu_ms: ms(total.cpu), gpu_ms: ms(total.gpu), wasted_ms, stt, llm, tts, filler })
    }

    /// Counts the compute of a turn that is settled, of the hub and of its client.
    pub(super) fn count_cost(&self, metrics: &Metrics, limits: &dyn SessionLimits) {
        limits.computed(self.spent().iter().map(Spent::total).sum());
        for Spent { stage, used, speculation, unheard } in self.spent() {
            for (waste, Compute { cpu, gpu }) in [("none", used), ("speculation", speculation), ("unheard", unheard)] {
                metrics.compute(stage, "cpu", waste, cpu);
                metrics.compute(stage, "gpu", waste, gpu);
            }
        }
    }

    fn spent(&self) -> [Spent; 3] {
        let utterances = self.utterances.iter().map(|utterance| &utterance.meter);
        let stt = utterances.chain(&self.meters.dropped_utterances).map(Meter::compute).sum();
        let of_dropped = |stage: fn(&ResponseMeters) -> &Meter| {
            self.meters.dropped.iter().map(|response| stage(response).compute()).sum::<Compute>()
        };
        let filler = self.meters.filler.compute();
        // One that came too late was made and not heard.
        let (filler, late) = split(filler, if self.settled && self.filler.is_none() { 1.0 } else { 0.0 });
        let (heard, unheard) = split(self.meters.response.tts.compute(), self.unheard_share());
        [
            Spent { stage: "stt", used: stt, ..Spent::default() },
            Spent {
                stage: "llm",
                used: self.meters.response.llm.compute(),
                speculation: of_dropped(|response| &response.llm),
                ..Spent::default()
            },
            Spent {
                stage: "tts",
                used: heard + filler,
                speculation: of_dropped(|response| &response.tts),
                unheard: unheard + late,
            },
        ]
    }

    /// The share of the speech that was made and not heard, 0 to 1; 0 while that may change.
    fn unheard_share(&self) -> f64 {
        let audio = &self.audio;
        if !self.settled || audio.generated_ms <= 0.0 {
            return 0.0;
        }
        (1.0 - audio.heard_ms / audio.generated_ms).clamp(0.0, 1.0)
    }
}

/// `None`: its engines report none.
fn shown(compute: Compute) -> Option<StageCost> {
    let Compute { cpu, gpu } = compute;
    (compute != Compute::default()).then(|| StageCost { cpu_ms: ms(cpu), gpu_ms: ms(gpu) })
}

/// Without the share, and the share.
fn split(whole: Compute, share: f64) -> (Compute, Compute) {
    let part = Compute { cpu: whole.cpu.mul_f64(share), gpu: whole.gpu.mul_f64(share) };
    (Compute { cpu: whole.cpu.saturating_sub(part.cpu), gpu: whole.gpu.saturating_sub(part.gpu) }, part)
}

fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::record::{Kind, TurnAudio};
    use super::super::turn::UtteranceMarks;
    use super::*;
    use crate::limits::NoLimits;
    use antiphon_types::{RunsOn, Timestamp};

    fn metered(on: RunsOn, ms: u64) -> Meter {
        let meter = Meter::requested();
        meter.add(on, Duration::from_millis(ms));
        meter
    }

    fn turn() -> Turn {
        Turn::new("turn_1".into(), 1, Kind::Speech, Timestamp::from_ms(0))
    }

    #[test]
    fn a_turn_costs_what_its_stages_do_and_what_was_dropped_is_waste() {
        let mut turn = turn();
        let opened = Timestamp::from_ms(0);
        let meter = metered(RunsOn::threads(2), 30);
        turn.utterances.push(UtteranceMarks { item: "item_1".into(), opened, transcribed: None, served: None, meter });
        turn.meters.response = ResponseMeters { llm: metered(RunsOn::GPU, 40), tts: metered(RunsOn::default(), 100) };
        turn.meters.dropped = vec![ResponseMeters { llm: metered(RunsOn::GPU, 10), tts: Meter::requested() }];
        turn.audio = TurnAudio { generated_ms: 1_000.0, heard_ms: 250.0, ..TurnAudio::default() };
        let cost = turn.cost().expect("some");
        assert_eq!((cost.cpu_ms, cost.gpu_ms, cost.wasted_ms), (160.0, 50.0, 10.0));
        assert_eq!(cost.stt, Some(StageCost { cpu_ms: 60.0, gpu_ms: 0.0 }));
        assert_eq!(cost.llm, Some(StageCost { cpu_ms: 0.0, gpu_ms: 50.0 }));
        turn.settled = true;
        assert_eq!(turn.cost().expect("some").wasted_ms, 85.0, "three quarters of the speech were not heard");
        let metrics = Metrics::new();
        turn.count_cost(&metrics, &NoLimits);
        let text = metrics.render();
        for line in [
            r#"antiphon_compute_milliseconds_total{stage="stt",kind="cpu",waste="none"} 60"#,
            r#"antiphon_compute_milliseconds_total{stage="llm",kind="gpu",waste="speculation"} 10"#,
            r#"antiphon_compute_milliseconds_total{stage="tts",kind="cpu",waste="none"} 25"#,
            r#"antiphon_compute_milliseconds_total{stage="tts",kind="cpu",waste="unheard"} 75"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn a_filler_is_part_of_the_voice_and_waste_where_it_came_too_late() {
        let mut turn = turn();
        turn.meters.response.tts = metered(RunsOn::default(), 100);
        turn.meters.filler = metered(RunsOn::default(), 20);
        turn.filler = Some(("One moment.".into(), Timestamp::from_ms(900)));
        turn.settled = true;
        let cost = turn.cost().expect("some");
        assert_eq!(cost.tts, Some(StageCost { cpu_ms: 120.0, gpu_ms: 0.0 }));
        assert_eq!((cost.filler, cost.wasted_ms), (Some(StageCost { cpu_ms: 20.0, gpu_ms: 0.0 }), 0.0));
        turn.filler = None;
        assert_eq!(turn.cost().expect("some").wasted_ms, 20.0, "it was not spoken");
    }

    #[test]
    fn where_engines_report_nothing_there_is_no_cost() {
        assert_eq!(turn().cost(), None);
    }
}
