//! Writes a session's replay log: every input of turn-taking and the reducer, and every decision they make; with
//! `session.record_audio` the sound of both sides beside it.
//!
//! The actor's side is the [`Recorder`]: it packs windows and puts records into a bounded queue, and never waits. One task
//! a session takes them out, serializes them and writes the files. When the queue is full or the disk fails, the log ends
//! there and is marked incomplete; the session goes on. With [`Setup::sealing`] the task encrypts what it writes, in the format of
//! [`sealed`]. Where the client is asked, nothing is written before it agrees, and nothing is left once it refuses.

use super::conversation_audio::{CHANNELS, ConversationAudio, ReplySource};
use super::recording_consent::RecordingConsent;
use super::replay_log::{
    DialogStart, End, Entry, Header, Outcome, PACKED, PartialTranscript, TurnProbability, TurnStart, VERSION, Windows,
};
use super::setup::Setup;
use super::turn_pipeline::{OpenedOnUse, TurnPipeline, TurnWindow};
use super::turns::Turns;
use antiphon_audio::wav;
use antiphon_dialog::turn::{Edge, Ending, Thresholds, TurnTaker, WindowFeatures};
use antiphon_dialog::{Action, Event};
use antiphon_engine_api::vad::Vad;
use antiphon_types::sealed::{self, Form, Head, Sealing};
use antiphon_types::{ItemId, Pcm, ResponseId, SampleRate, Samples, SessionId, Timestamp};
use std::future::pending;
use std::io::{self, ErrorKind, SeekFrom};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt, BufWriter};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Records that wait for the disk: several seconds of the busiest session.
const RECORDS: usize = 512;
/// Windows of one line: about a second, so that a hub that is killed loses no more.
const WINDOWS_A_LINE: usize = 64;
/// Samples of one record of audio from which on it is written: a second of both sides.
const SAMPLES_A_RECORD: usize = 16_000 * CHANNELS as usize;
/// What waits for the client's consent, in bytes: about two minutes with audio.
const MAX_EARLY_BYTES: usize = 10 << 20;

/// What the recorder gives to the writer.
// As large as an entry, which most are.
#[allow(clippy::large_enum_variant)]
enum Record {
    Entry(Entry),
    /// Frames of both sides.
    Audio(Vec<i16>),
}

/// The actor's end of a replay log. Does nothing where the session is not recorded.
#[derive(Default)]
pub(super) struct Recorder {
    records: Option<mpsc::Sender<Record>>,
    /// A record was lost.
    lost: Arc<AtomicBool>,
    /// `None`: the client is not asked.
    consent: Option<RecordingConsent>,
    windows: Windows,
    outcome: Outcome,
    /// `None`: the sound is not kept.
    audio: Option<ConversationAudio>,
    /// Some of the reply was too much for it.
    is_cut: bool,
    /// Frames that were not sent to the writer.
    frames: Vec<i16>,
}

impl Recorder {
    fn new(records: mpsc::Sender<Record>, lost: Arc<AtomicBool>, keeps_audio: bool) -> Self {
        Self {
            records: Some(records),
            lost,
            consent: None,
            windows: Windows::default(),
            outcome: Outcome::default(),
            audio: keeps_audio.then(|| ConversationAudio::new(Instant::now())),
            is_cut: false,
            frames: Vec::new(),
        }
    }

    /// Whether anything is recorded.
    pub(super) fn runs(&self) -> bool {
        self.records.is_some()
    }

    /// Whether the sound is recorded.
    pub(super) fn keeps_audio(&self) -> bool {
        self.runs() && self.audio.is_some()
    }

    /// The place in the recorded sound of a span of turn time that is not long ago. `None`: the sound is not recorded, or
    /// the client has not agreed.
    pub(super) fn recorded_span(&self, span: Range<Samples>) -> Option<Range<Samples>> {
        let agrees = self.consent.as_ref().is_none_or(|consent| consent.decision() == Some(true));
        let audio = self.audio.as_ref().filter(|_| agrees && self.runs())?;
        Some(audio.frames_of(span))
    }

    /// The reducer took `event` and returned `actions`.
    pub(super) fn step(&mut self, at: Timestamp, event: Event, actions: &[Action]) {
        self.put(|| Entry::Step { at, event, actions: actions.to_vec() });
    }

    /// Reply audio at 16 kHz that sounds from `at` in turn time on.
    pub(super) fn reply_sounds(&mut self, source: ReplySource, at: Samples, reply: Pcm) {
        let Some(audio) = &mut self.audio else { return };
        let fits = audio.reply_sounds(Instant::now(), source, at, reply.samples, &mut self.frames);
        if !fits && !std::mem::replace(&mut self.is_cut, true) {
            tracing::warn!("the recording has not all of a reply: more of it waits to be played than is kept");
        }
        self.send_full_audio();
    }

    /// Playback stands still from now on.
    pub(super) fn reply_held(&mut self) {
        if let Some(audio) = &mut self.audio {
            audio.reply_held(Instant::now(), &mut self.frames);
            self.send_full_audio();
        }
    }

    /// Playback goes on.
    pub(super) fn reply_resumed(&mut self) {
        if let Some(audio) = &mut self.audio {
            audio.reply_resumed(Instant::now(), &mut self.frames);
            self.send_full_audio();
        }
    }

    /// A response stops sounding now.
    pub(super) fn reply_stopped(&mut self, response: &ResponseId) {
        if let Some(audio) = &mut self.audio {
            audio.reply_stopped(Instant::now(), response, &mut self.frames);
            self.send_full_audio();
        }
    }

    /// The client has stopped an item.
    pub(super) fn item_truncated(&mut self, item: &ItemId) {
        if let Some(audio) = &mut self.audio {
            audio.item_truncated(Instant::now(), item, &mut self.frames);
            self.send_full_audio();
        }
    }

    fn window(&mut self, features: &WindowFeatures, outcome: Outcome, audio: &[i16]) {
        if !self.runs() {
            return;
        }
        if !self.outcome.is_nothing() || self.windows.len() >= WINDOWS_A_LINE || !self.windows.takes(features) {
            self.flush_windows();
        }
        self.windows.push(features);
        self.outcome = outcome;
        self.heard(audio);
    }

    /// Audio of the microphone, which may be in no window.
    fn heard(&mut self, microphone: &[i16]) {
        if !self.runs() {
            return;
        }
        if let Some(audio) = &mut self.audio {
            audio.heard(Instant::now(), microphone, &mut self.frames);
            self.send_full_audio();
        }
    }

    /// Appends an entry after the windows so far.
    fn put(&mut self, entry: impl FnOnce() -> Entry) {
        if self.runs() {
            self.flush_windows();
            self.send(Record::Entry(entry()));
        }
    }

    fn flush_windows(&mut self) {
        if self.windows.is_empty() {
            return;
        }
        let room = Windows { packed: Vec::with_capacity(WINDOWS_A_LINE * PACKED), ..Windows::default() };
        let windows = std::mem::replace(&mut self.windows, room);
        let outcome = std::mem::take(&mut self.outcome);
        self.send(Record::Entry(Entry::Windows { windows, outcome }));
    }

    /// Sends the frames so far, if they are worth a record.
    fn send_full_audio(&mut self) {
        if self.frames.len() >= SAMPLES_A_RECORD {
            self.send_audio();
        }
    }

    fn send_audio(&mut self) {
        if !self.frames.is_empty() {
            let room = Vec::with_capacity(SAMPLES_A_RECORD);
            let frames = std::mem::replace(&mut self.frames, room);
            self.send(Record::Audio(frames));
        }
    }

    fn send(&mut self, record: Record) {
        let Some(records) = &self.records else { return };
        if records.try_send(record).is_err() {
            // Entries after a gap could not be replayed.
            self.lost.store(true, Relaxed);
            self.records = None;
            self.audio = None;
            self.frames = Vec::new();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush_windows();
        if let Some(audio) = &mut self.audio {
            audio.finish(Instant::now(), &mut self.frames);
        }
        self.send_audio();
    }
}

/// A turn pipeline whose inputs and outcomes are recorded.
pub(super) struct RecordedTurns {
    pipeline: TurnPipeline,
    pub(super) recorder: Recorder,
}

impl RecordedTurns {
    pub(super) fn new(vad: Arc<dyn Vad>, thresholds: Thresholds, ending: Ending, recorder: Recorder) -> Self {
        let taker = TurnTaker::new(thresholds, ending);
        Self { pipeline: TurnPipeline::new(Box::new(OpenedOnUse::new(vad)), taker), recorder }
    }

    /// See [`TurnPipeline::resumed`]. Not recorded: a replay log begins with its session.
    pub(super) fn resumed(vad: Arc<dyn Vad>, taker: TurnTaker, position: Samples, recent: &[i16]) -> Self {
        let window = vad.window();
        // Without audio before it the detector is opened with the first window, as in a new session.
        let pipeline = TurnPipeline::resumed(Box::new(OpenedOnUse::new(vad)), taker, position, recent, window);
        Self { pipeline, recorder: Recorder::default() }
    }

    /// See [`TurnTaker::set`].
    pub(super) fn set(&mut self, thresholds: Thresholds, ending: Ending) {
        self.pipeline.taker_mut().set(thresholds, ending);
        self.recorder.put(|| Entry::TurnSettings(TurnStart { thresholds, ending }));
    }

    /// See [`TurnPipeline::window_or_silence`].
    pub(super) fn window(&mut self, voice: &[i16], words: &[i16]) -> TurnWindow {
        let window = self.pipeline.window_or_silence(voice, words);
        self.recorder.window(&window.features, window.outcome, words);
        window
    }

    /// Audio that is in no window; see [`TurnPipeline::skip`].
    pub(super) fn skip(&mut self, audio: &[i16]) {
        self.pipeline.skip(Samples(audio.len() as u64));
        self.recorder.heard(audio);
    }

    /// See [`TurnPipeline::position`].
    pub(super) fn position(&self) -> Samples {
        self.pipeline.position()
    }

    /// See [`TurnTaker::partial`].
    pub(super) fn partial(&mut self, text: &str, audio_end: Samples) {
        self.pipeline.taker_mut().partial(text, audio_end);
        self.recorder.put(|| Entry::Partial(PartialTranscript { text: text.to_owned(), audio_end }));
    }

    /// See [`TurnTaker::judged`].
    pub(super) fn judged(&mut self, probability: f32, pause_start: Samples) {
        self.pipeline.taker_mut().judged(probability, pause_start);
        self.recorder.put(|| Entry::TurnProbability(TurnProbability { probability, pause_start }));
    }

    /// See [`TurnTaker::end`].
    pub(super) fn end(&mut self) -> Option<Edge> {
        let outcome = Outcome::of_end(self.pipeline.taker_mut());
        self.recorder.put(|| Entry::Ended { outcome });
        outcome.edge
    }
}

impl Deref for RecordedTurns {
    type Target = TurnTaker;

    fn deref(&self) -> &TurnTaker {
        self.pipeline.taker()
    }
}

impl Setup {
    /// The replay log of a session that begins now, where sessions are recorded. `consent`: `None`: the client is not asked.
    pub(super) fn recorder(
        &self,
        id: &SessionId,
        consent: Option<&RecordingConsent>,
        turns: Turns,
        dialog: impl FnOnce() -> DialogStart,
    ) -> Recorder {
        if self.session.record.is_empty() {
            return Recorder::default();
        }
        let thresholds = turns.thresholds();
        let ending = turns.ending();
        let engines = &self.engines;
        let names = [engines.vad.name(), engines.stt.name(), engines.llm.name(), engines.tts.name()];
        let header = Header {
            antiphon_replay_log: VERSION,
            hub: env!("CARGO_PKG_VERSION").into(),
            session: id.clone(),
            started_at: jiff::Timestamp::now().to_string(),
            dialog: Some(dialog()),
            turn: TurnStart { thresholds, ending },
            engines: names.map(str::to_owned),
            audio: self.session.record_audio.then(|| file(id, "wav", self.sealing.is_some())),
        };
        let (sender, records) = mpsc::channel(RECORDS);
        let lost = Arc::new(AtomicBool::new(false));
        let keeps_audio = header.audio.is_some();
        let path = Path::new(&self.session.record).join(file(id, "jsonl", self.sealing.is_some()));
        let sealing = self.sealing.clone();
        let consent = consent.cloned();
        self.tasks.spawn(Writer { path, records, lost: lost.clone(), sealing, consent: consent.clone() }.run(header));
        let mut recorder = Recorder::new(sender, lost, keeps_audio);
        recorder.consent = consent;
        recorder
    }
}

/// The task that writes one replay log. It ends with the session, which drops the [`Recorder`], or, where the client is asked,
/// once all drop its [`RecordingConsent`]: until then it removes the files if the client refuses.
struct Writer {
    path: PathBuf,
    records: mpsc::Receiver<Record>,
    lost: Arc<AtomicBool>,
    sealing: Option<Arc<dyn Sealing>>,
    /// `None`: the client is not asked, or has agreed.
    consent: Option<RecordingConsent>,
}

/// Follows what the client decides; `None`: it is not asked.
type Decision = Option<watch::Receiver<Option<bool>>>;

/// What became of a replay log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    Complete,
    /// Records were lost.
    Incomplete,
    /// The client has not agreed.
    Refused,
}

/// What was recorded before the client agreed.
#[derive(Default)]
struct EarlyRecords {
    /// Without the header.
    lines: Vec<Vec<u8>>,
    audio: Vec<i16>,
    n_bytes: usize,
}

impl EarlyRecords {
    fn push(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Entry(entry) => {
                let line = serde_json::to_vec(&entry)?;
                self.n_bytes += line.len();
                self.lines.push(line);
            }
            Record::Audio(frames) => {
                self.n_bytes += size_of_val(&frames[..]);
                self.audio.extend(frames);
            }
        }
        Ok(())
    }
}

impl Writer {
    async fn run(mut self, header: Header) {
        let mut decision = self.consent.as_ref().map(RecordingConsent::watch);
        let audio_path = header.audio.as_ref().map(|name| self.path.with_file_name(name));
        let outcome = self.write(&header, audio_path.as_deref(), &mut decision).await;
        match &outcome {
            Ok(WriteOutcome::Complete) => tracing::debug!(file = %self.path.display(), "the session is recorded"),
            Ok(WriteOutcome::Refused) => {
                tracing::debug!(session = %header.session, "the session is not recorded: its client has not agreed")
            }
            Ok(WriteOutcome::Incomplete) => {
                tracing::warn!(file = %self.path.display(), "the recording is incomplete: the disk was too slow")
            }
            Err(error) => tracing::warn!(file = %part(&self.path).display(), %error, "the session cannot be recorded"),
        }
        // Nothing more is recorded, but the session may go on.
        self.records.close();
        self.consent = None;
        let is_refused = matches!(outcome, Ok(WriteOutcome::Refused)) || is_refused_later(decision).await;
        if is_refused {
            let paths = [audio_path.as_ref(), Some(&self.path)].into_iter().flatten();
            for path in paths.flat_map(|path| [path.clone(), part(path)]) {
                remove(&path).await;
            }
        }
    }

    /// Writes everything, if the client agrees or is not asked. Files that are left where it no longer agrees are to be removed.
    async fn write(
        &mut self,
        header: &Header,
        audio_path: Option<&Path>,
        decision: &mut Decision,
    ) -> io::Result<WriteOutcome> {
        let Some(early) = self.until_agreed(decision).await? else { return Ok(WriteOutcome::Refused) };
        // It decides nothing any more, and learns when the others do not either.
        self.consent = None;
        let outcome = self.write_files(header, early, audio_path, decision).await?;
        if outcome != WriteOutcome::Refused {
            for path in audio_path.into_iter().chain([&*self.path]) {
                tokio::fs::rename(part(path), path).await?;
            }
        }
        Ok(outcome)
    }

    /// Keeps what is recorded until the client agrees. `None`: it does not, or too much has come, which refuses, or the session
    /// has ended.
    async fn until_agreed(&mut self, decision: &mut Decision) -> io::Result<Option<EarlyRecords>> {
        let mut early = EarlyRecords::default();
        let Some(decision) = decision else { return Ok(Some(early)) };
        loop {
            tokio::select! {
                biased;
                agrees = decided(decision) => return Ok(agrees.then_some(early)),
                record = self.records.recv() => {
                    let has_ended = record.is_none();
                    if let Some(record) = record {
                        early.push(record)?;
                    }
                    if has_ended || early.n_bytes > MAX_EARLY_BYTES {
                        if let Some(consent) = &self.consent {
                            consent.decide(false);
                        }
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Writes both files until the session ends or the client refuses.
    async fn write_files(
        &mut self,
        header: &Header,
        early: EarlyRecords,
        audio_path: Option<&Path>,
        decision: &mut Decision,
    ) -> io::Result<WriteOutcome> {
        let seal = |extension| self.sealing.clone().map(|sealing| Sealed::new(sealing, &header.session, extension));
        let mut lines = Lines::create(&part(&self.path), seal("jsonl")).await?;
        let mut audio = match audio_path {
            Some(path) => Some(Audio::create(path, seal("wav")).await?),
            None => None,
        };
        lines.write(header).await?;
        let mut n_lines = early.lines.len() as u64;
        for line in early.lines {
            lines.write_line(line).await?;
        }
        if let Some(audio) = &mut audio {
            audio.write(&early.audio).await?;
        }
        loop {
            let record = tokio::select! {
                biased;
                () = refused(decision) => return Ok(WriteOutcome::Refused),
                record = self.records.recv() => record,
            };
            match (record, &mut audio) {
                (Some(Record::Entry(entry)), _) => {
                    lines.write(&entry).await?;
                    n_lines += 1;
                }
                (Some(Record::Audio(frames)), Some(audio)) => audio.write(&frames).await?,
                (Some(Record::Audio(_)), None) => {}
                (None, _) => break,
            }
            if self.records.is_empty() {
                lines.to.flush().await?;
            }
        }
        let complete = !self.lost.load(Relaxed);
        lines.write(&Entry::End(End { complete, n_lines })).await?;
        lines.to.flush().await?;
        if let Some(audio) = audio {
            audio.finish().await?;
        }
        Ok(if complete { WriteOutcome::Complete } else { WriteOutcome::Incomplete })
    }
}

/// Resolves once the client has decided; whether it agrees. It does not where the decision is never made. Cancel safe.
async fn decided(consent: &mut watch::Receiver<Option<bool>>) -> bool {
    consent.wait_for(Option::is_some).await.is_ok_and(|decision| *decision == Some(true))
}

/// Resolves once the client refuses; never, where it is not asked. Cancel safe.
async fn refused(decision: &mut Decision) {
    if let Some(decision) = decision
        && decision.wait_for(|decision| *decision == Some(false)).await.is_ok()
    {
        return;
    }
    pending().await
}

/// Waits until the client refuses, or nothing can decide for it any more. Whether it has refused.
async fn is_refused_later(decision: Decision) -> bool {
    let Some(mut decision) = decision else { return false };
    decision.wait_for(|decision| *decision == Some(false)).await.is_ok()
}

async fn remove(path: &Path) {
    match tokio::fs::remove_file(path).await {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(file = %path.display(), %error, "a recording that was refused cannot be removed");
        }
        _ => {}
    }
}

/// What the lines or blocks of a session's file are bound to.
pub(crate) fn sealed_name(id: &SessionId, extension: &str) -> String {
    format!("recording/{}", file(id, extension, false))
}

/// How a file of a recording is sealed.
struct Sealed {
    sealing: Arc<dyn Sealing>,
    name: String,
    /// Lines or blocks so far.
    n: u64,
}

impl Sealed {
    fn new(sealing: Arc<dyn Sealing>, id: &SessionId, extension: &str) -> Self {
        Self { sealing, name: sealed_name(id, extension), n: 0 }
    }

    fn head(&self, form: Form) -> Vec<u8> {
        Head::new(form, self.name.clone()).line()
    }

    fn line(&mut self, text: &[u8]) -> Vec<u8> {
        self.n += 1;
        sealed::seal_line(self.sealing.as_ref(), &self.name, self.n, text).into_bytes()
    }

    fn block(&mut self, is_last: bool, plain: &[u8]) -> Vec<u8> {
        let block = sealed::seal_block(self.sealing.as_ref(), &self.name, self.n, is_last, plain);
        self.n += 1;
        block
    }
}

/// The log.
struct Lines {
    to: BufWriter<File>,
    sealed: Option<Sealed>,
}

impl Lines {
    async fn create(path: &Path, sealed: Option<Sealed>) -> io::Result<Self> {
        let mut to = BufWriter::new(create(path).await?);
        if let Some(sealed) = &sealed {
            to.write_all(&sealed.head(Form::Lines)).await?;
        }
        Ok(Self { to, sealed })
    }

    async fn write(&mut self, line: &impl serde::Serialize) -> io::Result<()> {
        self.write_line(serde_json::to_vec(line)?).await
    }

    async fn write_line(&mut self, mut text: Vec<u8>) -> io::Result<()> {
        if let Some(sealed) = &mut self.sealed {
            text = sealed.line(&text);
        }
        text.push(b'\n');
        self.to.write_all(&text).await
    }
}

/// The WAV file beside a recording.
struct Audio {
    file: BufWriter<File>,
    n_frames: Samples,
    sealed: Option<Sealed>,
    /// Where the WAV header stands, in bytes. Sealed it is a block of its own, so that it can be replaced.
    start: u64,
}

impl Audio {
    async fn create(path: &Path, mut sealed: Option<Sealed>) -> io::Result<Self> {
        let mut file = BufWriter::new(create(&part(path)).await?);
        let mut start = 0;
        let mut header = wav::header_of(CHANNELS, SampleRate::HZ_16000, None).to_vec();
        if let Some(sealed) = &mut sealed {
            let head = sealed.head(Form::Blocks);
            file.write_all(&head).await?;
            start = head.len() as u64;
            header = sealed.block(false, &header);
        }
        file.write_all(&header).await?;
        Ok(Self { file, n_frames: Samples::ZERO, sealed, start })
    }

    async fn write(&mut self, frames: &[i16]) -> io::Result<()> {
        self.n_frames += Samples((frames.len() / usize::from(CHANNELS)) as u64);
        let bytes: Vec<u8> = frames.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let Some(sealed) = &mut self.sealed else { return self.file.write_all(&bytes).await };
        for block in bytes.chunks(sealed::MAX_BLOCK) {
            self.file.write_all(&sealed.block(false, block)).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> io::Result<()> {
        let mut header = wav::header_of(CHANNELS, SampleRate::HZ_16000, Some(self.n_frames)).to_vec();
        if let Some(sealed) = &mut self.sealed {
            self.file.write_all(&sealed.block(true, &[])).await?;
            header = sealed::seal_block(sealed.sealing.as_ref(), &sealed.name, 0, false, &header);
        }
        self.file.seek(SeekFrom::Start(self.start)).await?;
        self.file.write_all(&header).await?;
        self.file.flush().await
    }
}

/// The name of a session's file.
pub(super) fn file(id: &SessionId, extension: &str, is_sealed: bool) -> String {
    let sealed = if is_sealed { format!(".{}", sealed::EXTENSION) } else { String::new() };
    format!("{id}.{extension}{sealed}")
}

/// A new file for its owner's eyes only.
async fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).await
}

/// The name of a file until it is complete.
pub(super) fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engines::vad::Earshot;
    use tokio_util::task::TaskTracker;

    #[test]
    fn a_full_queue_ends_the_recording_and_says_so() {
        let (sender, mut records) = mpsc::channel(2);
        let lost = Arc::new(AtomicBool::new(false));
        let recorder = Recorder::new(sender, lost.clone(), false);
        let thresholds = Thresholds::from_ms(0.5, 96, 200);
        let mut recorded = RecordedTurns::new(Arc::new(Earshot), thresholds, Ending::Silence, recorder);
        recorded.partial("one", Samples(1));
        recorded.partial("two", Samples(2));
        assert!(recorded.recorder.runs() && !lost.load(Relaxed));
        recorded.partial("three", Samples(3));
        assert!(!recorded.recorder.runs() && lost.load(Relaxed));
        recorded.partial("four", Samples(4));
        let texts = std::iter::from_fn(|| records.try_recv().ok()).map(|record| match record {
            Record::Entry(Entry::Partial(partial)) => partial.text,
            Record::Entry(other) => panic!("{other:?}"),
            Record::Audio(_) => panic!("the sound is not kept"),
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["one", "two"], "nothing stands behind a gap");
        assert!(records.is_closed(), "the writer ends");
    }

    /// What is left of a session.
    struct Recorded {
        files: Vec<String>,
        n_lines: usize,
        seconds: u64,
    }

    /// A session that is recorded once its client agrees.
    struct Rig {
        folder: tempfile::TempDir,
        consent: Option<RecordingConsent>,
        records: mpsc::Sender<Record>,
        writer: tokio::task::JoinHandle<()>,
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let (records, receiver) = mpsc::channel(RECORDS);
            let consent = RecordingConsent::undecided();
            let writer = Writer {
                path: folder.path().join("sess_1.jsonl"),
                records: receiver,
                lost: Arc::default(),
                sealing: None,
                consent: Some(consent.clone()),
            };
            let header = Header {
                antiphon_replay_log: VERSION,
                hub: "test".into(),
                session: "sess_1".into(),
                started_at: "now".into(),
                dialog: None,
                turn: TurnStart { thresholds: Thresholds::from_ms(0.5, 96, 200), ending: Ending::Silence },
                engines: Default::default(),
                audio: Some("sess_1.wav".into()),
            };
            let writer = TaskTracker::new().spawn(writer.run(header));
            Self { folder, consent: Some(consent), records, writer }
        }

        /// A second is recorded.
        async fn second(&self) {
            let partial = PartialTranscript { text: "words".into(), audio_end: Samples::ZERO };
            self.records.send(Record::Entry(Entry::Partial(partial))).await.ok();
            self.records.send(Record::Audio(vec![1; SAMPLES_A_RECORD])).await.ok();
            // The writer takes it.
            while self.records.capacity() < self.records.max_capacity() && !self.records.is_closed() {
                tokio::task::yield_now().await;
            }
        }

        fn decide(&self, agrees: bool) {
            self.consent.as_ref().expect("it is asked").decide(agrees);
        }

        fn files(&self) -> Vec<String> {
            names_in(&self.folder)
        }

        /// The session and its call end.
        async fn end(self) -> Recorded {
            let Self { folder, consent, records, writer } = self;
            drop(records);
            drop(consent);
            writer.await.expect("it ends");
            let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap_or_default();
            let n_lines = read("sess_1.jsonl").split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
            let n_sound = read("sess_1.wav").len().saturating_sub(wav::HEADER_LEN) as u64;
            Recorded { files: names_in(&folder), n_lines, seconds: n_sound / 64_000 }
        }
    }

    fn names_in(folder: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().expect("text")).collect()
    }

    const BOTH: [&str; 2] = ["sess_1.jsonl", "sess_1.wav"];

    #[tokio::test]
    async fn nothing_is_written_before_the_client_agrees_and_then_all_is() {
        let rig = Rig::new();
        rig.second().await;
        assert_eq!(rig.files(), [""; 0], "it was not asked yet");
        rig.decide(true);
        rig.second().await;
        let recorded = rig.end().await;
        assert_eq!(recorded.files, BOTH);
        assert_eq!(recorded.n_lines, 4, "with the header and the end");
        assert_eq!(recorded.seconds, 2);
    }

    #[tokio::test]
    async fn without_consent_there_is_no_file() {
        for agrees in [None, Some(false)] {
            let rig = Rig::new();
            rig.second().await;
            if let Some(agrees) = agrees {
                rig.decide(agrees);
            }
            rig.second().await;
            assert_eq!(rig.end().await.files, [""; 0], "{agrees:?}");
        }
    }

    #[tokio::test]
    async fn what_was_recorded_is_removed_when_the_client_agrees_no_longer() {
        let rig = Rig::new();
        rig.decide(true);
        rig.second().await;
        assert_eq!(rig.files(), ["sess_1.jsonl.part", "sess_1.wav.part"]);
        rig.decide(false);
        rig.records.closed().await;
        rig.decide(true);
        assert_eq!(rig.end().await.files, [""; 0], "it does not begin again");
    }

    #[tokio::test]
    async fn what_was_recorded_is_removed_also_once_nothing_more_is() {
        // The session has ended, or its records were too many: the call goes on.
        let mut rig = Rig::new();
        rig.decide(true);
        rig.second().await;
        rig.records = mpsc::channel(1).0;
        while rig.files() != BOTH {
            tokio::task::yield_now().await;
        }
        assert!(!rig.writer.is_finished());
        rig.decide(false);
        assert_eq!(rig.end().await.files, [""; 0]);

        // The disk has failed.
        let rig = Rig::new();
        std::fs::create_dir(rig.folder.path().join("sess_1.wav.part")).expect("a folder in the place of the file");
        rig.decide(true);
        rig.records.closed().await;
        assert_eq!(rig.files(), ["sess_1.jsonl.part", "sess_1.wav.part"]);
        rig.decide(false);
        assert_eq!(rig.end().await.files, ["sess_1.wav.part"], "which is not the recorder's");
    }

    #[tokio::test]
    async fn what_waits_for_consent_is_bounded_and_then_refused() {
        let rig = Rig::new();
        let n_seconds = MAX_EARLY_BYTES / 64_000 + 1;
        for _ in 0..n_seconds {
            rig.second().await;
        }
        rig.records.closed().await;
        assert_eq!(rig.consent.as_ref().and_then(RecordingConsent::decision), Some(false));
        rig.decide(true);
        assert_eq!(rig.end().await.files, [""; 0]);
    }
}
