//! One utterance's transcription: a task that feeds the STT port and reports back.
//!
//! The actor starts one for each utterance and sends it PCM. Its feed is bounded: when the engine is behind or every
//! decoder is taken, the feed fills up, and the actor stops reading the client. Nothing is dropped. Decoders are few, so
//! that an utterance whose client falls silent gives its own back; its audio is kept and replayed when more comes.

use crate::stt::{SpeakerState, Stt, SttError, SttOptions, SttUtterance, Transcript};
use crate::units::{ItemId, Samples};
use std::collections::VecDeque;
use std::pin::pin;
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

/// Without audio for so long a decoder is given back: only a client that commits by itself is silent for this long in the
/// middle of an utterance, and for ever if it likes.
const UNFED: Duration = Duration::from_secs(3);

/// What the actor sends.
pub(super) enum Feed {
    /// Mono PCM at 16 kHz.
    Pcm(Vec<i16>),
    /// The speaker pauses: what are the words so far?
    Ask,
    /// The speaker pauses: what would the transcript be if this were the end?
    Guess,
    /// It was not.
    Resumed,
    /// The utterance is complete.
    Finish {
        /// Nothing but silence has come since the guess: it is the transcript.
        as_guessed: bool,
    },
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
    /// What the transcript would be if this were the end.
    Guessed {
        /// The utterance.
        item: ItemId,
        /// The words.
        text: String,
        /// Of so much audio from the utterance's beginning.
        n_heard: Samples,
    },
    /// The transcript; the last that is reported where nothing is learnt.
    Final {
        /// The utterance.
        item: ItemId,
        /// All its words.
        result: Result<Transcript, SttError>,
        /// Whether [`Report::Learnt`] follows.
        learns: bool,
    },
    /// The turn model's answer at a pause.
    Judged {
        /// Turn time at which the pause began.
        said_to: Samples,
        /// That the turn is over.
        probability: f32,
    },
    /// What was learnt of the speaker, behind the transcript.
    Learnt(ItemId, Option<SpeakerState>),
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
    /// What came while a guess was made; as long as the feed at most.
    pub(super) backlog: VecDeque<Feed>,
    pub(super) reports: mpsc::Sender<Report>,
}

/// An utterance whose transcript is there.
struct Heard {
    transcript: Transcript,
    /// It was guessed; the engine may still have something to learn.
    stream: Option<Box<dyn SttUtterance>>,
}

impl Hearing {
    /// Runs to the final transcript, and on to what the engine learns. Dropping the future cancels the work and frees the
    /// decoder.
    pub(super) async fn run(mut self) {
        let (result, stream) = match self.transcribe().await {
            Ok(Heard { transcript, stream }) => (Ok(transcript), stream),
            Err(error) => (Err(error), None),
        };
        let item = self.item.clone();
        // The actor is gone only when the session is.
        let _ = self.reports.send(Report::Final { item, result, learns: stream.is_some() }).await;
        if let Some(stream) = stream {
            let speaker = timeout(self.timeout, stream.learn()).await.ok().flatten();
            let _ = self.reports.send(Report::Learnt(self.item, speaker)).await;
        }
    }

    async fn transcribe(&mut self) -> Result<Heard, SttError> {
        // As long as the longest utterance at most, which the actor sees to: 1 MB for 30 s.
        let mut kept: Vec<i16> = Vec::new();
        let asked = Instant::now();
        let mut utterance = self.open(&kept).await?;
        let _ = self.reports.try_send(Report::Opened { item: self.item.clone(), waited: asked.elapsed() });
        let (mut n_unseen, mut guess) = (0, None);
        loop {
            let fed = match timeout(UNFED, self.next()).await {
                Ok(fed) => fed,
                Err(_) => {
                    drop(utterance);
                    let fed = self.next().await;
                    utterance = self.open(&kept).await?;
                    fed
                }
            };
            let asked = match fed {
                Some(Feed::Pcm(pcm)) => {
                    n_unseen += pcm.len();
                    kept.extend_from_slice(&pcm);
                    push(&mut *utterance, pcm).await?;
                    n_unseen >= PARTIAL_EVERY_SAMPLES && self.feed.is_empty() && self.backlog.is_empty()
                }
                Some(Feed::Ask) => true,
                Some(Feed::Guess) => {
                    n_unseen = 0;
                    guess = self.guess(&mut *utterance, Samples(kept.len() as u64)).await;
                    false
                }
                Some(Feed::Resumed) => {
                    guess = None;
                    false
                }
                Some(Feed::Finish { as_guessed: true }) if guess.is_some() => {
                    return Ok(Heard { transcript: guess.expect("seen just now"), stream: Some(utterance) });
                }
                Some(Feed::Finish { .. }) | None => break,
            };
            if asked {
                n_unseen = 0;
                self.partial(&mut *utterance, Samples(kept.len() as u64)).await?;
            }
        }
        let finish = timeout(self.timeout, utterance.finish());
        let transcript = finish.await.map_err(|_| SttError::Timeout(self.timeout))??;
        Ok(Heard { transcript, stream: None })
    }

    async fn next(&mut self) -> Option<Feed> {
        match self.backlog.pop_front() {
            Some(feed) => Some(feed),
            None => self.feed.recv().await,
        }
    }

    /// Guesses the transcript and reports it, unless the speaker goes on first. A guess that fails is none: the end will
    /// ask again.
    async fn guess(&mut self, utterance: &mut dyn SttUtterance, n_heard: Samples) -> Option<Transcript> {
        let mut guess = pin!(timeout(self.timeout, utterance.guess()));
        // The feed ends behind the news that the utterance is complete, while the guess may still be under way.
        let mut is_fed = true;
        let guess = loop {
            tokio::select! {
                guess = &mut guess => break guess,
                feed = self.feed.recv(), if is_fed && self.backlog.len() < FEED_PIECES => match feed {
                    Some(Feed::Resumed) => return None,
                    Some(feed) => self.backlog.push_back(feed),
                    None => is_fed = false,
                },
            }
        };
        let transcript = guess
            .map_err(|_| SttError::Timeout(self.timeout))
            .flatten()
            .inspect_err(|error| tracing::debug!(%error, "no guess at this pause"))
            .ok()?;
        let report = Report::Guessed { item: self.item.clone(), text: transcript.text.clone(), n_heard };
        let _ = self.reports.send(report).await;
        Some(transcript)
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

    /// Reports the words so far, unless the end or a pause comes first: those ask for better ones, and the engine then
    /// gives this work up.
    async fn partial(&mut self, utterance: &mut dyn SttUtterance, n_heard: Samples) -> Result<(), SttError> {
        let mut partial = pin!(timeout(BEHIND, utterance.partial()));
        let partial = loop {
            tokio::select! {
                biased;
                partial = &mut partial => break partial.map_err(|_| SttError::Timeout(BEHIND))??,
                feed = self.feed.recv(), if self.backlog.len() < FEED_PIECES => {
                    let is_asked_better = matches!(feed, None | Some(Feed::Guess | Feed::Finish { .. }));
                    self.backlog.extend(feed);
                    if is_asked_better {
                        return Ok(());
                    }
                }
            }
        };
        if let Some(transcript) = partial.filter(|transcript| !transcript.text.is_empty()) {
            let _ = self.reports.try_send(Report::Partial { item: self.item.clone(), text: transcript.text, n_heard });
        }
        Ok(())
    }
}

/// Resolves when the feed takes more, or is gone; never without one.
pub(super) async fn until_free(feed: Option<mpsc::Sender<Feed>>) {
    match feed {
        Some(feed) => drop(feed.reserve().await),
        None => std::future::pending().await,
    }
}

async fn push(utterance: &mut dyn SttUtterance, pcm: Vec<i16>) -> Result<(), SttError> {
    timeout(BEHIND, utterance.push(pcm)).await.map_err(|_| SttError::Timeout(BEHIND))?
}

#[cfg(test)]
#[path = "hearing_tests.rs"]
mod tests;
