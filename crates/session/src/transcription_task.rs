//! One utterance's transcription: a task that feeds the STT port and reports back.
//!
//! [`super::hearing`] starts one for each utterance and sends it PCM. Its input queue is bounded: when the engine is behind or every
//! decoder is in use, the queue fills up, and the actor stops reading the client. Nothing is dropped. Decoders are few: an
//! utterance without new audio releases its own; its audio is kept and replayed when more comes. From the end of the
//! utterance on, all remaining work has `stt.timeout_ms`, the wait for a decoder included, plus twice the length of the
//! audio that no decoder has taken yet.

pub(super) use super::transcription_input::{INPUT_PIECES, PIECE_SAMPLES, Report, TranscriptionInput};
use antiphon_engine_api::stt::{RATE, Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_types::{ItemId, Samples};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

/// New audio after which the partial transcript is asked for: often enough for live captions. An engine that takes long for
/// one has as much time without afterwards, so that captions cost half of it at most, except for those of lulls.
const PARTIAL_EVERY_SAMPLES: usize = 16_000 / 4;

/// The same until there are words, 40 ms: a recognizer answers at once that it has heard too little.
const FIRST_PARTIAL_EVERY_SAMPLES: usize = 16_000 / 25;

/// What follows a lull is silence up to this multiple of the loudest sample of its first 32 ms, and in any case up to -50 dB of
/// full scale: the burst that ends a word is louder.
const BURST: u16 = 2;
const QUIET: u16 = 100;
const LULL_SAMPLES: usize = 512;

/// The longest wait of a better transcript for a partial one that was begun in its lull.
const LULL_WAIT: Duration = Duration::from_secs(1);

/// The longest wait for a decoder, or for it to take a piece, while the utterance goes on: what the input queue holds.
const BEHIND: Duration = Duration::from_secs(30);

/// Additional time for audio that no decoder has taken when the utterance ends, as a multiple of its length.
const TIMES_ITS_LENGTH: u32 = 2;

/// Time without audio after which the decoder is released: only a client that commits by itself is silent for this long
/// in the middle of an utterance, and without limit.
const IDLE_INPUT: Duration = Duration::from_secs(3);

/// Everything a transcription needs.
pub(super) struct TranscriptionTask {
    pub(super) item: ItemId,
    pub(super) stt: Arc<dyn Stt>,
    pub(super) options: SttOptions,
    /// From the end of the utterance to the final transcript.
    pub(super) timeout: Duration,
    pub(super) input: mpsc::Receiver<TranscriptionInput>,
    /// Input received while waiting for the engine; at most [`INPUT_PIECES`].
    pub(super) backlog: VecDeque<TranscriptionInput>,
    /// Deadline of all remaining work; set by `Finish`, or when the input queue is closed: nothing more comes.
    pub(super) due: Option<Instant>,
    /// Samples to be replayed to the next decoder, after one was released.
    pub(super) n_replayed: usize,
    pub(super) reports: mpsc::Sender<Report>,
}

/// An utterance with its final transcript.
struct FinishedUtterance {
    transcript: Transcript,
    /// The transcript was provisional; the engine may still have something to learn.
    stream: Option<Box<dyn SttUtterance>>,
}

impl TranscriptionTask {
    /// Runs to the final transcript, then to what the engine learns. Dropping the future cancels the work and releases
    /// the decoder.
    pub(super) async fn run(mut self) {
        let (result, stream) = match self.transcribe().await {
            Ok(FinishedUtterance { transcript, stream }) => (Ok(transcript), stream),
            Err(error) => (Err(error), None),
        };
        let item = self.item.clone();
        // The actor is gone only when the session is.
        let learns = stream.is_some();
        let served = self.options.hop.get();
        let meter = self.options.meter.clone();
        let _ = self.reports.send(Report::Final { item, result, learns, served, meter }).await;
        if let Some(stream) = stream {
            let speaker = timeout(self.timeout, stream.learn()).await.ok().flatten();
            let _ = self.reports.send(Report::Learnt(self.item, speaker)).await;
        }
    }

    async fn transcribe(&mut self) -> Result<FinishedUtterance, SttError> {
        // The actor bounds the length of an utterance: 1 MB for 30 s.
        let mut kept: Vec<i16> = Vec::new();
        let asked = Instant::now();
        let mut utterance = self.open(&kept).await?;
        let _ = self.reports.try_send(Report::Opened { item: self.item.clone(), waited: asked.elapsed() });
        let mut n_unseen = 0;
        let mut has_words = false;
        let mut provisional = None;
        let mut rests_until = Instant::now();
        loop {
            let input = match timeout(IDLE_INPUT, self.next()).await {
                Ok(input) => input,
                Err(_) => {
                    drop(utterance);
                    self.n_replayed = kept.len();
                    let input = self.next().await;
                    utterance = self.open(&kept).await?;
                    self.n_replayed = 0;
                    input
                }
            };
            let in_lull = matches!(input, Some(TranscriptionInput::Lull));
            let wants_partial = match input {
                Some(TranscriptionInput::Pcm(pcm)) => {
                    n_unseen += pcm.len();
                    kept.extend_from_slice(&pcm);
                    self.meanwhile(utterance.push(pcm)).await?;
                    let every = if has_words { PARTIAL_EVERY_SAMPLES } else { FIRST_PARTIAL_EVERY_SAMPLES };
                    n_unseen >= every
                        && self.input.is_empty()
                        && self.backlog.is_empty()
                        && Instant::now() >= rests_until
                }
                Some(TranscriptionInput::Lull | TranscriptionInput::RequestPartial) => true,
                Some(TranscriptionInput::RequestProvisional) => {
                    n_unseen = 0;
                    provisional = self.provisional(&mut *utterance, Samples(kept.len() as u64)).await;
                    false
                }
                Some(TranscriptionInput::Resumed) => {
                    provisional = None;
                    false
                }
                Some(TranscriptionInput::Finish { confirms_provisional: true }) if provisional.is_some() => {
                    return Ok(FinishedUtterance {
                        transcript: provisional.expect("checked above"),
                        stream: Some(utterance),
                    });
                }
                Some(TranscriptionInput::Finish { .. }) | None => break,
            };
            if wants_partial && !self.has_better_request() {
                n_unseen = 0;
                let asked = Instant::now();
                let silence = in_lull.then(|| peak(&kept[kept.len().saturating_sub(LULL_SAMPLES)..]));
                has_words |= self.partial(&mut *utterance, Samples(kept.len() as u64), silence, has_words).await?;
                rests_until = Instant::now() + asked.elapsed();
            }
        }
        Ok(FinishedUtterance { transcript: self.meanwhile(utterance.finish()).await?, stream: None })
    }

    /// Whether a request waits that yields a better transcript than a partial one. Where the speaker goes on, a provisional one
    /// is void.
    fn has_better_request(&self) -> bool {
        let requests = self.backlog.iter().rev().filter_map(|input| match input {
            TranscriptionInput::RequestProvisional | TranscriptionInput::Finish { .. } => Some(true),
            TranscriptionInput::Resumed => Some(false),
            _ => None,
        });
        requests.take(1).any(|is_better| is_better)
    }

    async fn next(&mut self) -> Option<TranscriptionInput> {
        if let Some(input) = self.backlog.pop_front() {
            return Some(input);
        }
        let input = self.input.recv().await;
        self.set_deadline_at_end(input.as_ref());
        input
    }

    /// Sets the deadline if `input` is the end; `None`: the queue was closed. Audio that no engine has taken yet extends
    /// the deadline: a client may send minutes at once.
    fn set_deadline_at_end(&mut self, input: Option<&TranscriptionInput>) {
        if matches!(input, None | Some(TranscriptionInput::Finish { .. })) {
            let untaken = self
                .backlog
                .iter()
                .map(|input| if let TranscriptionInput::Pcm(pcm) = input { pcm.len() as u64 } else { 0 });
            let length = Samples(self.n_replayed as u64 + untaken.sum::<u64>()).duration(RATE);
            self.due.get_or_insert_with(|| Instant::now() + self.timeout + length * TIMES_ITS_LENGTH);
        }
    }

    /// The next input while the backlog has room; never resolves after the end.
    async fn more(&mut self) -> Option<TranscriptionInput> {
        if self.due.is_some() || self.backlog.len() >= INPUT_PIECES {
            return std::future::pending().await;
        }
        let input = self.input.recv().await;
        self.set_deadline_at_end(input.as_ref());
        input
    }

    /// The deadline of a wait that began at `since`.
    fn due(&self, since: Instant, while_it_goes_on: Duration) -> Instant {
        self.due.unwrap_or(since + while_it_goes_on)
    }

    /// Waits for the engine while receiving input: the end of the utterance shortens the wait.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = Result<T, SttError>>) -> Result<T, SttError> {
        let mut work = pin!(work);
        let since = Instant::now();
        loop {
            let due = self.due(since, BEHIND);
            let has_ended = self.due.is_some();
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until(due) => return Err(match has_ended {
                    true => SttError::Timeout(self.timeout),
                    false => SttError::Behind(BEHIND),
                }),
                input = self.more() => self.backlog.extend(input),
            }
        }
    }

    /// Reports a provisional transcript, unless the speaker goes on first. A failure is not reported: the end of the
    /// utterance requests a transcript again.
    async fn provisional(&mut self, utterance: &mut dyn SttUtterance, n_heard: Samples) -> Option<Transcript> {
        if self.backlog.iter().any(|input| matches!(input, TranscriptionInput::Resumed)) {
            return None;
        }
        let mut work = pin!(utterance.provisional());
        let since = Instant::now();
        let provisional = loop {
            // The utterance may end meanwhile.
            let due = self.due(since, self.timeout);
            tokio::select! {
                biased;
                provisional = &mut work => break provisional,
                () = sleep_until(due) => break Err(SttError::Timeout(self.timeout)),
                input = self.more() => match input {
                    Some(TranscriptionInput::Resumed) => return None,
                    input => self.backlog.extend(input),
                },
            }
        };
        let failed = |error: &SttError| tracing::debug!(%error, "no provisional transcript at this pause");
        let transcript = provisional.inspect_err(failed).ok()?;
        let item = self.item.clone();
        let text = transcript.text.clone();
        let language = transcript.language.clone();
        let n_sure_words = transcript.n_sure_words;
        let report = Report::ProvisionalTranscript { item, text, language, n_sure_words, n_heard };
        let _ = self.reports.send(report).await;
        Some(transcript)
    }

    /// A decoder that has taken `kept`. Waits until one is free.
    async fn open(&mut self, kept: &[i16]) -> Result<Box<dyn SttUtterance>, SttError> {
        let open = self.stt.open(self.options.clone());
        let mut utterance = self.meanwhile(open).await?;
        for piece in kept.chunks(PIECE_SAMPLES) {
            self.meanwhile(utterance.push(piece.to_vec())).await?;
        }
        Ok(utterance)
    }

    /// Moves a request for a provisional transcript before the audio that waits with it, which is silence: the engine has
    /// decoded all that was said, and need not look at it again.
    fn ask_before_the_silence(&mut self) {
        let is_request = |input: &TranscriptionInput| matches!(input, TranscriptionInput::RequestProvisional);
        if let Some(at) = self.backlog.iter().position(is_request) {
            self.backlog.make_contiguous()[..=at].rotate_right(1);
        }
    }

    /// Reports a partial transcript, unless the end or a pause comes first: those request a better one, and dropping this
    /// request cancels the engine's work. One that was begun in a lull, with its `silence`, the loudest sample, has heard all
    /// that a better one hears, which waits for it, where nothing has sounded since. A lull ends one that was begun before, once
    /// the utterance `has_words`: what is begun then is ready sooner. Returns whether there are words.
    async fn partial(
        &mut self,
        utterance: &mut dyn SttUtterance,
        n_heard: Samples,
        silence: Option<u16>,
        has_words: bool,
    ) -> Result<bool, SttError> {
        // What waited while the engine took audio has not been heard, either.
        let mut in_lull = silence.is_some_and(|silence| self.backlog.iter().all(|input| keeps_lull(input, silence)));
        let mut partial = pin!(timeout(BEHIND, utterance.partial()));
        let mut superseded_at = None;
        let partial = loop {
            let gives_up_at = superseded_at.map(|at| self.due(at, LULL_WAIT).min(at + LULL_WAIT));
            tokio::select! {
                biased;
                partial = &mut partial => match partial.map_err(|_| SttError::Behind(BEHIND))? {
                    Ok(partial) => break partial,
                    Err(error) => {
                        tracing::debug!(%error, "no words so far");
                        return Ok(false);
                    }
                },
                () = sleep_until(gives_up_at.unwrap_or_else(Instant::now)), if gives_up_at.is_some() => return Ok(false),
                input = self.more() => {
                    let begins_again = has_words && !in_lull && matches!(input, Some(TranscriptionInput::Lull));
                    let is_superseded = matches!(input, None | Some(TranscriptionInput::RequestProvisional | TranscriptionInput::Finish { .. }));
                    in_lull &= match (&input, silence) {
                        (Some(TranscriptionInput::Pcm(_)), _) if superseded_at.is_some() => true,
                        (Some(input), Some(silence)) => keeps_lull(input, silence),
                        (None, _) | (_, None) => true,
                    };
                    self.backlog.extend(input);
                    if begins_again || is_superseded && !in_lull {
                        return Ok(false);
                    }
                    if is_superseded {
                        superseded_at.get_or_insert_with(Instant::now);
                    }
                }
            }
        };
        if in_lull {
            self.ask_before_the_silence();
        }
        let Some(transcript) = partial.filter(|transcript| !transcript.text.is_empty()) else { return Ok(false) };
        let Transcript { text, n_sure_words, n_settled_words, .. } = transcript;
        let item = self.item.clone();
        let partial = Report::Partial { item, text, n_sure_words, n_settled_words, n_heard };
        let _ = self.reports.try_send(partial);
        Ok(true)
    }
}

/// Whether a lull with `silence`, the loudest sample, goes on: audio that sounds ends it, and another lull begins after speech.
fn keeps_lull(input: &TranscriptionInput, silence: u16) -> bool {
    match input {
        TranscriptionInput::Pcm(pcm) => peak(pcm) <= QUIET.max(silence.saturating_mul(BURST)),
        TranscriptionInput::Lull => false,
        _ => true,
    }
}

/// The loudest sample.
fn peak(pcm: &[i16]) -> u16 {
    pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0)
}

/// Resolves when the input queue has room or is closed; never for `None`.
pub(super) async fn until_free(input: Option<mpsc::Sender<TranscriptionInput>>) {
    match input {
        Some(input) => drop(input.reserve().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "transcription_task_tests.rs"]
mod tests;
