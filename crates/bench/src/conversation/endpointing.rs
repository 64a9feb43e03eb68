//! The curve of eot-bench: false cutoffs against latency, swept over the silence that ends a turn and the detector's
//! threshold, or over the factor of the waits that adapt to the words.
//!
//! The voice activity detector hears each turn once, faster than real time; a session's turn-taking runs over what it
//! said with each setting. A pause is cut where the end of the turn is decided in it. The false cutoff rate is the
//! share of labelled pauses of 0.2 to 5 s that are cut, as in eot-bench's VAD baseline; latency is from the last sample
//! of a turn to the decision, mean of all turns. Words come from [`super::pause_words`]; no model of a turn takes part.

use super::acoustics::samples_of;
use super::scenario::{Condition, Span};
use antiphon_client::RATE;
use antiphon_dialog::turn::{Eagerness, Edge, Ending, Thresholds, TurnTaker, WindowFeatures};
use antiphon_engine_api::vad::{Vad, VadError};
use antiphon_session::turn_pipeline::TurnPipeline;
use antiphon_types::{SampleRate, Samples};
use std::time::Duration;

/// A pause of this length and more is none within a turn, in ms.
const MAX_PAUSE_MS: u32 = 5_000;
/// Silence behind a turn: longer than any setting waits.
const TAIL_MS: u32 = 3_000;
const MIN_SPEECH_MS: u32 = 96;
/// Silences that end a turn, in ms.
pub(super) const SILENCES_MS: [u32; 14] =
    [100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 1_200, 1_400, 1_700, 2_000];
/// Thresholds of the detector.
pub(super) const THRESHOLDS: [f32; 3] = [0.3, 0.5, 0.7];
/// The threshold and the silence of a session that is not told otherwise.
const THRESHOLD: f32 = 0.5;
const SILENCE_MS: u32 = 500;
/// Factors of the waits that adapt: each a fifth larger than the one before.
const N_FACTORS: i32 = 20;
const FIRST_FACTOR: f64 = 0.2;
const FACTOR_STEP: f64 = 1.2;
/// A session asks for the words after so much of a pause, 80 ms.
const ASKS_AFTER: Samples = Samples(1_280);
/// With this factor no pause of a turn is taken for its end.
const ENDLESS: f64 = 1e3;

/// What ends turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting {
    /// A silence.
    Silence { threshold: f32, silence_ms: u32 },
    /// A silence that adapts to the words, at medium eagerness, of this many times its length.
    Adaptive { factor: f64 },
}

impl Setting {
    fn taker(self) -> TurnTaker {
        match self {
            Self::Silence { threshold, silence_ms } => {
                TurnTaker::new(thresholds(threshold, silence_ms), Ending::Silence)
            }
            Self::Adaptive { factor } => {
                let ending = Ending::Adaptive(Eagerness::Medium);
                let thresholds = thresholds(THRESHOLD, SILENCE_MS).with_pause(Some(ASKS_AFTER));
                TurnTaker::new(thresholds, ending).scaled(factor)
            }
        }
    }
}

/// All silences with all thresholds.
pub(super) fn silences() -> Vec<Setting> {
    let settings =
        THRESHOLDS.iter().flat_map(|threshold| SILENCES_MS.iter().map(move |silence| (*threshold, *silence)));
    settings.map(|(threshold, silence_ms)| Setting::Silence { threshold, silence_ms }).collect()
}

/// All factors, with 1, which a session has.
pub(super) fn factors() -> Vec<Setting> {
    let mut factors: Vec<f64> = (0..N_FACTORS).map(|i| FIRST_FACTOR * FACTOR_STEP.powi(i)).collect();
    factors.push(1.0);
    factors.sort_by(f64::total_cmp);
    factors.into_iter().map(|factor| Setting::Adaptive { factor }).collect()
}

/// A turn of which is known where the user pauses and ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EndedTurn {
    /// Where it comes from, for messages.
    pub(super) name: String,
    /// Mono at [`RATE`].
    pub(super) samples: Vec<i16>,
    pub(super) pauses: Vec<Span>,
    pub(super) end_ms: u32,
    /// What sounds behind it: noise.
    pub(super) bed: Vec<i16>,
    /// How it is heard; `None`: as it was recorded.
    pub(super) condition: Option<Condition>,
}

impl EndedTurn {
    /// The turn as it is heard, and the silence behind it. Mono at [`RATE`].
    pub(super) fn sound(&self) -> Vec<i16> {
        let mut samples = self.samples.clone();
        samples.truncate(samples_of(self.end_ms + TAIL_MS));
        samples.resize(samples_of(self.end_ms + TAIL_MS), 0);
        if !self.bed.is_empty() {
            let noise = self.bed.iter().cycle();
            samples.iter_mut().zip(noise).for_each(|(sample, noise)| *sample = sample.saturating_add(*noise));
        }
        samples
    }
}

/// What a recognizer made of a turn at one of its pauses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PauseWords {
    pub(super) text: String,
    /// Up to where it has heard the turn.
    pub(super) heard_to: Samples,
    /// How long it took from there on.
    pub(super) took: Duration,
}

/// What the detector made of a turn: its windows, and the labels.
pub(super) struct HeardTurn {
    windows: Vec<WindowFeatures>,
    pauses: Vec<Span>,
    end_ms: u32,
    /// In the order of the pauses; empty where there is no recognizer.
    pub(super) words: Vec<PauseWords>,
    /// Without noise, telephone and distance.
    pub(super) is_clean: bool,
}

impl HeardTurn {
    /// Where a session asks for the words so far: shortly after the beginning of each pause.
    pub(super) fn asks_at(&self) -> Vec<Samples> {
        let mut taker = Setting::Adaptive { factor: ENDLESS }.taker();
        let paused = |window: &WindowFeatures| {
            let edge = taker.window(*window);
            matches!(edge, Some(Edge::Paused { .. })).then_some(window.end)
        };
        self.windows.iter().filter_map(paused).collect()
    }
}

/// One point of the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) setting: Setting,
    /// Pauses that were cut, of all.
    pub(super) n_cut: usize,
    pub(super) n_pauses: usize,
    /// Mean from a turn's end to the decision; of the turns whose end was found. Infinite where none was.
    pub(super) latency_ms: f64,
    pub(super) n_turns: usize,
    pub(super) n_endless: usize,
}

impl Point {
    pub(super) fn cutoff_percent(&self) -> f64 {
        100.0 * self.n_cut as f64 / self.n_pauses.max(1) as f64
    }
}

/// Runs the detector over a turn and the silence behind it. Blocks for as long as the engine takes.
///
/// # Errors
/// As the engine's.
pub(super) fn hear(vad: &dyn Vad, turn: &EndedTurn) -> Result<HeardTurn, VadError> {
    let samples = antiphon_audio::convert(&turn.sound(), RATE, SampleRate::HZ_16000);
    // It listens to the voice, which prosody needs.
    let taker = Setting::Adaptive { factor: ENDLESS }.taker();
    let mut pipeline = TurnPipeline::new(vad.open(), taker);
    let mut windows = Vec::new();
    for window in samples.chunks_exact(vad.window()) {
        windows.push(pipeline.window(window, window)?.features);
    }
    let pauses = turn.pauses.iter().filter(|pause| pause.to_ms - pause.from_ms <= MAX_PAUSE_MS);
    let is_clean = matches!(turn.condition, None | Some(Condition::Clean));
    Ok(HeardTurn { windows, pauses: pauses.copied().collect(), end_ms: turn.end_ms, words: Vec::new(), is_clean })
}

fn thresholds(threshold: f32, silence_ms: u32) -> Thresholds {
    Thresholds::from_ms(threshold, MIN_SPEECH_MS, silence_ms)
}

/// The times at which a setting ends turns, in ms.
fn decisions(turn: &HeardTurn, setting: Setting) -> Vec<f64> {
    let mut taker = setting.taker();
    let mut decisions = Vec::new();
    // The recognizer hears one pause after the other.
    let mut known_at = Samples::ZERO;
    let known = |words: &PauseWords| {
        known_at = known_at.max(words.heard_to) + SampleRate::HZ_16000.samples_in(words.took);
        known_at
    };
    let known: Vec<Samples> = turn.words.iter().map(known).collect();
    let mut words = turn.words.iter().zip(known).peekable();
    for window in &turn.windows {
        while let Some((words, _)) = words.next_if(|(_, known_at)| *known_at <= window.start) {
            taker.partial(&words.text, words.heard_to);
        }
        if let Some(Edge::Stopped { .. }) = taker.window(*window) {
            decisions.push(window.end.0 as f64 / 16.0);
        }
    }
    decisions
}

/// The point of one setting.
pub(super) fn point<'a>(turns: impl IntoIterator<Item = &'a HeardTurn>, setting: Setting) -> Point {
    let mut n_cut = 0;
    let mut n_pauses = 0;
    let mut n_turns = 0;
    let mut latencies = Vec::new();
    for turn in turns {
        let decisions = decisions(turn, setting);
        n_turns += 1;
        n_pauses += turn.pauses.len();
        let is_cut =
            |pause: &&Span| decisions.iter().any(|at| *at >= f64::from(pause.from_ms) && *at < f64::from(pause.to_ms));
        n_cut += turn.pauses.iter().filter(is_cut).count();
        let end_ms = f64::from(turn.end_ms);
        latencies.extend(decisions.into_iter().find(|at| *at >= end_ms).map(|at| at - end_ms));
    }
    let n_ended = latencies.len();
    let latency_ms = match n_ended {
        0 => f64::INFINITY,
        n => latencies.iter().sum::<f64>() / n as f64,
    };
    Point { setting, n_cut, n_pauses, latency_ms, n_turns, n_endless: n_turns - n_ended }
}

/// The least mean latency at which at most `percent` of the pauses are cut; `None`: no setting keeps that.
pub(super) fn latency_at(curve: &[Point], percent: f64) -> Option<f64> {
    let kept = curve.iter().filter(|point| point.cutoff_percent() <= percent);
    kept.map(|point| point.latency_ms).min_by(f64::total_cmp)
}

/// The least false cutoff rate, in per cent, at a mean latency of at most `latency_ms`.
pub(super) fn cutoffs_at(curve: &[Point], latency_ms: f64) -> Option<f64> {
    let kept = curve.iter().filter(|point| point.latency_ms <= latency_ms);
    kept.map(Point::cutoff_percent).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 20 ms: loud where one of the spans is.
    fn heard(spans: &[(u32, u32)]) -> HeardTurn {
        let pauses = spans.windows(2).map(|pair| Span { from_ms: pair[0].1, to_ms: pair[1].0 }).collect();
        let end_ms = spans.last().expect("a span").1;
        let window = |i: u32| {
            let is_loud = spans.iter().any(|(from, to)| i * 20 >= *from && i * 20 < *to);
            WindowFeatures {
                probability: if is_loud { 0.9 } else { 0.02 },
                peak: if is_loud { 8_000 } else { 5 },
                level_db: 0.0,
                pitch_hz: None,
                start: Samples(u64::from(i) * 320),
                end: Samples(u64::from(i + 1) * 320),
            }
        };
        let windows = (0..(end_ms + TAIL_MS) / 20).map(window).collect();
        HeardTurn { windows, pauses, end_ms, words: Vec::new(), is_clean: true }
    }

    /// The sentence of a turn with one pause, heard in 200 ms each time.
    fn heard_with_words(spans: &[(u32, u32)], texts: &[&str]) -> HeardTurn {
        let mut turn = heard(spans);
        let asks_at = turn.asks_at();
        assert_eq!(asks_at.len(), texts.len(), "{asks_at:?}");
        let words = |(text, heard_to): (&&str, Samples)| PauseWords {
            text: (*text).into(),
            heard_to,
            took: Duration::from_millis(200),
        };
        turn.words = texts.iter().zip(asks_at).map(words).collect();
        turn
    }

    #[test]
    fn words_cut_the_wait_short_where_they_are_whole_and_not_before_they_are_known() {
        let spans = [(200, 2_200), (3_000, 5_000)];
        let turn = heard_with_words(&spans, &["Tell me, what", "Tell me, what time is it?"]);
        let at = |turn: &HeardTurn, factor| {
            let point = point([turn], Setting::Adaptive { factor });
            (point.n_cut, point.latency_ms)
        };
        let (n_cut, latency_ms) = at(&turn, 1.0);
        assert_eq!(n_cut, 0);
        assert!((280.0..400.0).contains(&latency_ms), "80 ms to the question, 200 to its answer: {latency_ms}");
        let (n_cut, latency_ms) = at(&heard(&spans), 1.0);
        assert_eq!(n_cut, 0);
        assert!(latency_ms > 700.0, "without words it waits longer: {latency_ms}");
        assert_eq!(at(&turn, 0.2).0, 1, "short waits cut");
        // A recognizer that is late decides late.
        let mut late = turn;
        late.words[1].took = Duration::from_millis(500);
        assert!(at(&late, 1.0).1 > 550.0, "{:?}", at(&late, 1.0));
    }

    #[test]
    fn a_pause_longer_than_the_silence_is_cut_and_the_silence_is_the_latency() {
        let turns = [heard(&[(200, 1_000), (1_600, 2_400)]), heard(&[(200, 1_000), (1_300, 2_400), (3_500, 4_000)])];
        let at = |silence_ms| {
            let point = point(&turns, Setting::Silence { threshold: 0.5, silence_ms });
            (point.n_cut, point.n_pauses, point.latency_ms, point.n_endless)
        };
        assert_eq!(at(200), (3, 3, 200.0, 0));
        assert_eq!(at(400), (2, 3, 400.0, 0));
        assert_eq!(at(800), (1, 3, 800.0, 0));
        assert_eq!(at(1_200), (0, 3, 1_200.0, 0));
    }

    #[test]
    fn a_setting_that_ends_no_turn_is_not_the_fastest() {
        let silent = heard(&[(200, 1_000), (1_600, 2_400)]);
        let windows = silent.windows.iter().map(|window| WindowFeatures { probability: 0.02, peak: 5, ..*window });
        let silent = HeardTurn { windows: windows.collect(), ..silent };
        let point = point([&silent], Setting::Silence { threshold: 0.7, silence_ms: 100 });
        assert_eq!((point.n_cut, point.latency_ms, point.n_endless), (0, f64::INFINITY, 1));
        assert_eq!((cutoffs_at(&[point], 600.0), latency_at(&[point], 5.0)), (None, Some(f64::INFINITY)));
    }

    #[test]
    fn the_curve_is_read_at_a_rate_and_at_a_latency() {
        let point = |silence_ms, n_cut, latency_ms| Point {
            setting: Setting::Silence { threshold: 0.5, silence_ms },
            n_cut,
            n_pauses: 20,
            latency_ms,
            n_turns: 9,
            n_endless: 0,
        };
        let curve = [point(200, 8, 230.0), point(500, 2, 540.0), point(800, 1, 830.0), point(1_200, 0, 1_240.0)];
        assert_eq!((latency_at(&curve, 5.0), latency_at(&curve, 10.0)), (Some(830.0), Some(540.0)));
        assert_eq!((cutoffs_at(&curve, 600.0), cutoffs_at(&curve, 300.0)), (Some(10.0), Some(40.0)));
        assert_eq!((latency_at(&curve[..3], 1.0), cutoffs_at(&curve, 100.0)), (None, None));
    }
}
