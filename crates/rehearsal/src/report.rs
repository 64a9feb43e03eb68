//! What became of a rehearsal: checks, a transcript with times, figures, the sound. Data only.

use antiphon_types::Pcm;
use serde::Serialize;

/// A conversation and what it was held against. Times are in ms since it began.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// Whether all checks passed.
    pub passed: bool,
    /// What was expected, in the order of the turns; what holds for the whole stands last.
    pub checks: Vec<Check>,
    /// What was said, in order.
    pub turns: Vec<TurnReport>,
    /// Figures of the whole.
    pub measures: Measures,
    /// Both sides mixed, mono; gaps of the network within a reply are left out.
    #[serde(skip)]
    pub sound: Pcm,
}

impl Report {
    /// The report of a conversation that could not be held, with one failed check.
    pub fn not_held(scenario: &str, why: String) -> Self {
        let check = Check { turn: None, expected: "the conversation is held".into(), passed: false, found: why };
        Self {
            scenario: scenario.to_owned(),
            passed: false,
            checks: vec![check],
            turns: Vec::new(),
            measures: Measures::default(),
            sound: Pcm { rate: antiphon_client::RATE, samples: Vec::new() },
        }
    }
}

/// One expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The turn, from 1; `None`: the whole conversation.
    pub turn: Option<usize>,
    /// What was expected.
    pub expected: String,
    /// Whether it was so.
    pub passed: bool,
    /// What was there instead; empty where it passed.
    pub found: String,
}

/// A turn of the caller's and what the agent did then.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnReport {
    /// When the turn began.
    pub at_ms: u64,
    /// What the caller said; empty: it was silent.
    pub said: String,
    /// What the server understood; empty: nothing, or it does not report it.
    pub understood: String,
    /// From the end of the caller's words to the first sound of the answer; `None`: no answer, or none was waited for.
    pub answer_ms: Option<u64>,
    /// From the caller's first sound to the end of the reply that it spoke over; `None`: it spoke over none, or that went on.
    pub stopped_ms: Option<u64>,
    /// When the answer became audible.
    pub answered_at_ms: Option<u64>,
    /// The agent's words.
    pub reply: String,
    /// Calls of tools, as `name(arguments)`.
    pub calls: Vec<String>,
}

/// Figures of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measures {
    /// Its length.
    pub seconds: f64,
    /// Waits for answers: the median, and the longest.
    pub answer_p50_ms: Option<u64>,
    /// The longest wait for an answer.
    pub answer_max_ms: Option<u64>,
    /// The longest silence that the agent left.
    pub dead_air_ms: u64,
    /// How often the agent began while the caller spoke.
    pub interruptions: usize,
    /// Frames that this machine sent more than 100 ms late; where there are any, times are not to be trusted.
    pub late_frames: usize,
}
