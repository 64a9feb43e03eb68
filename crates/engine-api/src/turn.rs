//! The port of turn models: audio of a turn up to a pause in, the probability that the turn is over out.
//!
//! A session asks at each pause where the wait adapts; the answer is one hint among others (`endpointing`) and may come
//! late or never. Engines are made by `engines`. A model never decides that a turn is over.

use antiphon_types::{SampleRate, Samples};
use futures_util::future::BoxFuture;

/// The rate of all audio given to a model: mono, 16 kHz.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// A question without an answer. The wait goes by the other hints.
#[derive(Debug, thiserror::Error)]
pub enum TurnModelError {
    /// Too many ask at the same time.
    #[error("{waiting} pauses wait for the turn model already")]
    Busy {
        /// How many wait.
        waiting: usize,
    },
    /// The model, its library or a setting is missing or wrong; the text says what and how to get it.
    #[error("{0}")]
    Unavailable(String),
    /// It failed on this audio.
    #[error("the turn model failed: {0}")]
    Failed(String),
}

/// One model, shared by all sessions.
pub trait TurnModel: Send + Sync {
    /// Its name as configured.
    fn name(&self) -> &str;

    /// How much of the end of a turn it hears; more is not used.
    fn span(&self) -> Samples;

    /// P(the turn is over) in `[0, 1]`, of a turn's audio at [`RATE`] that ends with the pause. Dropping the future gives
    /// the place up. It does not block.
    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>>;
}
