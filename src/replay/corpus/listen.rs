//! Listens to a session's audio as the hub does, and records what its turn-taking is told.
//!
//! The same detector, recognizer and turn-taking as in a session, on a clock of samples. Each turn is one utterance of
//! the recognizer, so that its words in a pause are those of all that was said, whatever wait is tried later: they are
//! asked for as a session asks, every quarter of a second and 100 ms into each pause, and come two windows later.

use crate::audio::Pitch;
use crate::replay::Labels;
use crate::session::recording::{End, Entry, Header, Outcome, TurnStart, VERSION, Windows, Words};
use crate::stt::{SpeakerState, Stt, SttError, SttOptions, SttUtterance};
use crate::turn::{Eagerness, Ending, Heard, Thresholds, TurnConfig, TurnDetector, TurnTaker};
use crate::units::{Pcm, Samples, SessionId};
use crate::vad::{Vad, VadStream};
use std::collections::VecDeque;

/// Audio of an utterance before its speech and after it, in samples: a session's padding, and the longest pause whose
/// words are asked for.
const BEFORE: u64 = 16 * 300;
const AFTER: u64 = 16 * 1_200;
/// The words are asked for after so much new audio, and so far into a pause.
const EVERY: u64 = 4_000;
const INTO_PAUSE: Samples = Samples(1_600);
/// Windows until the words are there: 32 ms, more than the recognizer needs for the last piece (5 ms, p95 37).
const LATE: u64 = 2;
/// Windows of a line, as the session has it.
const WINDOWS_A_LINE: usize = 64;

/// The recording of `pcm`, lines of JSON. `name` names the session and its WAV file.
///
/// # Errors
/// When the recognizer fails.
pub async fn listen(name: &str, pcm: &Pcm, labels: &Labels, vad: &dyn Vad, stt: &dyn Stt) -> Result<String, SttError> {
    let config = TurnConfig::default();
    let thresholds = Thresholds::from_ms(config.threshold, config.min_speech_ms, config.silence_duration_ms);
    let turn = TurnStart { thresholds, ending: Ending::Adaptive(Eagerness::Medium) };
    let header = Header {
        antiphon_recording: VERSION,
        hub: env!("CARGO_PKG_VERSION").into(),
        session: SessionId::from(name),
        started_at: "1970-01-01T00:00:00Z".into(),
        dialog: None,
        turn,
        engines: [vad.name(), stt.name(), "none", "none"].map(str::to_owned),
        audio: Some(format!("{name}.wav")),
    };
    let mut ear = Ear {
        taker: TurnTaker::new(turn.thresholds, turn.ending),
        pauses: TurnDetector::new(Thresholds { silence: Samples(u64::MAX), ..thresholds }),
        vad: vad.open(),
        pitch: Pitch::default(),
        asked: None,
        lines: Lines::new(&header),
    };
    let window = vad.window();
    let mut regions: VecDeque<(u64, u64)> = labels.turns.iter().map(|turn| region(turn.ends_ms())).collect();
    let mut hearing: Option<Hearing> = None;
    let mut speaker = None;
    let mut coming: VecDeque<(u64, Words)> = VecDeque::new();
    for (i, piece) in pcm.samples.chunks_exact(window).enumerate() {
        let (i, start) = (i as u64, Samples((i * window) as u64));
        while coming.front().is_some_and(|(due, _)| *due <= i) {
            let (_, words) = coming.pop_front().expect("it was looked at");
            ear.taker.partial(&words.text, words.heard_to);
            ear.lines.put(&Entry::Partial(words));
        }
        if hearing.is_none() && regions.front().is_some_and(|region| start.0 >= region.0) {
            let options = SttOptions { language: Some("en".into()), speaker: speaker.clone(), ..SttOptions::default() };
            hearing = Some(Hearing { utterance: stt.open(options).await?, n_unseen: 0 });
        }
        let end = start + Samples(window as u64);
        let asks = ear.window(piece, start, end);
        if let Some(hearing) = &mut hearing
            && let Some(text) = hearing.push(piece, asks).await?
        {
            coming.push_back((i + LATE, Words { text, heard_to: end }));
        }
        if regions.front().is_some_and(|region| end.0 >= region.1) {
            regions.pop_front();
            coming.clear();
            if let Some(hearing) = hearing.take() {
                speaker = hearing.finish().await?.or(speaker);
            }
        }
    }
    Ok(ear.lines.finish())
}

/// Where the utterance of a turn begins and ends, in samples.
fn region((from_ms, to_ms): (f64, f64)) -> (u64, u64) {
    let at = |ms: f64| (ms * 16.0) as u64;
    (at(from_ms).saturating_sub(BEFORE), at(to_ms) + AFTER)
}

/// What hears windows.
struct Ear {
    taker: TurnTaker,
    /// Tells pauses without ever ending one.
    pauses: TurnDetector,
    vad: Box<dyn VadStream>,
    pitch: Pitch,
    /// The pause whose words were asked for.
    asked: Option<Samples>,
    lines: Lines,
}

impl Ear {
    /// Judges a window; says whether the words are wanted.
    fn window(&mut self, pcm: &[i16], start: Samples, end: Samples) -> bool {
        let probability = self.vad.probability(pcm).unwrap_or(0.0);
        let peak = pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
        let tone = self.pitch.window(pcm);
        let heard = Heard { probability, peak, level_db: tone.level_db, pitch_hz: tone.pitch_hz, start, end };
        let gave = Outcome::of_window(&mut self.taker, heard);
        self.lines.window(&heard, gave);
        self.pauses.window(probability, peak, start, end);
        let pause = self.pauses.pause(end).filter(|pause| *pause >= INTO_PAUSE);
        let began = pause.map(|pause| end.saturating_sub(pause));
        let asks = began.is_some() && began != self.asked;
        self.asked = began.or(self.asked);
        asks
    }
}

/// An utterance's decoding.
struct Hearing {
    utterance: Box<dyn SttUtterance>,
    n_unseen: u64,
}

impl Hearing {
    /// More audio; the words, when it is time for them.
    async fn push(&mut self, pcm: &[i16], asks: bool) -> Result<Option<String>, SttError> {
        self.utterance.push(pcm.to_vec()).await?;
        self.n_unseen += pcm.len() as u64;
        if !asks && self.n_unseen < EVERY {
            return Ok(None);
        }
        self.n_unseen = 0;
        let words = self.utterance.partial().await?;
        Ok(words.map(|words| words.text).filter(|text| !text.is_empty()))
    }

    async fn finish(self) -> Result<Option<SpeakerState>, SttError> {
        Ok(self.utterance.finish().await?.speaker)
    }
}

/// The lines of a recording.
struct Lines {
    text: String,
    n: u64,
    windows: Windows,
    gave: Outcome,
}

impl Lines {
    fn new(header: &Header) -> Self {
        let mut lines = Self { text: String::new(), n: 0, windows: Windows::default(), gave: Outcome::default() };
        lines.line(header);
        lines
    }

    fn window(&mut self, heard: &Heard, gave: Outcome) {
        if !self.gave.is_nothing() || self.windows.len() >= WINDOWS_A_LINE {
            self.flush();
        }
        self.windows.push(heard);
        self.gave = gave;
    }

    fn put(&mut self, entry: &Entry) {
        self.flush();
        self.line(entry);
        self.n += 1;
    }

    fn flush(&mut self) {
        if !self.windows.is_empty() {
            let (windows, gave) = (std::mem::take(&mut self.windows), std::mem::take(&mut self.gave));
            self.line(&Entry::Windows { windows, gave, audio: Vec::new() });
            self.n += 1;
        }
    }

    fn line(&mut self, line: &impl serde::Serialize) {
        self.text += &serde_json::to_string(line).expect("lines have text for keys");
        self.text.push('\n');
    }

    fn finish(mut self) -> String {
        self.flush();
        self.line(&Entry::End(End { complete: true, n_lines: self.n }));
        self.text
    }
}
