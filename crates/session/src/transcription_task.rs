//! One utterance's transcription: a task that feeds the STT port and reports back.
//!
//! The actor starts one for each utterance and sends it PCM. Its feed is bounded: when the engine is behind or every
//! decoder is taken, the feed fills up, and the actor stops reading the client. Nothing is dropped. Decoders are few, so
//! that an utterance whose client falls silent gives its own back; its audio is kept and replayed when more comes. From the
//! end of the utterance on everything that is still to be done has `stt.timeout_ms`, the wait for a decoder included, and
//! for audio that came faster than it could be taken its length besides.

pub(super) use super::transcription_input::{FEED_PIECES, PIECE_SAMPLES, Report, TranscriptionInput};
use antiphon_engine_api::stt::{RATE, Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_types::{ItemId, Samples};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

/// New audio after which the partial transcript is asked for: often enough for live captions.
const PARTIAL_EVERY_SAMPLES: usize = 16_000 / 4;

/// The longest wait for a decoder or for its taking a piece while the utterance goes on: what a feed holds.
const BEHIND: Duration = Duration::from_secs(30);

/// What audio that waits to be taken when the utterance ends may take besides, in its own lengths.
const TIMES_ITS_LENGTH: u32 = 2;

/// Without audio for so long a decoder is given back: only a client that commits by itself is silent for this long in the
/// middle of an utterance, and for ever if it likes.
const UNFED: Duration = Duration::from_secs(3);

/// What a hearing needs.
pub(super) struct TranscriptionTask {
    pub(super) item: ItemId,
    pub(super) stt: Arc<dyn Stt>,
    pub(super) options: SttOptions,
    /// From the end of the utterance to the final transcript.
    pub(super) timeout: Duration,
    pub(super) feed: mpsc::Receiver<TranscriptionInput>,
    /// What came while something else was waited for; as long as the feed at most.
    pub(super) backlog: VecDeque<TranscriptionInput>,
    /// By when all is to be done, known once the feed said that the utterance is complete, or ended: nothing more comes.
    pub(super) due: Option<Instant>,
    /// Samples that a decoder is to hear again, after one was given back.
    pub(super) n_again: usize,
    pub(super) reports: mpsc::Sender<Report>,
}

/// An utterance whose transcript is there.
struct Finished {
    transcript: Transcript,
    /// It was guessed; the engine may still have something to learn.
    stream: Option<Box<dyn SttUtterance>>,
}

impl TranscriptionTask {
    /// Runs to the final transcript, and on to what the engine learns. Dropping the future cancels the work and frees the
    /// decoder.
    pub(super) async fn run(mut self) {
        let (result, stream) = match self.transcribe().await {
            Ok(Finished { transcript, stream }) => (Ok(transcript), stream),
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

    async fn transcribe(&mut self) -> Result<Finished, SttError> {
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
                    self.n_again = kept.len();
                    let fed = self.next().await;
                    utterance = self.open(&kept).await?;
                    self.n_again = 0;
                    fed
                }
            };
            let asked = match fed {
                Some(TranscriptionInput::Pcm(pcm)) => {
                    n_unseen += pcm.len();
                    kept.extend_from_slice(&pcm);
                    self.meanwhile(utterance.push(pcm)).await?;
                    n_unseen >= PARTIAL_EVERY_SAMPLES && self.feed.is_empty() && self.backlog.is_empty()
                }
                Some(TranscriptionInput::Ask) => true,
                Some(TranscriptionInput::Guess) => {
                    n_unseen = 0;
                    guess = self.provisional(&mut *utterance, Samples(kept.len() as u64)).await;
                    false
                }
                Some(TranscriptionInput::Resumed) => {
                    guess = None;
                    false
                }
                Some(TranscriptionInput::Finish { as_guessed: true }) if guess.is_some() => {
                    return Ok(Finished { transcript: guess.expect("seen just now"), stream: Some(utterance) });
                }
                Some(TranscriptionInput::Finish { .. }) | None => break,
            };
            // What waits asks for better words.
            let is_overtaken = |feed: &TranscriptionInput| {
                matches!(feed, TranscriptionInput::Guess | TranscriptionInput::Finish { .. })
            };
            if asked && !self.backlog.iter().any(is_overtaken) {
                n_unseen = 0;
                self.partial(&mut *utterance, Samples(kept.len() as u64)).await?;
            }
        }
        Ok(Finished { transcript: self.meanwhile(utterance.finish()).await?, stream: None })
    }

    async fn next(&mut self) -> Option<TranscriptionInput> {
        if let Some(feed) = self.backlog.pop_front() {
            return Some(feed);
        }
        let feed = self.feed.recv().await;
        self.note(feed.as_ref());
        feed
    }

    /// Looks whether this is the end; `None`: the feed's own. What no engine has taken yet lengthens the time: a client may
    /// send minutes at once.
    fn note(&mut self, feed: Option<&TranscriptionInput>) {
        if matches!(feed, None | Some(TranscriptionInput::Finish { .. })) {
            let untaken = self
                .backlog
                .iter()
                .map(|feed| if let TranscriptionInput::Pcm(pcm) = feed { pcm.len() as u64 } else { 0 });
            let length = Samples(self.n_again as u64 + untaken.sum::<u64>()).duration(RATE);
            self.due.get_or_insert_with(|| Instant::now() + self.timeout + length * TIMES_ITS_LENGTH);
        }
    }

    /// What the feed holds next while there is room to keep it; never resolves behind its end.
    async fn more(&mut self) -> Option<TranscriptionInput> {
        if self.due.is_some() || self.backlog.len() >= FEED_PIECES {
            return std::future::pending().await;
        }
        let feed = self.feed.recv().await;
        self.note(feed.as_ref());
        feed
    }

    /// When whoever began to wait at `since` has waited long enough.
    fn due(&self, since: Instant, while_it_goes_on: Duration) -> Instant {
        self.due.unwrap_or(since + while_it_goes_on)
    }

    /// Waits for the engine and sees the end of the utterance come: with it the time is up earlier.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = Result<T, SttError>>) -> Result<T, SttError> {
        let (mut work, since) = (pin!(work), Instant::now());
        loop {
            let (due, has_ended) = (self.due(since, BEHIND), self.due.is_some());
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until(due) => return Err(match has_ended {
                    true => SttError::Timeout(self.timeout),
                    false => SttError::Behind(BEHIND),
                }),
                feed = self.more() => self.backlog.extend(feed),
            }
        }
    }

    /// Guesses the transcript and reports it, unless the speaker goes on first. A guess that fails is none: the end will
    /// ask again.
    async fn provisional(&mut self, utterance: &mut dyn SttUtterance, n_heard: Samples) -> Option<Transcript> {
        if self.backlog.iter().any(|feed| matches!(feed, TranscriptionInput::Resumed)) {
            return None;
        }
        let (mut guess, since) = (pin!(utterance.provisional()), Instant::now());
        let guess = loop {
            // The utterance may end while the guess is still under way.
            let due = self.due(since, self.timeout);
            tokio::select! {
                biased;
                guess = &mut guess => break guess,
                () = sleep_until(due) => break Err(SttError::Timeout(self.timeout)),
                feed = self.more() => match feed {
                    Some(TranscriptionInput::Resumed) => return None,
                    feed => self.backlog.extend(feed),
                },
            }
        };
        let transcript = guess.inspect_err(|error| tracing::debug!(%error, "no guess at this pause")).ok()?;
        let report = Report::ProvisionalTranscript { item: self.item.clone(), text: transcript.text.clone(), n_heard };
        let _ = self.reports.send(report).await;
        Some(transcript)
    }

    /// A decoder that has heard `kept`. Waits its turn.
    async fn open(&mut self, kept: &[i16]) -> Result<Box<dyn SttUtterance>, SttError> {
        let open = self.stt.open(self.options.clone());
        let mut utterance = self.meanwhile(open).await?;
        for piece in kept.chunks(PIECE_SAMPLES) {
            self.meanwhile(utterance.push(piece.to_vec())).await?;
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
                partial = &mut partial => match partial.map_err(|_| SttError::Behind(BEHIND))? {
                    Ok(partial) => break partial,
                    Err(error) => {
                        tracing::debug!(%error, "no words so far");
                        return Ok(());
                    }
                },
                feed = self.more() => {
                    let is_asked_better = matches!(feed, None | Some(TranscriptionInput::Guess | TranscriptionInput::Finish { .. }));
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
pub(super) async fn until_free(feed: Option<mpsc::Sender<TranscriptionInput>>) {
    match feed {
        Some(feed) => drop(feed.reserve().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "transcription_task_tests.rs"]
mod tests;
