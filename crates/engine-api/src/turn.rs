//! The turn model port: the audio of a turn up to a pause in, the probability that the turn is over out; and, of models
//! that judge it, the audio of speech over a reply in, the probability that it claims the turn out.
//!
//! A session queries it at each pause if endpointing is adaptive, and while speech over a reply may be a backchannel.
//! The result is one of several hints (see `endpointing` and `interruption`) and may arrive late or never. Engines are
//! built by `engines`. A model never decides that a turn is over, or that a reply stops.

use crate::REMOTE_CONCURRENCY;
use antiphon_types::{SampleRate, Samples};
use futures_util::future::{BoxFuture, ready};

/// Sampling rate of all audio passed to a model: mono, 16 kHz.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// A failed query. Endpointing uses its other hints.
#[derive(Debug, thiserror::Error)]
pub enum TurnModelError {
    /// The queue is full.
    #[error("{waiting} pauses wait for the turn model already")]
    Busy {
        /// Number of queries in the queue.
        waiting: usize,
    },
    /// The model, its library or a setting is missing or invalid; the text states which and how to fix it.
    #[error("{0}")]
    Unavailable(String),
    /// Turn models run on other machines, and none of them can be reached. The message is for the log.
    #[error("{0}")]
    Away(String),
    /// The model failed on this audio.
    #[error("the turn model failed: {0}")]
    Failed(String),
}

/// The turn model port: one model, shared by all sessions.
pub trait TurnModel: Send + Sync {
    /// The model's name as configured.
    fn name(&self) -> &str;

    /// Queries it answers at the same time; further ones wait in its queue. At least 1.
    fn concurrency(&self) -> usize {
        REMOTE_CONCURRENCY
    }

    /// Length of the audio the model considers, at the end of a turn; earlier audio is ignored.
    fn span(&self) -> Samples;

    /// P(the turn is over) in `[0, 1]` for the audio of a turn at [`RATE`] that ends with the pause. Does not block.
    /// Dropping the future cancels the query.
    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>>;

    /// Whether it answers [`Self::judge_overlap`].
    fn judges_overlap(&self) -> bool {
        false
    }

    /// P(the speech claims the turn) in `[0, 1]`, otherwise it is a backchannel or meant for others, for the audio of speech
    /// over a reply at [`RATE`] so far. Does not block. Dropping the future cancels the query.
    ///
    /// # Errors
    /// As [`Self::judge`], and [`TurnModelError::Unavailable`] of a model that does not judge this.
    fn judge_overlap(&self, _pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        let error = TurnModelError::Unavailable(format!("{} does not judge speech over a reply", self.name()));
        Box::pin(ready(Err(error)))
    }
}
