//! The setting of a dialogue: the hub, its scripted engines and the person's words.
//!
//! The recognizer decodes the audio it receives. Each `say` of a script is a tone at its own pitch; the recognizer maps
//! pitches to words and returns as many words as it received of the tone. It cannot decode real speech (`speak`); there the
//! transcripts come from `hears` in the setup.

use super::script::{self, Line, Script, duration, quoted};
use crate::hub::Hub;
use crate::mcp::{self, McpServer};
use antiphon::config::Config;
use antiphon_audio::convert;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::turn::FakeTurnModel;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_engine_api::speaker::{SpeakerModel, SpeakerModelError, SpeakerThresholds};
use antiphon_engine_api::stt::{SpeakerState, Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_engine_api::tts::SpeechRequest;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_engines::vad::Earshot;
use antiphon_types::chat::Finish;
use antiphon_types::{SampleRate, Samples};
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, StreamExt};
use std::collections::VecDeque;
use std::f32::consts::TAU;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running hub and its scripted parts.
pub struct Stage {
    pub hub: Hub,
    pub llm: FakeLlm,
    library: Option<McpServer>,
}

impl Stage {
    /// Starts the hub according to the script's setup.
    pub async fn set(script: &Script, record: Option<&Path>) -> Self {
        let library = match script.set("library").next() {
            Some(_) => Some(mcp::serve().await),
            None => None,
        };
        let mut settings: String = script.set("config").map(|line| format!("{line}\n")).collect();
        if let Some(folder) = record {
            settings += &format!("session.record = {:?}\n", folder.to_str().expect("text"));
        }
        let mut config: Config = toml::from_str(&settings).unwrap_or_else(|error| panic!("{settings}: {error}"));
        config.mcp.allowed_servers.extend(library.as_ref().map(|library| library.url.clone()));
        let llm = model(script);
        let detector: Arc<dyn Vad> = match script.set("detector").next() {
            None => Arc::new(FakeVad),
            Some("earshot") => Arc::new(Earshot),
            Some(other) => panic!("no such detector: {other}"),
        };
        let turn = script.set("turn-model").next().map(|says| says.parse().expect("a probability"));
        let engines = Engines {
            vad: detector,
            turn: turn.map(|says| Arc::new(FakeTurnModel::says(says)) as Arc<dyn TurnModel>),
            speaker: others(script),
            stt: Arc::new(Recognizer::new(script)),
            llm: Arc::new(llm.clone()),
            tts: Arc::new(voice(script)),
        };
        Self { hub: Hub::start(engines, config).await, llm, library }
    }

    /// Replaces `$LIBRARY` by the address of the MCP server.
    pub fn addressed(&self, text: &str) -> String {
        self.library.as_ref().map_or_else(|| text.to_owned(), |library| text.replace("$LIBRARY", &library.url))
    }

    /// Replaces the address of the MCP server by `$LIBRARY`.
    pub fn plain(&self, text: &str) -> String {
        self.library.as_ref().map_or_else(|| text.to_owned(), |library| text.replace(&library.url, "$LIBRARY"))
    }
}

/// `answer` begins an answer, `+` continues it; `model takes 50ms a word`.
fn model(script: &Script) -> FakeLlm {
    let mut answers: Vec<Vec<Result<LlmDelta, String>>> = Vec::new();
    for line in &script.setup {
        match line.word.as_str() {
            "answer" => answers.push(deltas(&line.rest, 0)),
            "+" => {
                let answer = answers.last_mut().expect("an answer to continue");
                let is_call = |delta: &&Result<LlmDelta, String>| matches!(delta, Ok(LlmDelta::ToolCall { .. }));
                let n_calls = answer.iter().filter(is_call).count();
                answer.retain(|delta| !matches!(delta, Ok(LlmDelta::Done { .. })));
                answer.extend(deltas(&line.rest, n_calls));
            }
            _ => {}
        }
    }
    let llm = FakeLlm::default();
    answers.into_iter().for_each(|answer| llm.then(answer));
    match takes(script, "model") {
        Some(delay) => llm.delayed(delay),
        None => llm,
    }
}

/// Parses `"Ten."`, `call weather {"city": "Rome"}` or `fails`.
fn deltas(text: &str, n_calls: usize) -> Vec<Result<LlmDelta, String>> {
    if text == "fails" {
        return vec![Err("scripted failure".into())];
    }
    let Some(call) = text.strip_prefix("call ") else { return words(&quoted(text)) };
    let (name, arguments) = call.split_once(' ').expect("a name and arguments");
    let call_id = format!("call_{n_calls}");
    let delta = LlmDelta::ToolCall { index: n_calls, call_id, name: name.into(), arguments: arguments.into() };
    vec![Ok(delta), Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None })]
}

/// `voice takes 20ms a piece` (of 100 ms), `voice fails on "bad"`.
fn voice(script: &Script) -> FakeTts {
    let voice = FakeTts::default().delayed(takes(script, "voice").unwrap_or_default());
    match fails_on(script, "voice") {
        Some(text) => voice.failing_on(&text),
        None => voice,
    }
}

fn takes(script: &Script, engine: &str) -> Option<Duration> {
    let time = script.set(engine).find_map(|line| line.strip_prefix("takes "));
    time.map(|time| duration(time.split(' ').next().expect("a duration")))
}

fn fails_on(script: &Script, engine: &str) -> Option<String> {
    script.set(engine).find_map(|line| line.strip_prefix("fails on ")).map(quoted)
}

/// `another says "..."`: a speaker model to which these phrases are of another voice than all others.
fn others(script: &Script) -> Option<Arc<dyn SpeakerModel>> {
    let others: Vec<String> = script.set("another").filter_map(|line| line.strip_prefix("says ")).map(quoted).collect();
    let vocabulary = Vocabulary::of(script);
    (!others.is_empty()).then(|| Arc::new(Voices { vocabulary, others }) as Arc<dyn SpeakerModel>)
}

/// See [`others`].
struct Voices {
    vocabulary: Vocabulary,
    others: Vec<String>,
}

impl SpeakerModel for Voices {
    fn name(&self) -> &str {
        "scripted"
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn span(&self) -> Samples {
        Samples(3 * 16_000)
    }

    fn thresholds(&self) -> SpeakerThresholds {
        SpeakerThresholds { same_from: 0.6, other_below: 0.4, far_db: None }
    }

    fn embed(&self, pcm: Arc<[i16]>) -> BoxFuture<'static, Result<Vec<f32>, SpeakerModelError>> {
        let words = self.vocabulary.hear(&pcm);
        let is_other = self.others.iter().any(|other| other.starts_with(&words));
        ready(Ok(if is_other { vec![0.28, 0.96] } else { vec![1.0, 0.0] })).boxed()
    }
}

/// The words of a `say` and the tone that carries them.
#[derive(Clone, Debug, PartialEq)]
struct Phrase {
    text: String,
    hz: f32,
    n_ms: usize,
}

/// The lowest pitch of a phrase, above the hub's voice.
const FIRST_HZ: f32 = 400.0;
const STEP_HZ: f32 = 100.0;
/// The pitch of the hub's voice ([`FakeTts`]).
const HUB_HZ: f32 = 220.0;
/// Amplitude, above the fake detector's threshold.
const PEAK: f32 = 8_000.0;

/// The phrases of a script, each with its pitch.
#[derive(Clone, Default)]
pub struct Vocabulary(Vec<Phrase>);

impl Vocabulary {
    pub fn of(script: &Script) -> Self {
        let mut phrases = Vec::new();
        for line in script.actions.iter().filter(|line| ["say", "give"].contains(&line.word.as_str())) {
            let (time, text) = line.timed();
            let text = quoted(text);
            let n_ms = time.as_millis() as usize;
            if !phrases.iter().any(|known: &Phrase| known.text == text && known.n_ms == n_ms) {
                let hz = FIRST_HZ + STEP_HZ * phrases.len() as f32;
                phrases.push(Phrase { text, hz, n_ms });
            }
        }
        Self(phrases)
    }

    /// The audio of a line at 24 kHz.
    pub fn sound(&self, line: &Line) -> Vec<i16> {
        let (time, text) = line.timed();
        let text = quoted(text);
        let n_ms = time.as_millis() as usize;
        let phrase =
            self.0.iter().find(|phrase| phrase.text == text && phrase.n_ms == n_ms).expect("it is of the script");
        tone(phrase.hz, n_ms)
    }

    /// The words in audio at 16 kHz.
    fn hear(&self, pcm: &[i16]) -> String {
        const FRAME: usize = 320;
        let mut heard: Vec<(&Phrase, usize)> = Vec::new();
        for frame in pcm.chunks(FRAME).filter(|frame| frame.iter().any(|sample| sample.unsigned_abs() > 1_000)) {
            let power = |hz: f32| power(frame, hz);
            let best = self.0.iter().max_by(|a, b| power(a.hz).total_cmp(&power(b.hz)));
            let Some(best) = best.filter(|best| power(best.hz) > power(HUB_HZ)) else { continue };
            match heard.iter_mut().find(|(phrase, _)| *phrase == best) {
                Some((_, n_ms)) => *n_ms += 20,
                None => heard.push((best, 20)),
            }
        }
        // A frame at the border of two tones may match a third.
        let said = heard.iter().filter(|(_, n_ms)| *n_ms >= 60).map(|(phrase, n_ms)| {
            let words: Vec<&str> = phrase.text.split(' ').collect();
            let n = ((n_ms + 40) * words.len() / phrase.n_ms).min(words.len());
            words[..n].join(" ")
        });
        said.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// A tone at 24 kHz.
pub fn tone(hz: f32, n_ms: usize) -> Vec<i16> {
    (0..n_ms * 24).map(|i| (PEAK * (TAU * hz * i as f32 / 24_000.0).sin()) as i16).collect()
}

/// Power of one frequency in a frame at 16 kHz (Goertzel).
fn power(frame: &[i16], hz: f32) -> f32 {
    let factor = 2.0 * (TAU * hz / 16_000.0).cos();
    let mut last = 0.0;
    let mut before = 0.0;
    for &sample in frame {
        (last, before) = (f32::from(sample) + factor * last - before, last);
    }
    last * last + before * before - factor * last * before
}

/// Speech by flite at 24 kHz. Flite runs on threads in real time and therefore on a separate runtime.
pub fn speech(text: &str) -> Vec<i16> {
    let text = text.to_owned();
    let speak = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let flite = antiphon::assembly::tts(&crate::hub::offline()).expect("flite is installed");
            let request = SpeechRequest { text, voice: "rms".into(), ..SpeechRequest::default() };
            let pieces: Vec<_> = flite.speak(request).map(|pcm| pcm.expect("spoken")).collect().await;
            let rate = pieces.first().map_or(SampleRate::HZ_16000, |pcm| pcm.rate);
            let samples: Vec<i16> = pieces.into_iter().flat_map(|pcm| pcm.samples).collect();
            convert(&samples, rate, SampleRate::HZ_24000)
        })
    };
    std::thread::spawn(speak).join().expect("flite speaks")
}

/// The scripted recognizer. See the module.
#[derive(Clone)]
struct Recognizer {
    vocabulary: Vocabulary,
    /// Transcripts for audio it cannot decode.
    hears: Arc<Mutex<VecDeque<String>>>,
    takes: Duration,
    fails_on: Option<String>,
}

impl Recognizer {
    fn new(script: &Script) -> Self {
        Self {
            vocabulary: Vocabulary::of(script),
            hears: Arc::new(Mutex::new(script.set("hears").map(script::quoted).collect())),
            takes: takes(script, "recognizer").unwrap_or_default(),
            fails_on: fails_on(script, "recognizer"),
        }
    }
}

impl Stt for Recognizer {
    fn name(&self) -> &str {
        "scripted"
    }

    fn open(&self, _: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let utterance = Utterance { engine: self.clone(), pcm: Vec::new() };
        ready(Ok(Box::new(utterance) as Box<dyn SttUtterance>)).boxed()
    }
}

struct Utterance {
    engine: Recognizer,
    pcm: Vec<i16>,
}

impl Utterance {
    fn words(&self, ends: bool) -> Result<Transcript, SttError> {
        let mut text = self.engine.vocabulary.hear(&self.pcm);
        if text.is_empty() {
            let mut hears = self.engine.hears.lock().expect("no panic while locked");
            text = if ends { hears.pop_front() } else { hears.front().cloned() }.unwrap_or_default();
        }
        match &self.engine.fails_on {
            Some(bad) if text.contains(bad) => {
                Err(SttError::Engine { message: "scripted failure".into(), source: None })
            }
            _ => Ok(Transcript { text, confidence: Some(1.0), ..Transcript::default() }),
        }
    }
}

impl SttUtterance for Utterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        self.pcm.extend(pcm);
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(self.words(false).ok())).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        ready(self.words(false)).boxed()
    }

    fn learn(self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        let _taken = self.words(true);
        ready(None).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move {
            if !self.engine.takes.is_zero() {
                tokio::time::sleep(self.engine.takes).await;
            }
            self.words(true)
        }
        .boxed()
    }
}
