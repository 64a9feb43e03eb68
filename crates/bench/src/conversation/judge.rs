//! What became of one turn: labels against the agent's track. Pure functions of times.
//!
//! Definitions of the field, from two tracks:
//!
//! - takeover at a pause (Full-Duplex-Bench): output of at least 1 s that begins in the user's turn, behind its first
//!   pause and before its end
//! - false cutoff: any output in that time; of a pause (eot-bench): the turn was ended in it
//! - response latency: from the user's last sample to the first audible one of the answer
//! - agent interruption (tau-voice): the agent begins to sound while the user speaks
//! - stop latency (Full-Duplex-Bench v1.5): from the first sample over the reply to the reply's last one; yield
//!   (tau-voice): that within 2 s
//! - selectivity (tau-voice): the reply goes on though there was a sound that does not claim the turn, 1 s after it
//!
//! A reply that is held and goes on has not stopped.

use super::scenario::{Expected, Span, Turn};
use antiphon_client::playout::{MERGED_GAP_MS, Sound};

/// Output from which the agent has taken the turn, in ms.
const TAKEOVER_MS: f64 = 1_000.0;
/// Time in which a reply must stop to have yielded, in ms.
const YIELD_WITHIN_MS: f64 = 2_000.0;
/// Time after a sound in which a reply that was held must go on, in ms.
const GOES_ON_WITHIN_MS: f64 = 1_000.0;

/// What was recorded while a turn lasted. Times in ms since the turn's first sample was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    /// The agent's sounds, to the next turn's beginning; those before it may be negative.
    pub(super) sounds: Vec<Sound>,
    /// Holds of the reply, and when it went on.
    pub(super) holds: Vec<(f64, Option<f64>)>,
    /// When the server reported that speech had stopped.
    pub(super) stops: Vec<f64>,
    /// When the server dropped a reply that had begun to sound.
    pub(super) cleared: Vec<f64>,
}

/// What became of a turn. `None`: it does not apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// The agent took the turn at a pause.
    pub(super) takeover: Option<bool>,
    /// The agent sounded before the user had ended.
    pub(super) false_cutoff: Option<bool>,
    /// The agent began to sound while the user spoke.
    pub(super) interrupted: Option<bool>,
    /// Labelled pauses, and those of which the server ended the turn.
    pub(super) pauses: usize,
    pub(super) pauses_cut: usize,
    /// From the user's end to the answer; infinite: it never came. `None` also where the agent had sounded before.
    pub(super) response_ms: Option<f64>,
    /// From the first sample over the reply to the reply's last one; infinite: it went on.
    pub(super) stop_ms: Option<f64>,
    /// The same from the word that decides, at least 0.
    pub(super) stop_after_decision_ms: Option<f64>,
    /// The reply stopped in time.
    pub(super) yielded: Option<bool>,
    /// The reply went on.
    pub(super) went_on: Option<bool>,
    /// When a reply was dropped that should have gone on: from the first sample over it. It may also stop by being held.
    pub(super) dropped_ms: Option<f64>,
    /// For how long the reply that went on was held.
    pub(super) held_ms: Option<f64>,
    /// The agent said nothing, and was not spoken to.
    pub(super) stayed_silent: Option<bool>,
    /// The reply over which it was spoken, where there was one: its place in the session.
    pub(super) over: Option<usize>,
}

/// Compares a turn's labels with what was recorded.
pub(super) fn judge(turn: &Turn, observed: &Observed) -> Verdict {
    let onset_ms = f64::from(turn.onset_ms());
    let over = match turn.expected {
        Expected::Yield | Expected::GoOn => sounding(&observed.sounds, onset_ms),
        Expected::Answer | Expected::Wait => None,
    };
    let verdict = Verdict { over, ..Verdict::default() };
    match turn.expected {
        Expected::Answer => answered(turn, observed, None, verdict),
        Expected::Wait => {
            let begins = |sound: &Sound| sound.from_ms >= onset_ms;
            Verdict { stayed_silent: Some(!observed.sounds.iter().any(begins)), ..verdict }
        }
        Expected::Yield => match over {
            Some(item) => {
                let last = observed.sounds.iter().rfind(|sound| sound.item == item).map_or(0.0, |sound| sound.to_ms);
                // A reply that ended by itself did not yield, though a later one may have been cut.
                let is_later = |sound: &&Sound| sound.item > item && sound.from_ms >= last;
                let next_ms = observed.sounds.iter().find(is_later).map_or(f64::INFINITY, |sound| sound.from_ms);
                let is_cut = observed.cleared.iter().any(|at| *at >= onset_ms && *at <= next_ms);
                let stop_ms = if is_cut { (last - onset_ms).max(0.0) } else { f64::INFINITY };
                let decision_ms = (stop_ms + onset_ms - f64::from(turn.decided_ms)).max(0.0);
                let verdict = Verdict {
                    stop_ms: Some(stop_ms),
                    stop_after_decision_ms: Some(decision_ms),
                    yielded: Some(stop_ms <= YIELD_WITHIN_MS),
                    ..verdict
                };
                answered(turn, observed, over, verdict)
            }
            None => verdict,
        },
        Expected::GoOn => match over {
            Some(_) => {
                let until = f64::from(turn.end_ms()) + GOES_ON_WITHIN_MS;
                let within = |at: f64| at >= onset_ms && at <= until;
                let dropped = observed.cleared.iter().find(|at| within(**at));
                let dropped_ms = dropped.map(|at| at - onset_ms);
                let left_held =
                    |(at, resumed): &(f64, Option<f64>)| within(*at) && resumed.is_none_or(|resumed| resumed > until);
                let went_on = dropped.is_none() && !observed.holds.iter().any(left_held);
                let held = observed.holds.iter().filter(|(at, _)| within(*at));
                let held_ms: f64 = held.map(|(at, resumed)| resumed.unwrap_or(until) - at).sum();
                Verdict { went_on: Some(went_on), dropped_ms, held_ms: went_on.then_some(held_ms), ..verdict }
            }
            None => verdict,
        },
    }
}

/// The reply that sounds at a time, or in a gap of which it does not count as silent.
fn sounding(sounds: &[Sound], at_ms: f64) -> Option<usize> {
    let is_under_way = |sound: &&Sound| sound.from_ms <= at_ms && sound.to_ms + MERGED_GAP_MS > at_ms;
    sounds.iter().rfind(is_under_way).map(|sound| sound.item)
}

/// Whether and when the user was answered. `over`: the reply that was under way when the user began.
fn answered(turn: &Turn, observed: &Observed, over: Option<usize>, verdict: Verdict) -> Verdict {
    let onset_ms = f64::from(turn.onset_ms());
    let end_ms = f64::from(turn.end_ms());
    let of_answer = |sound: &&Sound| Some(sound.item) != over && sound.to_ms > onset_ms;
    let answers: Vec<Sound> = merged(observed.sounds.iter().filter(of_answer));
    let pauses = turn.pauses();
    let speech = turn.speech();
    let is_early = |sound: &&Sound| sound.from_ms >= onset_ms && sound.from_ms < end_ms;
    let early: Vec<&Sound> = answers.iter().filter(is_early).collect();
    let takes_over = |sound: &&&Sound| {
        let is_behind_pause = pauses.first().is_some_and(|pause| sound.from_ms >= f64::from(pause.from_ms));
        is_behind_pause && sound.to_ms - sound.from_ms >= TAKEOVER_MS
    };
    let within = |span: &Span, at: f64| at >= f64::from(span.from_ms) && at < f64::from(span.to_ms);
    let is_cut = |pause: &&Span| observed.stops.iter().any(|at| within(pause, *at));
    let response = answers.iter().find(|sound| sound.from_ms >= end_ms);
    // Output that began early and lasts beyond the user's end leaves no latency to measure.
    let is_answered_early = early.iter().any(|sound| sound.to_ms > end_ms);
    let response_ms = response.map_or(f64::INFINITY, |sound| sound.from_ms - end_ms);
    let interrupts = |sound: &&&Sound| speech.iter().any(|span| within(span, sound.from_ms));
    Verdict {
        takeover: (!pauses.is_empty()).then(|| early.iter().any(|sound| takes_over(&sound))),
        false_cutoff: Some(!early.is_empty()),
        interrupted: Some(early.iter().any(|sound| interrupts(&sound))),
        pauses: pauses.len(),
        pauses_cut: pauses.iter().filter(is_cut).count(),
        response_ms: (!is_answered_early).then_some(response_ms),
        ..verdict
    }
}

/// The sounds with gaps below 0.5 s of the same reply closed.
fn merged<'a>(sounds: impl Iterator<Item = &'a Sound>) -> Vec<Sound> {
    let mut merged: Vec<Sound> = Vec::new();
    for sound in sounds {
        match merged.last_mut() {
            Some(last) if last.item == sound.item && sound.from_ms - last.to_ms < MERGED_GAP_MS => {
                last.to_ms = sound.to_ms;
            }
            _ => merged.push(*sound),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::super::scenario::tests::turn;
    use super::*;

    fn sounds(spans: &[(f64, f64, usize)]) -> Vec<Sound> {
        spans.iter().map(|(from_ms, to_ms, item)| Sound { from_ms: *from_ms, to_ms: *to_ms, item: *item }).collect()
    }

    fn heard(spans: &[(f64, f64, usize)]) -> Observed {
        Observed { sounds: sounds(spans), ..Observed::default() }
    }

    /// A user who speaks from 100 to 1,000 ms, pauses, and speaks from 1,600 to 2,500 ms.
    fn with_pause(expected: Expected) -> Turn {
        turn(expected, &[(100, 1_000), (1_600, 2_500)])
    }

    #[test]
    fn response_latency_is_from_the_last_sample_to_the_first_of_the_answer() {
        let verdict = judge(&with_pause(Expected::Answer), &heard(&[(-3_000.0, -500.0, 0), (3_050.0, 6_000.0, 1)]));
        assert_eq!(verdict.response_ms, Some(550.0));
        assert_eq!((verdict.takeover, verdict.false_cutoff), (Some(false), Some(false)));
        assert_eq!(judge(&with_pause(Expected::Answer), &heard(&[])).response_ms, Some(f64::INFINITY));
    }

    #[test]
    fn a_takeover_is_a_second_of_output_at_a_pause_and_a_false_cutoff_any_output() {
        let at = |spans| judge(&with_pause(Expected::Answer), &heard(spans));
        let short = at(&[(1_400.0, 1_900.0, 1), (3_000.0, 5_000.0, 2)]);
        assert_eq!((short.takeover, short.false_cutoff, short.response_ms), (Some(false), Some(true), Some(500.0)));
        let long = at(&[(1_400.0, 3_400.0, 1)]);
        assert_eq!((long.takeover, long.false_cutoff, long.response_ms), (Some(true), Some(true), None));
        // Two stretches of the same reply with 0.3 s between them are one.
        let merged = at(&[(1_400.0, 1_800.0, 1), (2_100.0, 2_450.0, 1)]);
        assert_eq!(merged.takeover, Some(true));
        let without = judge(&turn(Expected::Answer, &[(100, 2_500)]), &heard(&[(1_400.0, 3_400.0, 1)]));
        assert_eq!((without.takeover, without.false_cutoff), (None, Some(true)), "there is no pause");
    }

    #[test]
    fn the_agent_interrupts_where_it_begins_while_the_user_speaks() {
        let interrupted = |from| judge(&with_pause(Expected::Answer), &heard(&[(from, from + 900.0, 1)])).interrupted;
        assert_eq!(
            [interrupted(700.0), interrupted(1_300.0), interrupted(1_700.0)],
            [Some(true), Some(false), Some(true)]
        );
        assert_eq!(interrupted(2_600.0), Some(false));
    }

    #[test]
    fn a_pause_is_cut_where_the_turn_ended_in_it() {
        let stops = |stops: &[f64]| {
            let observed = Observed { stops: stops.to_vec(), ..Observed::default() };
            let verdict = judge(&with_pause(Expected::Answer), &observed);
            (verdict.pauses, verdict.pauses_cut)
        };
        assert_eq!([stops(&[1_550.0, 3_000.0]), stops(&[1_650.0]), stops(&[])], [(1, 1), (1, 0), (1, 0)]);
    }

    #[test]
    fn a_reply_yields_when_its_last_sound_is_within_two_seconds() {
        let interruption = Turn { decided_ms: 400, ..turn(Expected::Yield, &[(100, 1_500)]) };
        let cut = Observed { cleared: vec![650.0], ..heard(&[(-900.0, 600.0, 3), (2_100.0, 4_000.0, 4)]) };
        let verdict = judge(&interruption, &cut);
        assert_eq!(
            (verdict.stop_ms, verdict.stop_after_decision_ms, verdict.yielded),
            (Some(500.0), Some(200.0), Some(true))
        );
        assert_eq!((verdict.response_ms, verdict.over), (Some(600.0), Some(3)));
        let late = Observed { cleared: vec![2_400.0], ..heard(&[(-900.0, 2_300.0, 3)]) };
        assert_eq!(judge(&interruption, &late).yielded, Some(false));
        // It ended by itself.
        let ended = Observed { stops: vec![1_900.0], ..heard(&[(-900.0, 1_900.0, 3)]) };
        let verdict = judge(&interruption, &ended);
        assert_eq!((verdict.stop_ms, verdict.yielded), (Some(f64::INFINITY), Some(false)));
        // The answer that began in the interruption was cut, and not the reply before it.
        let later = Observed { cleared: vec![1_200.0], ..heard(&[(-900.0, 300.0, 3), (800.0, 1_200.0, 4)]) };
        let verdict = judge(&interruption, &later);
        assert_eq!((verdict.stop_ms, verdict.yielded), (Some(f64::INFINITY), Some(false)));
        assert_eq!(judge(&interruption, &heard(&[])).yielded, None, "there was no reply to interrupt");
        // A hold that is taken back within the interruption is no stop.
        let held = Observed {
            cleared: vec![1_450.0],
            holds: vec![(150.0, Some(900.0))],
            ..heard(&[(-900.0, 150.0, 3), (900.0, 1_400.0, 3)])
        };
        assert_eq!(judge(&interruption, &held).stop_ms, Some(1_300.0));
    }

    #[test]
    fn selectivity_counts_replies_that_go_on_within_a_second() {
        let backchannel = turn(Expected::GoOn, &[(100, 500)]);
        let reply = [(-900.0, 4_000.0, 0)];
        let with = |holds: &[(f64, Option<f64>)], cleared: &[f64]| {
            let observed = Observed { holds: holds.to_vec(), cleared: cleared.to_vec(), ..heard(&reply) };
            let verdict = judge(&backchannel, &observed);
            (verdict.went_on, verdict.held_ms)
        };
        assert_eq!(with(&[], &[]), (Some(true), Some(0.0)));
        assert_eq!(with(&[(150.0, Some(750.0))], &[]), (Some(true), Some(600.0)));
        assert_eq!(with(&[(150.0, Some(1_700.0))], &[]), (Some(false), None), "1.2 s after the sound");
        assert_eq!(with(&[(150.0, None)], &[300.0]), (Some(false), None));
        assert_eq!(with(&[], &[3_000.0]), (Some(true), Some(0.0)), "the next turn's cut");
        let verdict = judge(&backchannel, &heard(&[(-5_000.0, -800.0, 0)]));
        assert_eq!((verdict.went_on, verdict.over), (None, None), "the reply had ended");
    }

    #[test]
    fn sound_that_is_not_for_the_agent_is_not_answered() {
        let television = turn(Expected::Wait, &[(0, 3_000)]);
        let silent = |spans| judge(&television, &heard(spans)).stayed_silent;
        assert_eq!(silent(&[(-4_000.0, -900.0, 0)]), Some(true));
        assert_eq!(silent(&[(-4_000.0, -900.0, 0), (3_700.0, 5_000.0, 1)]), Some(false));
    }
}
