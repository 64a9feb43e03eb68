//! What is true of a recording: where its speaker spoke, and where each turn was over.

use super::ReplayError;
use antiphon_types::sealed::EXTENSION;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file beside a recording: `sess_1.labels.json` of `sess_1.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Labels {
    /// In order.
    pub turns: Vec<LabelledTurn>,
}

/// One turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelledTurn {
    /// What is said; `|` stands for a pause.
    pub text: String,
    /// Who says it.
    pub speaker: String,
    /// Turns of one source are alike: resampling takes all or none of them.
    pub source: String,
    /// Turns are tuned on in one group and reported of in another.
    pub group: String,
    /// Speech from and to, in milliseconds of turn time; between them are the pauses, and the last one ends the turn.
    pub spans_ms: Vec<[f64; 2]>,
}

impl Labels {
    /// The labels of a recording.
    ///
    /// # Errors
    /// When they cannot be read or are none.
    pub fn of(recording: &Path) -> Result<Self, ReplayError> {
        let path = Self::path(recording);
        let text =
            std::fs::read_to_string(&path).map_err(|source| ReplayError::NoLabels { path: path.clone(), source })?;
        let labels: Self = serde_json::from_str(&text).map_err(|error| ReplayError::Labels(error.to_string()))?;
        let in_order = |turn: &LabelledTurn| {
            let times: Vec<f64> = turn.spans_ms.iter().flatten().copied().collect();
            !times.is_empty() && times.is_sorted()
        };
        match labels.turns.iter().find(|turn| !in_order(turn)) {
            Some(turn) => Err(ReplayError::Labels(format!("the spans of {:?} are not in order", turn.text))),
            None => Ok(labels),
        }
    }

    /// Where they stand.
    pub fn path(recording: &Path) -> PathBuf {
        let is_sealed = recording.extension().is_some_and(|extension| extension == EXTENSION);
        let recording = if is_sealed { recording.with_extension("") } else { recording.into() };
        recording.with_extension("labels.json")
    }
}

impl LabelledTurn {
    /// Where it begins and ends, in milliseconds of turn time.
    pub fn ends_ms(&self) -> (f64, f64) {
        (self.spans_ms[0][0], self.spans_ms[self.spans_ms.len() - 1][1])
    }
}
