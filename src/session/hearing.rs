//! One utterance's transcription: a task that feeds the STT port and reports back.
//!
//! The actor starts one for each utterance and sends it PCM. Its feed is bounded: when the engine is behind or every
//! decoder is taken, the feed fills up, and the actor stops reading the client. Nothing is dropped.

use crate::stt::{Stt, SttError, SttOptions, SttUtterance, Transcript};
use crate::units::{ItemId, Samples};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

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
    /// It has got its decoder, after so long.
    Opened {
        /// The utterance.
        item: ItemId,
        /// The wait.
        waited: Duration,
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
        let asked = Instant::now();
        let open = self.stt.open(self.options.clone());
        let mut utterance = timeout(BEHIND, open).await.map_err(|_| SttError::Timeout(BEHIND))??;
        let waited = asked.elapsed();
        let _ = self.reports.try_send(Report::Opened { item: self.item.clone(), waited });
        let (mut n_heard, mut n_unseen) = (Samples::ZERO, 0);
        loop {
            let asked = match self.feed.recv().await {
                Some(Feed::Pcm(pcm)) => {
                    n_unseen += pcm.len();
                    n_heard += Samples(pcm.len() as u64);
                    timeout(BEHIND, utterance.push(pcm)).await.map_err(|_| SttError::Timeout(BEHIND))??;
                    n_unseen >= PARTIAL_EVERY_SAMPLES && self.feed.is_empty()
                }
                Some(Feed::Ask) => true,
                Some(Feed::Finish) | None => break,
            };
            if asked {
                n_unseen = 0;
                self.partial(&mut *utterance, n_heard).await?;
            }
        }
        timeout(self.timeout, utterance.finish()).await.map_err(|_| SttError::Timeout(self.timeout))?
    }

    async fn partial(&self, utterance: &mut dyn SttUtterance, n_heard: Samples) -> Result<(), SttError> {
        let partial = timeout(BEHIND, utterance.partial()).await.map_err(|_| SttError::Timeout(BEHIND))??;
        if let Some(transcript) = partial.filter(|transcript| !transcript.text.is_empty()) {
            let _ = self.reports.try_send(Report::Partial { item: self.item.clone(), text: transcript.text, n_heard });
        }
        Ok(())
    }
}
