//! Writes a session's recording: all that turn-taking and the reducer are told, and what they decide.
//!
//! The actor's side is the [`Tape`]: it packs windows and puts entries into a bounded queue, and never waits. One task a
//! session takes them out, turns them into lines and writes the file. When the queue is full or the disk fails, the
//! recording ends there and says so; the session goes on.

use super::Setup;
use super::actor::Actor;
use super::replay_log::{DialogStart, End, Entry, Header, Judged, Outcome, PACKED, TurnStart, VERSION, Windows, Words};
use super::turns::Turns;
use antiphon_audio::wav;
use antiphon_dialog::turn::{Edge, Ending, Thresholds, TurnTaker, WindowFeatures};
use antiphon_dialog::{Action, Event};
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

/// The actor's end of a recording. Does nothing where nothing is recorded.
#[derive(Default)]
pub(super) struct Tape {
    entries: Option<mpsc::Sender<Entry>>,
    /// Something is missing.
    lost: Arc<AtomicBool>,
    keeps_audio: bool,
    windows: Windows,
    audio: Vec<i16>,
    gave: Outcome,
}

impl Tape {
    /// Whether anything is recorded.
    pub(super) fn runs(&self) -> bool {
        self.entries.is_some()
    }

    /// The reducer was told `event` and decided `actions`.
    pub(super) fn step(&mut self, at: Timestamp, event: Event, actions: &[Action]) {
        self.put(|| Entry::Step { at, event, gave: actions.to_vec() });
    }

    fn window(&mut self, heard: &WindowFeatures, gave: Outcome, audio: &[i16]) {
        if !self.runs() {
            return;
        }
        if !self.gave.is_nothing() || self.windows.len() >= WINDOWS_A_LINE || !self.windows.takes(heard) {
            self.flush();
        }
        self.windows.push(heard);
        self.gave = gave;
        if self.keeps_audio {
            self.audio.extend_from_slice(audio);
        }
    }

    /// What happens next follows the windows so far.
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
        let (gave, audio) = (std::mem::take(&mut self.gave), std::mem::take(&mut self.audio));
        self.send(Entry::Windows { windows, gave, audio });
    }

    fn send(&mut self, entry: Entry) {
        let Some(entries) = &self.entries else { return };
        if entries.try_send(entry).is_err() {
            // What follows a gap could not be replayed.
            self.lost.store(true, Relaxed);
            self.entries = None;
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Turn-taking whose inputs are recorded.
pub(super) struct RecordedTurnTaker {
    taker: TurnTaker,
    pub(super) tape: Tape,
}

impl RecordedTurnTaker {
    pub(super) fn new(thresholds: Thresholds, ending: Ending, tape: Tape) -> Self {
        Self { taker: TurnTaker::new(thresholds, ending), tape }
    }

    /// See [`TurnTaker::set`].
    pub(super) fn set(&mut self, thresholds: Thresholds, ending: Ending) {
        self.taker.set(thresholds, ending);
        self.tape.put(|| Entry::Set(TurnStart { thresholds, ending }));
    }

    /// Takes a window and its audio: its edge, and whether the words are wanted now.
    pub(super) fn window(&mut self, heard: WindowFeatures, audio: &[i16]) -> Outcome {
        let gave = Outcome::of_window(&mut self.taker, heard);
        self.tape.window(&heard, gave, audio);
        gave
    }

    /// See [`TurnTaker::partial`].
    pub(super) fn partial(&mut self, text: &str, heard_to: Samples) {
        self.taker.partial(text, heard_to);
        self.tape.put(|| Entry::Partial(Words { text: text.to_owned(), heard_to }));
    }

    /// See [`TurnTaker::judged`].
    pub(super) fn judged(&mut self, probability: f32, said_to: Samples) {
        self.taker.judged(probability, said_to);
        self.tape.put(|| Entry::Judged(Judged { probability, said_to }));
    }

    /// See [`TurnTaker::end`].
    pub(super) fn end(&mut self) -> Option<Edge> {
        let gave = Outcome::of_end(&mut self.taker);
        self.tape.put(|| Entry::Ended { gave });
        gave.edge
    }
}

impl Deref for RecordedTurnTaker {
    type Target = TurnTaker;

    fn deref(&self) -> &TurnTaker {
        &self.taker
    }
}

impl Setup {
    /// A tape for a session that begins now, where sessions are recorded.
    pub(super) fn tape(&self, id: &SessionId, turns: Turns, dialog: impl FnOnce() -> DialogStart) -> Tape {
        if self.session.record.is_empty() {
            return Tape::default();
        }
        let (thresholds, ending, engines) = (turns.thresholds(), turns.ending(), &self.engines);
        let names = [engines.vad.name(), engines.stt.name(), engines.llm.name(), engines.tts.name()];
        let header = Header {
            antiphon_recording: VERSION,
            hub: env!("CARGO_PKG_VERSION").into(),
            session: id.clone(),
            started_at: jiff::Timestamp::now().to_string(),
            dialog: Some(dialog()),
            turn: TurnStart { thresholds, ending },
            engines: names.map(str::to_owned),
            audio: self.session.record_audio.then(|| format!("{id}.wav")),
        };
        let (sender, entries) = mpsc::channel(ENTRIES);
        let lost = Arc::new(AtomicBool::new(false));
        let keeps_audio = header.audio.is_some();
        let path = Path::new(&self.session.record).join(format!("{id}.jsonl"));
        self.tasks.spawn(Writer { path, entries, lost: lost.clone() }.run(header));
        let (windows, audio, gave) = (Windows::default(), Vec::new(), Outcome::default());
        Tape { entries: Some(sender), lost, keeps_audio, windows, audio, gave }
    }
}

impl Actor {
    /// Gives an event to the reducer, on the record; the caller performs what it decides.
    pub(super) fn decide(&mut self, event: Event) -> Vec<Action> {
        let now = self.now();
        let told = self.ingress.tape().runs().then(|| event.clone());
        let actions = self.dialog.step(now, event);
        if let Some(event) = told {
            self.ingress.tape().step(now, event, &actions);
        }
        actions
    }
}

/// The task of one recording. It ends when the session has: the tape is gone then.
struct Writer {
    path: PathBuf,
    entries: mpsc::Receiver<Entry>,
    lost: Arc<AtomicBool>,
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
        let mut lines = BufWriter::new(create(&part(&self.path)).await?);
        let audio_path = header.audio.as_ref().map(|name| self.path.with_file_name(name));
        let mut audio = match &audio_path {
            Some(path) => Some(Audio::create(path).await?),
            None => None,
        };
        write_line(&mut lines, header).await?;
        let mut n_lines = 0;
        while let Some(entry) = self.entries.recv().await {
            write_line(&mut lines, &entry).await?;
            n_lines += 1;
            if let (Entry::Windows { audio: pcm, .. }, Some(audio)) = (&entry, &mut audio) {
                audio.write(pcm).await?;
            }
            if self.entries.is_empty() {
                lines.flush().await?;
            }
        }
        let complete = !self.lost.load(Relaxed);
        write_line(&mut lines, &Entry::End(End { complete, n_lines })).await?;
        lines.flush().await?;
        if let (Some(audio), Some(path)) = (audio, &audio_path) {
            audio.finish().await?;
            tokio::fs::rename(part(path), path).await?;
        }
        tokio::fs::rename(part(&self.path), &self.path).await?;
        Ok(complete)
    }
}

/// The WAV file beside a recording.
struct Audio {
    file: BufWriter<File>,
    n: Samples,
}

impl Audio {
    async fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(create(&part(path)).await?);
        file.write_all(&wav::header(SampleRate::HZ_16000, None)).await?;
        Ok(Self { file, n: Samples::ZERO })
    }

    async fn write(&mut self, pcm: &[i16]) -> io::Result<()> {
        self.n += Samples(pcm.len() as u64);
        let bytes: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        self.file.write_all(&bytes).await
    }

    async fn finish(mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0)).await?;
        self.file.write_all(&wav::header(SampleRate::HZ_16000, Some(self.n))).await?;
        self.file.flush().await
    }
}

async fn write_line(to: &mut BufWriter<File>, line: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    to.write_all(&text).await
}

/// A new file for its owner's eyes only.
async fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).await
}

/// The name a file has until it is whole.
fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_ends_the_recording_and_says_so() {
        let (sender, mut entries) = mpsc::channel(2);
        let lost = Arc::new(AtomicBool::new(false));
        let (windows, audio, gave) = (Windows::default(), Vec::new(), Outcome::default());
        let tape = Tape { entries: Some(sender), lost: lost.clone(), keeps_audio: false, windows, audio, gave };
        let mut taped = RecordedTurnTaker::new(Thresholds::from_ms(0.5, 96, 200), Ending::Silence, tape);
        taped.partial("one", Samples(1));
        taped.partial("two", Samples(2));
        assert!(taped.tape.runs() && !lost.load(Relaxed));
        taped.partial("three", Samples(3));
        assert!(!taped.tape.runs() && lost.load(Relaxed));
        taped.partial("four", Samples(4));
        let texts = std::iter::from_fn(|| entries.try_recv().ok()).map(|entry| match entry {
            Entry::Partial(words) => words.text,
            other => panic!("{other:?}"),
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["one", "two"], "nothing stands behind a gap");
        assert!(entries.is_closed(), "the writer ends");
    }
}
