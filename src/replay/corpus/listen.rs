//! Listens to a session's audio as the hub does, and records the input of its turn-taking.
//!
//! The same detector, recognizer, turn model and turn-taking as in a session, on a clock of samples. Each turn is one
//! utterance of the recognizer, so that its words in a pause are those of all that was said, whatever wait is tried later:
//! they are asked for as a session asks, every quarter of a second and 100 ms into each pause, and come 32 ms later. The
//! turn model is asked at the same moment of each pause and hears the turn so far; its answer comes 48 ms later.

use crate::replay::{LabelledTurn, Labels};
use antiphon_dialog::turn::{Eagerness, Ending, Thresholds, TurnConfig, TurnDetector, TurnTaker, WindowFeatures};
use antiphon_engine_api::stt::{SpeakerState, Stt, SttError, SttOptions, SttUtterance};
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_engine_api::vad::{Vad, VadError};
use antiphon_session::replay_log::{
    End, Entry, Header, Outcome, PartialTranscript, TurnProbability, TurnStart, VERSION, Windows,
};
use antiphon_session::turn_pipeline::TurnPipeline;
use antiphon_types::{Pcm, Samples, SessionId};
use std::collections::VecDeque;

/// Audio of an utterance before its speech and after it, in samples: a session's padding, and the longest pause whose
/// words are asked for.
const BEFORE: u64 = 16 * 300;
const AFTER: u64 = 16 * 1_200;
/// The words are asked for after so much new audio, and so far into a pause.
const EVERY: u64 = 4_000;
const INTO_PAUSE: Samples = Samples(1_600);
/// Samples until the words are there: 32 ms, more than the recognizer needs for the last piece (5 ms, p95 37).
const WORDS_LATE: u64 = 512;
/// Samples until the turn model's answer is there: 48 ms; smart-turn takes about 40 ms on one core.
const JUDGED_LATE: u64 = 768;
/// Windows of a line, as the session has it.
const WINDOWS_A_LINE: usize = 64;

/// What listens: as a session's.
pub struct Detectors<'a> {
    /// Voice activity.
    pub vad: &'a dyn Vad,
    /// What is asked at each pause; `None`: nothing.
    pub turn: Option<&'a dyn TurnModel>,
    /// The recognizer.
    pub stt: &'a dyn Stt,
}

/// Which of them failed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The recognizer.
    #[error(transparent)]
    Stt(#[from] SttError),
    /// The voice activity detector.
    #[error(transparent)]
    Vad(#[from] VadError),
    /// The turn model.
    #[error(transparent)]
    Turn(#[from] TurnModelError),
}

/// The recording of `pcm`, lines of JSON. `name` names the session and its WAV file.
///
/// # Errors
/// When one of the engines fails.
pub async fn listen(name: &str, pcm: &Pcm, labels: &Labels, ears: &Detectors<'_>) -> Result<String, ListenError> {
    let config = TurnConfig::default();
    let thresholds = Thresholds::from_ms(config.threshold, config.min_speech_ms, config.silence_duration_ms);
    let turn = TurnStart { thresholds, ending: Ending::Adaptive(Eagerness::Medium) };
    let header = Header {
        antiphon_replay_log: VERSION,
        hub: env!("CARGO_PKG_VERSION").into(),
        session: SessionId::from(name),
        started_at: "1970-01-01T00:00:00Z".into(),
        dialog: None,
        turn,
        engines: [ears.vad.name(), ears.stt.name(), "none", "none"].map(str::to_owned),
        audio: Some(format!("{name}.wav")),
    };
    let mut ear = Ear {
        pipeline: TurnPipeline::new(ears.vad.open(), TurnTaker::new(turn.thresholds, turn.ending)),
        pauses: TurnDetector::new(Thresholds { silence: Samples(u64::MAX), ..thresholds }),
        asked: None,
        lines: Lines::new(&header),
    };
    let window = ears.vad.window();
    let mut regions: VecDeque<(u64, u64)> = labels.turns.iter().map(region).collect();
    let mut hearing: Option<OpenTranscription> = None;
    let mut speaker = None;
    let mut words: VecDeque<(u64, PartialTranscript)> = VecDeque::new();
    let mut answers: VecDeque<(u64, TurnProbability)> = VecDeque::new();
    for (i, piece) in pcm.samples.chunks_exact(window).enumerate() {
        let start = Samples((i * window) as u64);
        while let Some(words) = due(&mut words, start) {
            ear.pipeline.taker_mut().partial(&words.text, words.audio_end);
            ear.lines.put(&Entry::Partial(words));
        }
        while let Some(answer) = due(&mut answers, start) {
            ear.pipeline.taker_mut().judged(answer.probability, answer.pause_start);
            ear.lines.put(&Entry::TurnProbability(answer));
        }
        if hearing.is_none() && regions.front().is_some_and(|region| start.0 >= region.0) {
            let options = SttOptions { language: Some("en".into()), speaker: speaker.clone(), ..SttOptions::default() };
            let utterance = ears.stt.open(options).await?;
            hearing = Some(OpenTranscription { utterance, n_unseen: 0, since: start });
        }
        let end = start + Samples(window as u64);
        let pause = ear.window(piece)?;
        if let Some(hearing) = &mut hearing {
            if let Some(text) = hearing.push(piece, pause.is_some()).await? {
                words.push_back((end.0 + WORDS_LATE, PartialTranscript { text, audio_end: end }));
            }
            if let (Some(model), Some(pause_start)) = (ears.turn, pause) {
                let from = hearing.since.max(end.saturating_sub(model.span()));
                let probability = model.judge(pcm.samples[from.0 as usize..end.0 as usize].to_vec()).await?;
                answers.push_back((end.0 + JUDGED_LATE, TurnProbability { probability, pause_start }));
            }
        }
        if regions.front().is_some_and(|region| end.0 >= region.1) {
            regions.pop_front();
            words.clear();
            answers.clear();
            if let Some(hearing) = hearing.take() {
                speaker = hearing.finish().await?.or(speaker);
            }
        }
    }
    Ok(ear.lines.finish())
}

/// The first of what comes by `now`; all of it is in the order of its time, in samples.
fn due<T>(coming: &mut VecDeque<(u64, T)>, now: Samples) -> Option<T> {
    coming.front().filter(|(at, _)| *at <= now.0)?;
    coming.pop_front().map(|(_, what)| what)
}

/// Where the utterance of a turn begins and ends, in samples.
fn region(turn: &LabelledTurn) -> (u64, u64) {
    let (from_ms, to_ms) = turn.ends_ms();
    let at = |ms: f64| (ms * 16.0) as u64;
    (at(from_ms).saturating_sub(BEFORE), at(to_ms) + AFTER)
}

/// What hears windows.
struct Ear {
    pipeline: TurnPipeline,
    /// Reports pauses and never ends one.
    pauses: TurnDetector,
    /// The pause whose words were asked for.
    asked: Option<Samples>,
    lines: Lines,
}

impl Ear {
    /// Judges a window; gives where a pause began whose words and end are asked for now.
    fn window(&mut self, pcm: &[i16]) -> Result<Option<Samples>, VadError> {
        let window = self.pipeline.window(pcm, pcm)?;
        self.lines.window(&window.features, window.outcome);
        let WindowFeatures { probability, peak, start, end, .. } = window.features;
        self.pauses.window(probability, peak, start, end);
        let pause = self.pauses.pause(end).filter(|pause| *pause >= INTO_PAUSE);
        let began = pause.map(|pause| end.saturating_sub(pause));
        let asks = began.filter(|_| began != self.asked);
        self.asked = began.or(self.asked);
        Ok(asks)
    }
}

/// An utterance's decoding.
struct OpenTranscription {
    utterance: Box<dyn SttUtterance>,
    /// Where its audio begins.
    since: Samples,
    n_unseen: u64,
}

impl OpenTranscription {
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
    outcome: Outcome,
}

impl Lines {
    fn new(header: &Header) -> Self {
        let mut lines = Self { text: String::new(), n: 0, windows: Windows::default(), outcome: Outcome::default() };
        lines.line(header);
        lines
    }

    fn window(&mut self, heard: &WindowFeatures, outcome: Outcome) {
        if !self.outcome.is_nothing() || self.windows.len() >= WINDOWS_A_LINE {
            self.flush();
        }
        self.windows.push(heard);
        self.outcome = outcome;
    }

    fn put(&mut self, entry: &Entry) {
        self.flush();
        self.line(entry);
        self.n += 1;
    }

    fn flush(&mut self) {
        if !self.windows.is_empty() {
            let windows = std::mem::take(&mut self.windows);
            let outcome = std::mem::take(&mut self.outcome);
            self.line(&Entry::Windows { windows, outcome });
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
