//! The speaker model port: the audio of a voice in, an embedding out. Embeddings of one voice resemble each other, those
//! of two voices do not.
//!
//! A session with `session.speaker_lock` queries it while an utterance is under way. The embedding is compared with the
//! user's (`dialog::SpeakerProfile`), and the answer may arrive late or never. Engines are built by `engines`. A model
//! never knows who speaks, keeps no voice and decides nothing.

use antiphon_types::{SampleRate, Samples};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Sampling rate of all audio passed to a model: mono, 16 kHz.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// A failed query. The session goes on as if the voice were the user's.
#[derive(Debug, thiserror::Error)]
pub enum SpeakerModelError {
    /// The queue is full.
    #[error("{waiting} voices wait for the speaker model already")]
    Busy {
        /// Number of queries in the queue.
        waiting: usize,
    },
    /// The model, its library or a setting is missing or invalid; the text states which and how to fix it.
    #[error("{0}")]
    Unavailable(String),
    /// The model failed on this audio.
    #[error("the speaker model failed: {0}")]
    Failed(String),
}

/// What decides: cosine similarities of this model's embeddings, and levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeakerThresholds {
    /// From this similarity on it is the same voice.
    pub same_from: f32,
    /// Below this one it is another voice. At most `same_from`.
    pub other_below: f32,
    /// A voice that is this much quieter, in dB, is another one whatever its similarity; `None`: none is.
    pub far_db: Option<f32>,
}

/// The shortest audio that most models tell voices apart by, 0.7 s; with less they confuse people often.
const LEAST: Samples = Samples(11_200);

/// Voiced sound of the user from which most models know the voice, 3 s: what they are commonly tested with at the least.
const ENROLLED_FROM: Samples = Samples(3 * 16_000);

/// The speaker model port: one model, shared by all sessions.
pub trait SpeakerModel: Send + Sync {
    /// The model's name as configured.
    fn name(&self) -> &str;

    /// Queries it answers at the same time; further ones wait in its queue. At least 1.
    fn concurrency(&self) -> usize;

    /// The shortest audio that is worth a query.
    fn least(&self) -> Samples {
        LEAST
    }

    /// Voiced sound of the user from which others are compared with it.
    fn enrolled_from(&self) -> Samples {
        ENROLLED_FROM
    }

    /// The longest audio that the model considers; earlier audio is ignored.
    fn span(&self) -> Samples;

    /// What its similarities mean.
    fn thresholds(&self) -> SpeakerThresholds;

    /// The embedding, a unit vector of a fixed length, of audio at [`RATE`] in which one voice speaks, without pauses. Does
    /// not block. Dropping the future cancels the query.
    ///
    /// # Errors
    /// See [`SpeakerModelError`]. Silence has no embedding: [`SpeakerModelError::Failed`].
    fn embed(&self, pcm: Arc<[i16]>) -> BoxFuture<'static, Result<Vec<f32>, SpeakerModelError>>;
}

/// The vector of length one in the direction of `vector`; `None`: it has no direction.
pub fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let has_direction = length.is_finite() && length > 1e-12;
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    has_direction.then_some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_without_a_direction_is_none() {
        assert_eq!(unit(vec![3.0, -4.0]), Some(vec![0.6, -0.8]));
        for without in [vec![], vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0]] {
            assert_eq!(unit(without), None);
        }
    }
}
