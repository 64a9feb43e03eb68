//! Figures for the planner: one session's turns in parts, from the hub's turn records, and what sessions cost, from the hold.
//!
//! The hub must not speculate meanwhile (`speculation.after_ms = 0`), because the stages of a speculative response run
//! during the wait for the end of the turn and are no parts of its own: turn records that show it are an error. How
//! many slots a stage has cannot be seen from outside: the caller says so ([`KnownEngines`]).

use super::{MixedLoad, StressPlan, load};
use crate::load::{Length, Outcome};
use crate::{BenchError, Progress};
use antiphon_client::RATE;
use antiphon_planner::{
    Conversation, HubProfile, Needs, Profile, RunPoint, Service, SlotPoint, Source, SpeculationProfile, StageProfile,
    TurnProfile,
};
use antiphon_types::Samples;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Quantiles of a measured distribution: steps of 5 %.
const N_QUANTILES: usize = 21;

/// Timeout of a request for turn records.
const ASK: Duration = Duration::from_secs(10);

/// The shortest time of a stage: a server of others cannot take none.
const SHORTEST_MS: f64 = 0.1;

/// Turn records of a page.
const PAGE: usize = 100;

/// What is known of a hub's engines.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownEngines {
    /// Their name in the profile.
    pub engine: String,
    /// How the recognizer serves.
    pub stt: KnownStage,
    /// How the voice serves.
    pub tts: KnownStage,
    /// Silence until a speculative response begins, in milliseconds; 0: the hub that is planned does not speculate.
    pub speculation_after_ms: f64,
}

/// How a stage serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KnownStage {
    /// A request holds a slot.
    Slots {
        /// Slots of all instances.
        slots: usize,
    },
    /// Requests share runs.
    Runs {
        /// Requests in a run.
        slots: usize,
        /// Requests a turn.
        requests_per_turn: f64,
        /// Runs of a request.
        runs_per_request: f64,
    },
}

/// Talks as one session for `n_turns` turns and makes a profile. `hold`: a load of many sessions, for what a session
/// costs.
///
/// # Errors
/// The server does not answer, shows no turn records, or answers speculatively.
pub async fn measure(
    plan: &StressPlan,
    n_turns: usize,
    known: &KnownEngines,
    hold: Option<&MixedLoad>,
    progress: Progress<'_>,
) -> Result<Profile, BenchError> {
    progress("stress: the turns of one session");
    let one = load::Load { barge_in: 0.0, ..plan.load(1, Length::Turns(n_turns)) };
    let mut outcome = load::run(one, progress).await?;
    if let Some((_, error)) = outcome.broken.pop() {
        return Err(error.into());
    }
    let records = records(plan, outcome.counted().count().clamp(1, PAGE)).await?;
    let n_speculative = records.iter().filter(|record| is_speculative(record)).count();
    if n_speculative > 0 {
        return Err(BenchError::Method(format!(
            "{n_speculative} of {} turns had a speculative response, whose stages are no parts of the turn's latency: \
             set speculation.after_ms = 0 at the server, restart it, and measure again",
            records.len()
        )));
    }
    let turns: Vec<Parts> = records.iter().filter_map(Parts::of).collect();
    if turns.is_empty() {
        return Err(BenchError::Method("the server shows no turn records with parts; a hub does at /api/turns".into()));
    }
    Ok(profile(plan, known, &outcome, &turns, hold))
}

/// The parts of a turn, in milliseconds.
struct Parts {
    endpointing: f64,
    stt: f64,
    llm: f64,
    tts: f64,
    reply: f64,
    /// Durations of the stages' runs, of which parts are only what the person waited for.
    stt_runs: Vec<f64>,
    tts_runs: Vec<f64>,
}

impl Parts {
    /// The parts of a turn record; `None` if it was not answered by voice.
    fn of(record: &Value) -> Option<Self> {
        let times = |list: &str, stage: &str| -> Vec<f64> {
            let of_stage = record[list].as_array().into_iter().flatten().filter(|one| one["stage"] == stage);
            of_stage.filter_map(|one| Some(one["to_ms"].as_f64()? - one["from_ms"].as_f64()?)).collect()
        };
        let of = |stage: &str| times("parts", stage).iter().sum();
        record["parts"].as_array().filter(|parts| !parts.is_empty())?;
        let reply = record["audio"]["generated_ms"].as_f64().filter(|ms| *ms > 0.0)?;
        Some(Self {
            endpointing: of("endpointing"),
            stt: of("stt"),
            llm: of("llm"),
            tts: of("tts"),
            reply,
            stt_runs: times("stages", "stt"),
            tts_runs: times("stages", "tts"),
        })
    }
}

/// Whether a response was begun before the end of the turn was sure.
fn is_speculative(record: &Value) -> bool {
    record["speculations"].as_array().is_some_and(|speculations| !speculations.is_empty())
}

/// The newest turn records.
async fn records(plan: &StressPlan, n: usize) -> Result<Vec<Value>, BenchError> {
    let wrong = |error: reqwest::Error| BenchError::Method(format!("no turn records: {}", error.without_url()));
    let url = plan.connect.url.replacen("ws", "http", usize::from(plan.connect.url.starts_with("ws")));
    let mut url: reqwest::Url =
        url.parse().map_err(|_| BenchError::Method("no turn records: the address is not valid".into()))?;
    url.set_path("/api/turns");
    url.set_query(Some(&format!("limit={n}")));
    let is_here = url.host_str().is_some_and(|host| host == "localhost" || host.starts_with("127."));
    let client = reqwest::Client::builder().timeout(ASK);
    let client = if is_here { client.no_proxy() } else { client }.build().map_err(wrong)?;
    let mut request = client.get(url);
    if let Some(key) = &plan.connect.key {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await.and_then(reqwest::Response::error_for_status).map_err(wrong)?;
    let mut answer: Value = answer.json().await.map_err(wrong)?;
    match answer["turns"].take() {
        Value::Array(turns) => Ok(turns),
        _ => Err(BenchError::Method("no turn records: the server answers something else".into())),
    }
}

fn profile(
    plan: &StressPlan,
    known: &KnownEngines,
    one: &Outcome,
    turns: &[Parts],
    hold: Option<&MixedLoad>,
) -> Profile {
    let base = Profile::built_in("gpu").expect("it is built in");
    let mut sources = BTreeMap::new();
    let mut measured = |path: &str, from: &str| {
        sources.insert(path.to_owned(), Source { measured: true, from: from.to_owned() });
    };
    let all = |of: fn(&Parts) -> f64| turns.iter().map(of).collect::<Vec<_>>();
    let endpointing = quantiles(all(|turn| turn.endpointing));
    let stt = quantiles(all(|turn| turn.stt));
    let llm = quantiles(all(|turn| turn.llm));
    let tts = quantiles(all(|turn| turn.tts));
    let median = |quantiles: &[f64]| quantiles[N_QUANTILES / 2];
    let staged = median(&endpointing) + median(&stt) + median(&llm) + median(&tts);
    let waits: Vec<f64> = one.counted().filter_map(|turn| Some(turn.wait?.as_secs_f64() * 1e3)).collect();
    let rest = quantiles(waits).into_iter().map(|ms| (ms - staged).max(0.0)).collect();
    let from = format!("antiphon-bench stress, {} turns of one session", turns.len());
    for path in ["turn.endpointing_ms", "turn.rest_ms", "llm.service"] {
        measured(path, &from);
    }
    for path in ["conversation.turns_per_minute", "conversation.speech_s", "conversation.reply_s"] {
        measured(path, "the conversations of the stress test, which follow one another without a break");
    }
    let mut hub = base.hub.clone();
    if let Some(hold) = hold {
        let from = format!("antiphon-bench stress, {} sessions", hold.n_sessions());
        if let Some(percent) = hold.cpu_percent().filter(|percent| *percent > 0.0) {
            hub.talking_cores = percent / 100.0;
            measured("hub.talking_cores", &from);
        }
        if let Some(kib) = hold.memory_kib().filter(|kib| *kib > 0.0) {
            hub.talking_kib = kib;
            measured("hub.talking_kib", &from);
        }
        if let Some(before) = hold.main.before {
            hub.base_mib = before.resident as f64 / f64::from(1 << 20);
            measured("hub.base_mib", "resident memory before the hold, warm");
        }
        hub.idle_kib = hub.idle_kib.min(hub.talking_kib);
    }
    let early = (known.speculation_after_ms > 0.0).then_some(SpeculationProfile {
        // A window of the detector.
        starts_ms: known.speculation_after_ms + 16.0,
        ..base.turn.speculation.clone().unwrap_or(SpeculationProfile { starts_ms: 0.0, share: 1.0 })
    });
    let kept = ["talking_cores", "idle_cores", "talking_kib", "idle_kib", "base_mib", "up_kbit_s", "down_kbit_s"];
    let kept = kept.map(|of| format!("hub.{of}")).into_iter();
    let kept = kept.chain(["conversation.talking_share", "turn.speculation", "nats.stream_cores"].map(str::to_owned));
    for path in kept {
        if let Some(source) = base.sources.get(&path) {
            sources.entry(path).or_insert_with(|| source.clone());
        }
    }
    let needs = Needs { machine: "cpu".into(), cores: 1.0, memory_gib: 0.5, accelerators: 0.0, card_gb: 0.0 };
    let stt_runs: Vec<_> = turns.iter().map(|turn| turn.stt_runs.as_slice()).collect();
    let tts_runs: Vec<_> = turns.iter().map(|turn| turn.tts_runs.as_slice()).collect();
    for (stage, known, runs) in [("stt", known.stt, &stt_runs), ("tts", known.tts, &tts_runs)] {
        let [service, requests] = known.sources(&from, runs);
        sources.insert(format!("{stage}.service"), service);
        sources.insert(format!("{stage}.requests_per_turn"), requests);
        sources.insert(format!("{stage}.needs"), assumed("one core for each instance"));
    }
    sources.insert("llm.requests_per_turn".into(), assumed("one"));
    sources.insert("nats.hop_ms".into(), assumed("the engines ran in the hub"));
    let engine = |stage: &str| format!("{} ({stage})", known.engine);
    let llm_service = Service::External {
        p50_ms: median(&llm).max(SHORTEST_MS),
        p95_ms: llm[N_QUANTILES - 2].max(SHORTEST_MS),
        p99_ms: llm[N_QUANTILES - 1].max(SHORTEST_MS),
    };
    Profile {
        name: "measured".into(),
        card: None,
        conversation: Conversation {
            turns_per_minute: turns_per_minute(one).unwrap_or(base.conversation.turns_per_minute),
            speech_s: speech_s(&plan.clips, one),
            reply_s: turns.iter().map(|turn| turn.reply).sum::<f64>() / turns.len() as f64 / 1e3,
            talking_share: 1.0,
        },
        hub: HubProfile { ..hub },
        turn: TurnProfile { endpointing_ms: vec![median(&endpointing)], rest_ms: rest, speculation: early },
        stt: known.stt.profile(engine("stt"), median(&stt), &stt_runs, needs.clone()),
        llm: StageProfile {
            engine: engine("llm"),
            requests_per_turn: 1.0,
            service: llm_service,
            needs: None,
            settings: BTreeMap::new(),
        },
        tts: known.tts.profile(engine("tts"), median(&tts), &tts_runs, needs),
        nats: antiphon_planner::NatsProfile { hop_ms: 0.0, ..base.nats.clone() },
        machines: base.machines.clone(),
        sources,
    }
}

fn assumed(why: &str) -> Source {
    Source { measured: false, from: why.into() }
}

impl KnownStage {
    /// `runs`: durations of the stage's runs of each turn, in milliseconds.
    fn profile(self, engine: String, first_ms: f64, runs: &[&[f64]], needs: Needs) -> StageProfile {
        let first_ms = first_ms.max(SHORTEST_MS);
        let (requests_per_turn, service) = match self {
            Self::Slots { slots } => {
                let all = runs.concat();
                let (requests_per_turn, hold_ms) = match all.len() as f64 {
                    0.0 => (1.0, first_ms),
                    n => (n / runs.len() as f64, (all.iter().sum::<f64>() / n).max(first_ms)),
                };
                let points = vec![SlotPoint { batch: 1.0, first_ms, hold_ms }];
                (requests_per_turn, Service::Slots { slots, points, variation: 0.5 })
            }
            Self::Runs { slots, requests_per_turn, runs_per_request } => {
                let points = vec![RunPoint { batch: 1.0, run_ms: first_ms }];
                (requests_per_turn, Service::Runs { slots, runs_per_request, points, variation: 0.0 })
            }
        };
        StageProfile { engine, requests_per_turn, service, needs: Some(needs), settings: BTreeMap::new() }
    }

    /// Where the service and the requests of a turn come from. A slot is held for a run of the stage: by a recognizer
    /// from the beginning of the utterance to its words, by a voice from the first chunk of a reply to its last sound,
    /// because chunks are spoken one after another.
    fn sources(self, from: &str, runs: &[&[f64]]) -> [Source; 2] {
        let measured = |what: &str| Source { measured: true, from: format!("{from}{what}") };
        match self {
            Self::Runs { .. } => [measured(""), assumed("as the caller of the stress test says")],
            Self::Slots { .. } if runs.concat().is_empty() => [
                assumed(
                    "the turn records show no runs of the stage: a slot is held to the first output, which is measured",
                ),
                assumed("one: the turn records show no runs of the stage"),
            ],
            Self::Slots { .. } => [
                measured("; a slot is held for a run of the stage, how many there are is as the caller says"),
                measured("; all chunks of a reply are one request"),
            ],
        }
    }
}

/// Mean length of the questions, in seconds.
fn speech_s(clips: &load::Clips, one: &Outcome) -> f64 {
    let length_s =
        |turn: &load::TurnRecord| Samples(clips[turn.clip].samples.len() as u64).duration(RATE).as_secs_f64();
    one.turns.iter().map(length_s).sum::<f64>() / one.turns.len().max(1) as f64
}

/// Turns a minute from the times at which questions ended.
fn turns_per_minute(one: &Outcome) -> Option<f64> {
    let at: Vec<f64> = one.turns.iter().map(|turn| turn.at.as_secs_f64()).collect();
    let first = at.first()?;
    let last = at.last()?;
    (last > first).then(|| 60.0 * (at.len() - 1) as f64 / (last - first))
}

/// Quantiles at equal steps from 0 to 1 of at least one value.
fn quantiles(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    let at = |step: usize| {
        let place = step as f64 / (N_QUANTILES - 1) as f64 * last;
        let below = place.floor() as usize;
        let above = place.ceil() as usize;
        let value = |at: usize| values.get(at).copied().unwrap_or(0.0);
        (value(below) + (value(above) - value(below)) * place.fract()).max(0.0)
    };
    (0..N_QUANTILES).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_parts_of_a_turn_record_are_added_up_by_stage() {
        let part = |stage: &str, from: f64, to: f64| json!({"stage": stage, "from_ms": from, "to_ms": to});
        let record = json!({
            "parts": [part("endpointing", 0.0, 210.0), part("stt", 210.0, 255.5), part("llm", 255.5, 256.0), part("tts", 256.0, 300.0)],
            "stages": [part("stt", -2_000.0, 255.5), part("tts", 256.0, 900.0)],
            "audio": {"generated_ms": 1_400.0},
        });
        let parts = Parts::of(&record).expect("parts");
        assert_eq!(
            (parts.endpointing, parts.stt, parts.llm, parts.tts, parts.reply),
            (210.0, 45.5, 0.5, 44.0, 1_400.0)
        );
        assert_eq!((parts.stt_runs, parts.tts_runs), (vec![2_255.5], vec![644.0]));
        assert!(Parts::of(&json!({"parts": [], "audio": {"generated_ms": 9.0}})).is_none());
        assert!(Parts::of(&json!({"parts": [part("stt", 0.0, 1.0)], "audio": {"generated_ms": 0.0}})).is_none());
    }

    #[test]
    fn slots_are_held_for_the_runs_of_a_stage() {
        let needs = Needs { machine: "cpu".into(), cores: 1.0, memory_gib: 0.5, accelerators: 0.0, card_gb: 0.0 };
        let slots = KnownStage::Slots { slots: 4 };
        let of = |runs: &[&[f64]]| {
            let stage = slots.profile("an engine".into(), 45.0, runs, needs.clone());
            let Service::Slots { points, .. } = stage.service else { panic!("{:?}", stage.service) };
            let measured = slots.sources("one session", runs).map(|source| source.measured);
            (stage.requests_per_turn, points[0].first_ms, points[0].hold_ms, measured)
        };
        assert_eq!(of(&[&[2_000.0, 400.0], &[1_500.0]]), (1.5, 45.0, 1_300.0, [true, true]));
        assert_eq!(of(&[&[], &[]]), (1.0, 45.0, 45.0, [false, false]));
        let runs = KnownStage::Runs { slots: 4, requests_per_turn: 2.0, runs_per_request: 7.0 };
        let stage = runs.profile("an engine".into(), 45.0, &[&[2_000.0]], needs);
        let points = vec![RunPoint { batch: 1.0, run_ms: 45.0 }];
        let service = Service::Runs { slots: 4, runs_per_request: 7.0, points, variation: 0.0 };
        assert_eq!((stage.requests_per_turn, stage.service), (2.0, service));
        assert_eq!(runs.sources("one session", &[]).map(|source| source.measured), [true, false]);
    }

    #[test]
    fn the_length_of_speech_is_that_of_all_questions() {
        let clip = |n_seconds: usize| {
            let samples = vec![1_000; n_seconds * RATE.hz() as usize];
            load::Clip::new("tone", load::Sign::Unknown, samples).expect("loud")
        };
        let clips = load::Clips::asked(vec![clip(1), clip(4)]).expect("two");
        let asked = |clip| load::TurnRecord { clip, ..load::TurnRecord::asked(Duration::ZERO, None) };
        let one = Outcome { turns: vec![asked(0), asked(1), asked(1)], ..Outcome::default() };
        assert_eq!(speech_s(&clips, &one), 3.0);
    }

    #[test]
    fn quantiles_go_from_the_least_to_the_most() {
        let five = quantiles(vec![5.0, 1.0, 3.0, 4.0, 2.0]);
        assert_eq!((five.len(), five[0], five[10], five[20]), (N_QUANTILES, 1.0, 3.0, 5.0));
        assert_eq!(quantiles(vec![7.0]), vec![7.0; N_QUANTILES]);
    }
}
