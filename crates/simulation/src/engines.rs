//! Engines whose every answer has a fate that is drawn from the world's seed: it comes at once, late or never, whole or in part,
//! empty, or as an error of any kind.
//!
//! They keep the contracts of the ports ([`antiphon_engine_api`]), the unpleasant corners included, and count the requests that
//! they serve. A stall of a stage whose port leaves time-outs to the engine ends in an error after up to 40 s, except in worlds
//! with dead engines, whose clients cancel.

use super::probe::{Live, Port, Probe};
use antiphon::replay::Dice;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_engine_api::mcp::{ConnectedServer, Connection, Mcp, McpError};
use antiphon_engine_api::stt::{SpeakerState, Stt, SttError, SttOptions, SttUtterance, TokenLogprob, Transcript};
use antiphon_engine_api::tts::{SpeechRequest, SpokenPart, TextRequest, TextSpeech, Tts, TtsError, Voice, WORDS_AHEAD};
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_engine_api::{Engines, Fault};
use antiphon_types::chat::{ChatRequest, Finish, Message, Usage};
use antiphon_types::mcp::{CallError, RemoteTool, Server};
use antiphon_types::{Pcm, SampleRate, Samples};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const FAULTS: [Fault; 8] = [
    Fault::Auth,
    Fault::Unreachable,
    Fault::Timeout,
    Fault::Overloaded,
    Fault::Refused,
    Fault::BadAnswer,
    Fault::Failed,
    Fault::Unavailable,
];

/// What engines say and hear.
const TEXTS: [&str; 9] = [
    "Yes.",
    "It is **ten** past four, and the train leaves at 16:25 from platform 3.",
    "One. Two! Three? Four; five: six, seven.",
    "Grüße aus Köln, 東京 и Москва 🎉 too.",
    "- first\n- second\n\n1. third\n```code```",
    "A sentence that goes on and on without any mark that would end it so that it must be cut somewhere",
    "  ",
    "Dr. Smith's e-mail is a@b.example, see https://c.example.",
    "Hello there. How are you today? I am well.",
];

/// What the engines of a world are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Temper {
    /// Probability that an answer has a fault.
    pub(super) faults: f64,
    /// Probability that a piece is late.
    pub(super) late: f64,
    /// Some stalls never end.
    pub(super) dead: bool,
    /// The voice takes words as they are written.
    pub(super) takes_words: bool,
    /// There is a turn model.
    pub(super) turn_model: bool,
}

impl Temper {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        Self {
            faults: dice.pick(&[0.0, 0.05, 0.2, 0.5]),
            late: dice.pick(&[0.0, 0.1, 0.4]),
            dead: dice.chance(0.15),
            takes_words: dice.chance(0.3),
            turn_model: dice.chance(0.3),
        }
    }
}

/// The engines of a world.
pub(super) fn engines(probe: &Arc<Probe>, temper: Temper) -> Engines {
    let fate = Fate { probe: probe.clone(), temper };
    Engines {
        vad: Arc::new(FakeVad),
        turn: temper.turn_model.then(|| Arc::new(fate.clone()) as Arc<dyn TurnModel>),
        speaker: None,
        stt: Arc::new(fate.clone()),
        llm: Arc::new(fate.clone()),
        tts: Arc::new(fate),
    }
}

/// The remote tools of a world.
pub(super) fn mcp(probe: &Arc<Probe>, temper: Temper) -> Arc<dyn Mcp> {
    Arc::new(Fate { probe: probe.clone(), temper })
}

/// Every port.
#[derive(Clone)]
struct Fate {
    probe: Arc<Probe>,
    temper: Temper,
}

impl Fate {
    fn draw<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        self.probe.draw(draw)
    }

    fn fails(&self) -> bool {
        self.draw(|dice| dice.chance(self.temper.faults))
    }

    fn fault(&self) -> Fault {
        self.draw(|dice| dice.pick(&FAULTS))
    }

    /// The time of one piece of an answer. One piece in eight of a late engine stalls.
    async fn pause(&self) {
        self.probe.step();
        let temper = self.temper;
        let pause = self.draw(|dice| match dice.chance(temper.late) {
            false => dice.pick(&[Duration::ZERO, Duration::ZERO, Duration::from_millis(1), Duration::from_millis(30)]),
            true if dice.chance(0.125) => dice.ms(40_000),
            true => dice.ms(1_500),
        });
        match pause {
            Duration::ZERO => tokio::task::yield_now().await,
            pause => tokio::time::sleep(pause).await,
        }
        self.probe.step();
    }

    /// Where an answer stalls: for long, and for ever where engines die.
    async fn stall(&self) -> Duration {
        if self.temper.dead && self.draw(|dice| dice.chance(0.5)) {
            self.probe.log(".", "an engine is dead");
            return std::future::pending().await;
        }
        let after = self.draw(|dice| Duration::from_secs(2) + dice.ms(38_000));
        tokio::time::sleep(after).await;
        after
    }

    fn text(&self) -> &'static str {
        self.draw(|dice| dice.pick(&TEXTS))
    }

    fn stt_error(&self) -> SttError {
        let fault = self.fault();
        let message = "on purpose".to_owned();
        match self.draw(|dice| dice.below(8)) {
            0 => SttError::Busy { waiting: 3 },
            1 => SttError::Timeout(Duration::from_secs(1)),
            2 => SttError::Behind(Duration::from_secs(1)),
            3 => SttError::Cancelled,
            4 => SttError::Unavailable(message),
            5 => SttError::Away(message),
            6 => SttError::Remote { fault, message, source: None },
            _ => SttError::Engine { message, source: None },
        }
    }

    fn tts_error(&self) -> TtsError {
        let fault = self.fault();
        let message = "on purpose".to_owned();
        match self.draw(|dice| dice.below(7)) {
            0 => TtsError::Overloaded { waiting: 3 },
            1 => TtsError::Timeout(Duration::from_secs(1)),
            2 => TtsError::NoVoice("There is no voice of this name".into()),
            3 => TtsError::Unavailable(message),
            4 => TtsError::Away(message),
            5 => TtsError::Remote { fault, message, source: None },
            _ => TtsError::Engine { message, source: None },
        }
    }

    fn llm_error(&self) -> LlmError {
        let message = "on purpose".to_owned();
        match self.draw(|dice| dice.below(6)) {
            0 => LlmError::Timeout { what: "first token", after: Duration::from_secs(1) },
            1 => LlmError::Refused { status: self.draw(|dice| dice.pick(&[401, 404, 429, 500])), message },
            2 => LlmError::Transport(message.into()),
            3 => LlmError::Protocol(message),
            4 => LlmError::Away(message),
            _ => LlmError::Unavailable(message),
        }
    }
}

impl Stt for Fate {
    fn name(&self) -> &str {
        "simulated"
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let fate = self.clone();
        let live = self.probe.serve(Port::Stt);
        async move {
            fate.pause().await;
            if fate.fails() {
                if fate.draw(|dice| dice.chance(0.3)) {
                    fate.stall().await;
                }
                return Err(fate.stt_error());
            }
            let utterance = Utterance { fate, _live: live, n_samples: 0, logprobs: options.logprobs };
            Ok(Box::new(utterance) as Box<dyn SttUtterance>)
        }
        .boxed()
    }
}

struct Utterance {
    fate: Fate,
    _live: Live,
    n_samples: usize,
    logprobs: bool,
}

impl Utterance {
    async fn transcript(&self) -> Result<Transcript, SttError> {
        self.fate.pause().await;
        if self.fate.fails() {
            return match self.fate.draw(|dice| dice.below(4)) {
                0 => Ok(Transcript::default()),
                1 => {
                    self.fate.stall().await;
                    Err(SttError::Cancelled)
                }
                _ => Err(self.fate.stt_error()),
            };
        }
        let text = format!("{} {}", self.fate.text().trim(), self.n_samples / 4_000);
        let token = |word: &str| TokenLogprob { token: word.to_owned(), logprob: -0.5 };
        let logprobs = self.logprobs.then(|| text.split_whitespace().map(token).collect());
        let speaker = Some(SpeakerState::Language("en".into()));
        Ok(Transcript { text, logprobs, confidence: Some(0.9), speaker, ..Transcript::default() })
    }
}

impl SttUtterance for Utterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        self.n_samples += pcm.len();
        async move {
            if self.fate.draw(|dice| dice.chance(0.1)) {
                self.fate.pause().await;
            }
            match self.fate.temper.faults > 0.0 && self.fate.draw(|dice| dice.chance(0.005)) {
                true => Err(self.fate.stt_error()),
                false => Ok(()),
            }
        }
        .boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        async move {
            match self.fate.draw(|dice| dice.below(3)) {
                0 => Ok(None),
                _ => self.transcript().await.map(Some),
            }
        }
        .boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.transcript().boxed()
    }

    fn learn(self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        async move {
            self.fate.pause().await;
            Some(SpeakerState::Language("de".into()))
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move { self.transcript().await }.boxed()
    }
}

impl Llm for Fate {
    fn name(&self) -> &str {
        "simulated"
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let fate = self.clone();
        let live = self.probe.serve(Port::Llm);
        check_chat(&request, &fate.probe);
        async_stream::stream! {
            let _live = live;
            let n_parts = fate.draw(|dice| dice.below(4));
            // The part before which it fails.
            let fails_at = fate.fails().then(|| fate.draw(|dice| dice.below(n_parts + 1)));
            for part in 0..=n_parts {
                fate.pause().await;
                if fails_at == Some(part) {
                    match fate.draw(|dice| dice.below(4)) {
                        // It ends without saying so.
                        0 => return,
                        1 => {
                            let after = fate.stall().await;
                            yield Err(LlmError::Timeout { what: "further token", after });
                        }
                        _ => yield Err(fate.llm_error()),
                    }
                    return;
                }
                if part == n_parts {
                    break;
                }
                let calls = !request.tools.is_empty() && fate.draw(|dice| dice.chance(0.4));
                if calls {
                    let tool = &request.tools[fate.draw(|dice| dice.below(request.tools.len()))];
                    let call_id = fate.draw(|dice| dice.pick(&["", "call_1", "call_2"])).to_owned();
                    let index = part;
                    let name = tool.name.clone();
                    yield Ok(LlmDelta::ToolCall { index, call_id, name, arguments: String::new() });
                    let arguments = fate.draw(|dice| dice.pick(&["{\"n\":1}", "{}", "{\"open", ""]));
                    for piece in arguments.split_inclusive(':') {
                        fate.pause().await;
                        let call_id = String::new();
                        let name = String::new();
                        let arguments = piece.to_owned();
                        yield Ok(LlmDelta::ToolCall { index, call_id, name, arguments });
                    }
                } else {
                    for word in fate.text().split_inclusive(' ') {
                        if fate.draw(|dice| dice.chance(0.2)) {
                            fate.pause().await;
                        }
                        yield Ok(LlmDelta::Text(word.to_owned()));
                    }
                }
            }
            let finish = fate.draw(|dice| {
                dice.pick(&[Finish::Stop, Finish::Stop, Finish::Stop, Finish::Length, Finish::ContentFilter, Finish::ToolCalls])
            });
            let usage = fate.draw(|dice| dice.chance(0.5)).then_some(Usage { input_tokens: 10, output_tokens: 20 });
            yield Ok(LlmDelta::Done { finish, usage });
        }
        .boxed()
    }
}

/// What every request to a model must be: each result answers a call before it, and each call has its result.
fn check_chat(request: &ChatRequest, probe: &Probe) {
    let mut open: Vec<&str> = Vec::new();
    for message in &request.messages {
        match message {
            Message::Assistant { tool_calls, .. } => open.extend(tool_calls.iter().map(|call| call.call_id.as_str())),
            Message::Tool { call_id, .. } => match open.iter().position(|id| id == call_id) {
                Some(at) => drop(open.swap_remove(at)),
                None => {
                    probe.violated(format!("the model reads a result of the call {call_id}, which it did not make"))
                }
            },
            Message::System(_) | Message::User(_) | Message::UserParts(_) => {}
        }
    }
    if !open.is_empty() {
        probe.violated(format!("the model reads calls without results: {open:?}"));
    }
}

/// Some words' sound: 15 ms for each character of a chunk.
fn sound(text: &str, rate: SampleRate, probe: &Probe) -> Vec<Pcm> {
    let ms = 15 * text.chars().count().min(60) as u64;
    probe.spoke(ms * 1_000);
    let n = (u64::from(rate.hz()) * ms / 1_000) as usize;
    let samples: Vec<i16> = (0..n).map(|i| if i / 40 % 2 == 0 { 4_000 } else { -4_000 }).collect();
    samples.chunks(rate.hz() as usize / 5).map(|piece| Pcm { rate, samples: piece.to_vec() }).collect()
}

impl Tts for Fate {
    fn name(&self) -> &str {
        "simulated"
    }

    fn voices(&self) -> Vec<Voice> {
        ["tone", "other"].map(|id| Voice { id: id.into(), name: id.into(), language: "en-US".into() }).into()
    }

    fn check_voice(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        if request.text.is_empty() {
            self.probe.violated("a voice is asked to speak an empty chunk".into());
        }
        let fate = self.clone();
        let live = self.probe.serve(Port::Tts);
        async_stream::stream! {
            let _live = live;
            let rate = fate.draw(|dice| dice.pick(&[SampleRate::HZ_24000, SampleRate::HZ_16000]));
            let pieces = sound(&request.text, rate, &fate.probe);
            let fails_at = fate.fails().then(|| fate.draw(|dice| dice.below(pieces.len() + 1)));
            for (at, piece) in pieces.into_iter().map(Some).chain([None]).enumerate() {
                fate.pause().await;
                if fails_at == Some(at) {
                    match fate.draw(|dice| dice.below(4)) {
                        // It says less than it should, or nothing.
                        0 => return,
                        1 => yield Err(TtsError::Timeout(fate.stall().await)),
                        _ => yield Err(fate.tts_error()),
                    }
                    return;
                }
                if let Some(piece) = piece {
                    yield Ok(piece);
                }
            }
        }
        .boxed()
    }

    fn speak_text(&self, _: TextRequest) -> Option<TextSpeech> {
        if !self.temper.takes_words {
            return None;
        }
        let (words, mut pieces) = mpsc::channel::<String>(WORDS_AHEAD);
        let fate = self.clone();
        let live = self.probe.serve(Port::Tts);
        let speech = async_stream::stream! {
            let _live = live;
            let names_pieces = fate.draw(|dice| dice.chance(0.8));
            let n_before_failure = fate.fails().then(|| fate.draw(|dice| dice.below(12)));
            let mut n = 0;
            while let Some(word) = pieces.recv().await {
                fate.pause().await;
                if n_before_failure == Some(n) {
                    match fate.draw(|dice| dice.below(3)) {
                        // It takes no more words, and speaks no more.
                        0 => yield Err(TtsError::Engine { message: "it closed".into(), source: None }),
                        1 => yield Err(TtsError::Timeout(fate.stall().await)),
                        _ => yield Err(fate.tts_error()),
                    }
                    return;
                }
                n += 1;
                if names_pieces {
                    yield Ok(SpokenPart::Pieces(1));
                }
                for pcm in sound(&word, SampleRate::HZ_24000, &fate.probe) {
                    yield Ok(SpokenPart::Audio(pcm));
                }
            }
        };
        Some(TextSpeech { words, speech: speech.boxed() })
    }
}

impl TurnModel for Fate {
    fn name(&self) -> &str {
        "simulated"
    }

    fn span(&self) -> Samples {
        Samples(16_000)
    }

    fn judge(&self, _: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        let fate = self.clone();
        let live = self.probe.serve(Port::Turn);
        async move {
            let _live = live;
            fate.pause().await;
            if fate.fails() {
                return match fate.draw(|dice| dice.below(4)) {
                    0 => Err(TurnModelError::Busy { waiting: 1 }),
                    1 => Err(TurnModelError::Away("on purpose".into())),
                    2 => {
                        fate.stall().await;
                        Err(TurnModelError::Unavailable("on purpose".into()))
                    }
                    _ => Err(TurnModelError::Failed("on purpose".into())),
                };
            }
            Ok(fate.draw(|dice| dice.share() as f32))
        }
        .boxed()
    }
}

impl Mcp for Fate {
    fn connect(&self, _: Server) -> BoxFuture<'static, Result<ConnectedServer, McpError>> {
        let fate = self.clone();
        let live = self.probe.serve(Port::Mcp);
        async move {
            fate.pause().await;
            if fate.fails() {
                return Err(match fate.draw(|dice| dice.below(3)) {
                    0 => McpError::Timeout(fate.stall().await),
                    1 => McpError::Unusable("on purpose".into()),
                    _ => McpError::TooMuch(128),
                });
            }
            let schema = json!({"type": "object", "properties": {}});
            let tool = |name: &str, read_only: bool| RemoteTool {
                name: name.into(),
                description: String::new(),
                input_schema: schema.clone().into(),
                annotations: Some(json!({"readOnlyHint": read_only})),
            };
            let tools = vec![tool("look", true), tool("change", false)];
            Ok((Arc::new(Tools { fate, _live: live }) as Arc<dyn Connection>, tools))
        }
        .boxed()
    }
}

/// A connection to a server of tools.
struct Tools {
    fate: Fate,
    _live: Live,
}

impl Connection for Tools {
    fn call(&self, _: String, _: Map<String, Value>) -> BoxFuture<'static, Result<String, CallError>> {
        let fate = self.fate.clone();
        let live = self.fate.probe.serve(Port::Mcp);
        async move {
            let _live = live;
            fate.pause().await;
            if fate.fails() {
                return Err(match fate.draw(|dice| dice.below(3)) {
                    0 => CallError::Protocol { code: -32_602, message: "on purpose".into() },
                    1 => CallError::Http(format!("after {:?}", fate.stall().await)),
                    _ => CallError::Tool("on purpose".into()),
                });
            }
            Ok("shelf 7".into())
        }
        .boxed()
    }
}
