//! Writes a session's replay log: every input of turn-taking and the reducer, and every decision they make.
//!
//! The actor's side is the [`Recorder`]: it packs windows and puts entries into a bounded queue, and never waits. One task
//! a session takes them out, serializes them and writes the file. When the queue is full or the disk fails, the log ends
//! there and is marked incomplete; the session goes on. With [`Setup::sealing`] the task encrypts what it writes, in the format of
//! [`sealed`].

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
use antiphon_types::{SampleRate, Samples, SessionId, Timestamp};
use std::io::{self, SeekFrom};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt, BufWriter};
use tokio::sync::mpsc;

/// Entries that wait for the disk: several seconds of the busiest session, with audio 16 MiB at most.
const ENTRIES: usize = 512;
/// Windows of one line: about a second, so that a hub that is killed loses no more.
const WINDOWS_A_LINE: usize = 64;

/// The actor's end of a replay log. Does nothing where the session is not recorded.
#[derive(Default)]
pub(super) struct Recorder {
    entries: Option<mpsc::Sender<Entry>>,
    /// An entry was lost.
    lost: Arc<AtomicBool>,
    keeps_audio: bool,
    windows: Windows,
    audio: Vec<i16>,
    outcome: Outcome,
}

impl Recorder {
    fn new(entries: mpsc::Sender<Entry>, lost: Arc<AtomicBool>, keeps_audio: bool) -> Self {
        let windows = Windows::default();
        let audio = Vec::new();
        let outcome = Outcome::default();
        Self { entries: Some(entries), lost, keeps_audio, windows, audio, outcome }
    }

    /// Whether anything is recorded.
    pub(super) fn runs(&self) -> bool {
        self.entries.is_some()
    }

    /// The reducer took `event` and returned `actions`.
    pub(super) fn step(&mut self, at: Timestamp, event: Event, actions: &[Action]) {
        self.put(|| Entry::Step { at, event, actions: actions.to_vec() });
    }

    fn window(&mut self, features: &WindowFeatures, outcome: Outcome, audio: &[i16]) {
        if !self.runs() {
            return;
        }
        if !self.outcome.is_nothing() || self.windows.len() >= WINDOWS_A_LINE || !self.windows.takes(features) {
            self.flush();
        }
        self.windows.push(features);
        self.outcome = outcome;
        if self.keeps_audio {
            self.audio.extend_from_slice(audio);
        }
    }

    /// Appends an entry after the windows so far.
    fn put(&mut self, entry: impl FnOnce() -> Entry) {
        if self.runs() {
            self.flush();
            self.send(entry());
        }
    }

    fn flush(&mut self) {
        if self.windows.is_empty() {
            return;
        }
        let room = Windows { packed: Vec::with_capacity(WINDOWS_A_LINE * PACKED), ..Windows::default() };
        let windows = std::mem::replace(&mut self.windows, room);
        let outcome = std::mem::take(&mut self.outcome);
        let audio = std::mem::take(&mut self.audio);
        self.send(Entry::Windows { windows, outcome, audio });
    }

    fn send(&mut self, entry: Entry) {
        let Some(entries) = &self.entries else { return };
        if entries.try_send(entry).is_err() {
            // Entries after a gap could not be replayed.
            self.lost.store(true, Relaxed);
            self.entries = None;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
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

    /// See [`TurnPipeline::skip`].
    pub(super) fn skip(&mut self, n: Samples) {
        self.pipeline.skip(n);
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
    /// The replay log of a session that begins now, where sessions are recorded.
    pub(super) fn recorder(&self, id: &SessionId, turns: Turns, dialog: impl FnOnce() -> DialogStart) -> Recorder {
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
        let (sender, entries) = mpsc::channel(ENTRIES);
        let lost = Arc::new(AtomicBool::new(false));
        let keeps_audio = header.audio.is_some();
        let path = Path::new(&self.session.record).join(file(id, "jsonl", self.sealing.is_some()));
        let sealing = self.sealing.clone();
        self.tasks.spawn(Writer { path, entries, lost: lost.clone(), sealing }.run(header));
        Recorder::new(sender, lost, keeps_audio)
    }
}

/// The task that writes one replay log. It ends with the session, which drops the [`Recorder`].
struct Writer {
    path: PathBuf,
    entries: mpsc::Receiver<Entry>,
    lost: Arc<AtomicBool>,
    sealing: Option<Arc<dyn Sealing>>,
}

impl Writer {
    async fn run(mut self, header: Header) {
        match self.write(&header).await {
            Ok(true) => tracing::debug!(file = %self.path.display(), "the session is recorded"),
            Ok(false) => {
                tracing::warn!(file = %self.path.display(), "the recording is incomplete: the disk was too slow")
            }
            Err(error) => tracing::warn!(file = %part(&self.path).display(), %error, "the session cannot be recorded"),
        }
    }

    /// Writes everything; says whether nothing is missing.
    async fn write(&mut self, header: &Header) -> io::Result<bool> {
        let seal = |extension| self.sealing.clone().map(|sealing| Sealed::new(sealing, &header.session, extension));
        let mut lines = Lines::create(&part(&self.path), seal("jsonl")).await?;
        let audio_path = header.audio.as_ref().map(|name| self.path.with_file_name(name));
        let mut audio = match &audio_path {
            Some(path) => Some(Audio::create(path, seal("wav")).await?),
            None => None,
        };
        lines.write(header).await?;
        let mut n_lines = 0;
        while let Some(entry) = self.entries.recv().await {
            lines.write(&entry).await?;
            n_lines += 1;
            if let (Entry::Windows { audio: pcm, .. }, Some(audio)) = (&entry, &mut audio) {
                audio.write(pcm).await?;
            }
            if self.entries.is_empty() {
                lines.to.flush().await?;
            }
        }
        let complete = !self.lost.load(Relaxed);
        lines.write(&Entry::End(End { complete, n_lines })).await?;
        lines.to.flush().await?;
        if let (Some(audio), Some(path)) = (audio, &audio_path) {
            audio.finish().await?;
            tokio::fs::rename(part(path), path).await?;
        }
        tokio::fs::rename(part(&self.path), &self.path).await?;
        Ok(complete)
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
        let mut text = serde_json::to_vec(line)?;
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
    n: Samples,
    sealed: Option<Sealed>,
    /// Where the WAV header stands, in bytes. Sealed it is a block of its own, so that it can be replaced.
    start: u64,
}

impl Audio {
    async fn create(path: &Path, mut sealed: Option<Sealed>) -> io::Result<Self> {
        let mut file = BufWriter::new(create(&part(path)).await?);
        let mut start = 0;
        let mut header = wav::header(SampleRate::HZ_16000, None).to_vec();
        if let Some(sealed) = &mut sealed {
            let head = sealed.head(Form::Blocks);
            file.write_all(&head).await?;
            start = head.len() as u64;
            header = sealed.block(false, &header);
        }
        file.write_all(&header).await?;
        Ok(Self { file, n: Samples::ZERO, sealed, start })
    }

    async fn write(&mut self, pcm: &[i16]) -> io::Result<()> {
        self.n += Samples(pcm.len() as u64);
        let bytes: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let Some(sealed) = &mut self.sealed else { return self.file.write_all(&bytes).await };
        for block in bytes.chunks(sealed::MAX_BLOCK) {
            self.file.write_all(&sealed.block(false, block)).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> io::Result<()> {
        let mut header = wav::header(SampleRate::HZ_16000, Some(self.n)).to_vec();
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

    #[test]
    fn a_full_queue_ends_the_recording_and_says_so() {
        let (sender, mut entries) = mpsc::channel(2);
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
        let texts = std::iter::from_fn(|| entries.try_recv().ok()).map(|entry| match entry {
            Entry::Partial(partial) => partial.text,
            other => panic!("{other:?}"),
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["one", "two"], "nothing stands behind a gap");
        assert!(entries.is_closed(), "the writer ends");
    }
}
