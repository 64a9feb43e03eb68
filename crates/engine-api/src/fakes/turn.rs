//! A turn model for tests: it always says the same, or fails.

use crate::turn::{TurnModel, TurnModelError};
use antiphon_types::Samples;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::{Arc, Mutex};

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct FakeTurnModel {
    answer: Option<f32>,
    claim: Option<f32>,
    heard: Arc<Mutex<Vec<usize>>>,
}

impl FakeTurnModel {
    /// The turn is over with this probability.
    pub fn says(probability: f32) -> Self {
        Self { answer: Some(probability), claim: None, heard: Arc::default() }
    }

    /// It never answers but with an error.
    pub fn fails() -> Self {
        Self { answer: None, claim: None, heard: Arc::default() }
    }

    /// The same, which says of speech over a reply that it claims the turn with this probability.
    pub fn claiming(self, claim: f32) -> Self {
        Self { claim: Some(claim), ..self }
    }

    /// How many samples it was given, for each pause and each query about speech over a reply.
    pub fn heard(&self) -> Vec<usize> {
        self.heard.lock().expect("no panic while locked").clone()
    }
}

impl TurnModel for FakeTurnModel {
    fn name(&self) -> &str {
        "fake"
    }

    fn span(&self) -> Samples {
        Samples(2 * 16_000)
    }

    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        self.heard.lock().expect("no panic while locked").push(pcm.len());
        ready(self.answer.ok_or_else(|| TurnModelError::Failed("on purpose".into()))).boxed()
    }

    fn judges_overlap(&self) -> bool {
        self.claim.is_some()
    }

    fn judge_overlap(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        self.heard.lock().expect("no panic while locked").push(pcm.len());
        ready(self.claim.ok_or_else(|| TurnModelError::Failed("on purpose".into()))).boxed()
    }
}
