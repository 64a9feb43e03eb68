//! One utterance's transcription: a task that feeds the STT port and reports back.
//!
//! The actor starts one for each utterance and sends it PCM. Its feed is bounded: when the engine is behind or every
//! decoder is taken, the feed fills up, and the actor stops reading the client. Nothing is dropped. Decoders are few, so
//! that an utterance whose client falls silent gives its own back; its audio is kept and replayed when more comes.

use crate::stt::{Stt, SttError, SttOptions, SttUtterance, Transcript};
use crate::units::{ItemId, Samples};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Pieces a feed holds: 30 s of audio, 960 KB at most.
pub(super) const FEED_PIECES: usize = 30_000 / PIECE_MS;
/// Samples of a piece at 16 kHz: four VAD windows. Shorter pieces cost a thread hop each, longer ones leave more to
/// decode once the end of the turn is known.
pub(super) const PIECE_SAMPLES: usize = 1_024;
const PIECE_MS: usize = PIECE_SAMPLES / 16;

/// New audio after which the partial transcript is asked for: often enough for live captions.
const PARTIAL_EVERY_SAMPLES: usize = 16_000 / 4;

/// The longest wait for a decoder or for its taking a piece: what a feed holds.
const BEHIND: Duration = Duration::from_secs(30);

/// Without audio for so long a decoder is given back: only a client that commits by itself is silent for this long in the
/// middle of an utterance, and for ever if it likes.
const UNFED: Duration = Duration::from_secs(3);

/// What the actor sends.
pub(super) enum Feed {
    /// Mono PCM at 16 kHz.
    Pcm(Vec<i16>),
    /// The speaker pauses: what are the words so far?
    Ask,
    /// The utterance is complete.
    Finish,
}

/// What comes back.
pub(super) enum Report {
    /// The words so far. May be dropped when the actor is busy: the next one holds them too.
    Partial {
        /// The utterance.
        item: ItemId,
        /// The words.
        text: String,
        /// Of so much audio from the utterance's beginning.
        n_heard: Samples,
    },
    /// The end; always the last.
    Final(ItemId, Result<Transcript, SttError>),
    /// A remote server's tools, or that they could not be had.
    Listed(ItemId, super::remote::Listed),
    /// A remote call's end.
    Called(ItemId, Result<String, crate::mcp::CallError>),
}

/// What a hearing needs.
pub(super) struct Hearing {
    pub(super) item: ItemId,
    pub(super) stt: Arc<dyn Stt>,
    pub(super) options: SttOptions,
    /// From the end of the utterance to the final transcript.
    pub(super) timeout: Duration,
    pub(super) feed: mpsc::Receiver<Feed>,
    pub(super) reports: mpsc::Sender<Report>,
}

impl Hearing {
    /// Runs to the final transcript. Dropping the future cancels the work and frees the decoder.
    pub(super) async fn run(mut self) {
        let result = self.transcribe().await;
        // The actor is gone only when the session is.
        let _ = self.reports.send(Report::Final(self.item, result)).await;
    }

    async fn transcribe(&mut self) -> Result<Transcript, SttError> {
        // As long as the longest utterance at most, which the actor sees to: 1 MB for 30 s.
        let mut kept: Vec<i16> = Vec::new();
        let mut utterance = self.open(&kept).await?;
        let mut n_unseen = 0;
        loop {
            let fed = match timeout(UNFED, self.feed.recv()).await {
                Ok(fed) => fed,
                Err(_) => {
                    drop(utterance);
                    let fed = self.feed.recv().await;
                    utterance = self.open(&kept).await?;
                    fed
                }
            };
            let asked = match fed {
                Some(Feed::Pcm(pcm)) => {
                    n_unseen += pcm.len();
                    kept.extend_from_slice(&pcm);
                    push(&mut *utterance, pcm).await?;
                    n_unseen >= PARTIAL_EVERY_SAMPLES && self.feed.is_empty()
                }
                Some(Feed::Ask) => true,
                Some(Feed::Finish) | None => break,
            };
            if asked {
                n_unseen = 0;
                self.partial(&mut *utterance, Samples(kept.len() as u64)).await?;
            }
        }
        timeout(self.timeout, utterance.finish()).await.map_err(|_| SttError::Timeout(self.timeout))?
    }

    /// A decoder that has heard `kept`. Waits its turn.
    async fn open(&self, kept: &[i16]) -> Result<Box<dyn SttUtterance>, SttError> {
        let open = self.stt.open(self.options.clone());
        let mut utterance = timeout(BEHIND, open).await.map_err(|_| SttError::Timeout(BEHIND))??;
        for piece in kept.chunks(PIECE_SAMPLES) {
            push(&mut *utterance, piece.to_vec()).await?;
        }
        Ok(utterance)
    }

    async fn partial(&self, utterance: &mut dyn SttUtterance, n_heard: Samples) -> Result<(), SttError> {
        let partial = timeout(BEHIND, utterance.partial()).await.map_err(|_| SttError::Timeout(BEHIND))??;
        if let Some(transcript) = partial.filter(|transcript| !transcript.text.is_empty()) {
            let _ = self.reports.try_send(Report::Partial { item: self.item.clone(), text: transcript.text, n_heard });
        }
        Ok(())
    }
}

async fn push(utterance: &mut dyn SttUtterance, pcm: Vec<i16>) -> Result<(), SttError> {
    timeout(BEHIND, utterance.push(pcm)).await.map_err(|_| SttError::Timeout(BEHIND))?
}

#[cfg(test)]
#[path = "hearing_tests.rs"]
mod tests;
