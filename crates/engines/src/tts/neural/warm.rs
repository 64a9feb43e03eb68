//! The first runs of a replica, while it is made: the first real chunk does not pay for them, and a model that cannot run is
//! refused. For pools and batch schedulers alike.

use super::levels::Levels;
use super::{Failure, Family, Item, Neural};
use antiphon_engine_api::tts::TtsError;
use antiphon_inference::onnx::Provider;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Phonemes of a usual sentence.
const USUAL: usize = 40;

impl<F: Family> Neural<F> {
    /// A replica that has run: alone, and with `max_batch` texts at once; the default voice's level is known.
    /// [`TtsError::Unavailable`] when it cannot.
    ///
    /// On a GPU it has also run with the least and the most that it will ever be given, which TensorRT takes for the range
    /// that it builds its engine for: what is within needs no other. That most is rarely met, so a device that has no memory
    /// for it serves all the same.
    pub(in crate::tts) fn warmed(family: F, max_batch: usize, levels: Option<Arc<Levels>>) -> Result<Self, TtsError> {
        let mut replica = Self { family, levels };
        let max_batch = max_batch.max(1);
        let refused = |error| TtsError::Unavailable(format!("the model does not speak: {error}"));
        if replica.family.provider() != Provider::Cpu {
            replica.try_run(1, 1).map_err(refused)?;
            if let Err(error) = replica.try_run(F::LONGEST, max_batch) {
                tracing::warn!(n_texts = max_batch, "the longest texts cannot be spoken at once: {error}");
            }
        }
        replica.try_run(USUAL, 1).map_err(refused)?;
        if max_batch > 1 {
            replica.try_run(USUAL, max_batch).map_err(refused)?;
        }
        replica.level("");
        Ok(replica)
    }

    /// Speaks `n` texts of as many phonemes at once.
    fn try_run(&self, n_phonemes: usize, n: usize) -> Result<(), TtsError> {
        let ids = self.family.sample(n_phonemes.min(F::LONGEST));
        match self.speak(&vec![Item { ids: &ids, voice: "" }; n], 1.0, &CancellationToken::new()) {
            Ok(sounds) if sounds.iter().any(Vec::is_empty) => {
                Err(TtsError::Engine { message: "it gave no sound".into(), source: None })
            }
            Ok(_) | Err(Failure::Cancelled) => Ok(()),
            Err(Failure::Failed(error)) => Err(error),
        }
    }
}
