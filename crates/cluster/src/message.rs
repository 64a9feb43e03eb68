//! The payloads that are JSON: requests, answers, failures, adverts and descriptions.
//!
//! Fields may be added within a major version: unknown fields are ignored, and new ones have defaults, so that two builds
//! that differ by a minor version work together. Everything that arrives is untrusted.

use antiphon_engine_api::Fault;
use antiphon_engine_api::stt::{SpeakerState, SttError, SttOptions, Transcript};
use antiphon_engine_api::tts::{Repeats, SpeechRequest, TtsError, Voice};
use antiphon_engine_api::turn::TurnModelError;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The protocol of this build: what frames and payloads mean.
pub const PROTOCOL: Protocol = Protocol { major: 1, minor: 0 };

/// The longest text of a failure that is passed on.
const MAX_MESSAGE_CHARS: usize = 2_000;

/// A version of the protocol. Builds with the same major version work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Protocol {
    /// Changed where an older build would misunderstand a newer one.
    pub major: u16,
    /// Changed where something was added.
    pub minor: u16,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A stage that workers serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Speech to text.
    Stt,
    /// Text to speech.
    Tts,
    /// The turn model.
    Turn,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 3] = [Self::Stt, Self::Tts, Self::Turn];

    /// The stage's name, as in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stt => "stt",
            Self::Tts => "tts",
            Self::Turn => "turn",
        }
    }

    /// The stage of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Opens an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) protocol: Protocol,
    /// The hub's incarnation.
    pub(crate) hub: String,
    #[serde(flatten)]
    pub(crate) request: Request,
}

/// What is asked of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub(crate) enum Request {
    Stt(SttRequest),
    Tts(TtsRequest),
    Turn {},
}

impl Request {
    /// It may wait for room, which it leaves to others until then.
    pub(crate) fn is_queued(&self) -> bool {
        match self {
            Self::Stt(request) => request.queued,
            Self::Tts(request) => request.queued,
            Self::Turn {} => false,
        }
    }
    pub(crate) fn stage(&self) -> Stage {
        match self {
            Self::Stt(_) => Stage::Stt,
            Self::Tts(_) => Stage::Tts,
            Self::Turn {} => Stage::Turn,
        }
    }
}

/// The options of an utterance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SttRequest {
    language: Option<String>,
    prompt: Option<String>,
    speaker: Option<SpeakerState>,
    logprobs: bool,
    segments: bool,
    temperature: Option<f32>,
    translate: bool,
    /// It may wait for room, which it leaves to others until then.
    pub(crate) queued: bool,
}

impl SttRequest {
    pub(crate) fn of(options: &SttOptions) -> Self {
        Self {
            language: options.language.clone(),
            prompt: options.prompt.clone(),
            speaker: options.speaker.clone(),
            logprobs: options.logprobs,
            segments: options.segments,
            temperature: options.temperature,
            translate: options.translate,
            queued: false,
        }
    }

    /// The options for a worker's recognizer.
    pub(crate) fn options(self) -> SttOptions {
        SttOptions {
            language: self.language,
            prompt: self.prompt,
            speaker: self.speaker,
            logprobs: self.logprobs,
            segments: self.segments,
            temperature: self.temperature,
            translate: self.translate,
            ..SttOptions::default()
        }
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A chunk of text to speak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TtsRequest {
    pub(crate) text: String,
    pub(crate) voice: String,
    pub(crate) speed: f32,
    unplayed_ms: Option<u64>,
    pub(crate) seed: Option<u64>,
    /// The text that the chunk belongs to, by its hub's number, and its place there.
    pub(crate) passage: Option<(u64, u32)>,
    instructions: Option<String>,
    immediate: bool,
    /// Samples at the beginning that were heard already: the worker makes and drops them.
    pub(crate) skip_samples: u64,
    /// It may wait for room, which it leaves to others until then.
    pub(crate) queued: bool,
}

impl TtsRequest {
    pub(crate) fn of(request: &SpeechRequest) -> Self {
        Self {
            text: request.text.clone(),
            voice: request.voice.clone(),
            speed: request.speed,
            unplayed_ms: request.unplayed.map(|unplayed| u64::try_from(unplayed.as_millis()).unwrap_or(u64::MAX)),
            seed: request.seed,
            passage: request.passage.map(|passage| (passage.text(), passage.place())),
            instructions: request.instructions.clone(),
            immediate: request.immediate,
            skip_samples: 0,
            queued: false,
        }
    }

    /// The same request, of a listener who has this much sound ahead by now.
    pub(crate) fn heard_on(&mut self, unplayed: Duration) {
        self.unplayed_ms = Some(u64::try_from(unplayed.as_millis()).unwrap_or(u64::MAX));
    }

    /// The request for the worker's own engine, without its passage, which the worker sets.
    pub(crate) fn request(&self) -> SpeechRequest {
        SpeechRequest {
            text: self.text.clone(),
            voice: self.voice.clone(),
            speed: if self.speed.is_finite() { self.speed.clamp(0.25, 4.0) } else { 1.0 },
            unplayed: self.unplayed_ms.map(Duration::from_millis),
            seed: self.seed,
            instructions: self.instructions.clone(),
            immediate: self.immediate,
            ..SpeechRequest::default()
        }
    }
}

/// A worker serves the attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Acceptance {
    /// How far the same request gives the same speech on any worker with this model.
    pub(crate) repeats: Repeats,
}

/// A worker has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Busy {
    pub(crate) is_draining: bool,
    /// Requests under way there.
    pub(crate) in_flight: usize,
}

/// An answer to a request on an utterance or a pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Partial {
        request: u32,
        transcript: Option<Transcript>,
    },
    /// A provisional or final transcript.
    Transcript {
        request: u32,
        transcript: Transcript,
    },
    /// A provisional or partial transcript could not be made; the utterance goes on.
    NoTranscript {
        request: u32,
        failure: Failure,
    },
    Learnt {
        request: u32,
        speaker: Option<SpeakerState>,
    },
    Probability {
        probability: f32,
    },
}

/// An engine's error, on its way to the hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
}

/// The kind of an engine's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    Overloaded,
    Timeout,
    NoVoice,
    Unavailable,
    Auth,
    Unreachable,
    Refused,
    BadAnswer,
    #[serde(other)]
    Failed,
}

impl FailureKind {
    fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::Auth => Self::Auth,
            Fault::Unreachable | Fault::BrokenOff => Self::Unreachable,
            Fault::Timeout => Self::Timeout,
            Fault::Overloaded => Self::Overloaded,
            Fault::Refused => Self::Refused,
            Fault::BadAnswer => Self::BadAnswer,
            Fault::Failed => Self::Failed,
            Fault::Unavailable => Self::Unavailable,
        }
    }

    /// Whether another worker is asked: the engine failed or cannot be reached. Not after a timeout, since the caller would wait
    /// twice as long; not after a wrong key or a bad answer, which the operator has to see.
    pub(crate) fn is_of_worker(self) -> bool {
        matches!(self, Self::Failed | Self::Unavailable | Self::Unreachable)
    }

    fn fault(self) -> Fault {
        match self {
            Self::Auth => Fault::Auth,
            Self::Unreachable => Fault::Unreachable,
            Self::Timeout => Fault::Timeout,
            Self::Overloaded => Fault::Overloaded,
            Self::Refused => Fault::Refused,
            Self::BadAnswer => Fault::BadAnswer,
            Self::Failed | Self::NoVoice => Fault::Failed,
            Self::Unavailable => Fault::Unavailable,
        }
    }
}

impl Failure {
    fn new(kind: FailureKind, error: &dyn std::error::Error) -> Self {
        let message: String = antiphon_telemetry::with_causes(error).chars().take(MAX_MESSAGE_CHARS).collect();
        Self { kind, message }
    }

    pub(crate) fn of_stt(error: &SttError) -> Self {
        let kind = match error {
            SttError::Busy { .. } | SttError::Behind(_) => FailureKind::Overloaded,
            SttError::Timeout(_) => FailureKind::Timeout,
            SttError::NoRecognizer | SttError::Unavailable(_) | SttError::Away(_) => FailureKind::Unavailable,
            SttError::Remote { fault, .. } => FailureKind::of_fault(*fault),
            SttError::Cancelled | SttError::Engine { .. } => FailureKind::Failed,
        };
        Self::new(kind, error)
    }

    pub(crate) fn of_tts(error: &TtsError) -> Self {
        let kind = match error {
            TtsError::Overloaded { .. } => FailureKind::Overloaded,
            TtsError::Timeout(_) => FailureKind::Timeout,
            TtsError::NoVoice(_) => FailureKind::NoVoice,
            TtsError::Unavailable(_) | TtsError::Away(_) => FailureKind::Unavailable,
            TtsError::Remote { fault, .. } => FailureKind::of_fault(*fault),
            TtsError::Engine { .. } => FailureKind::Failed,
        };
        Self::new(kind, error)
    }

    pub(crate) fn of_turn(error: &TurnModelError) -> Self {
        let kind = match error {
            TurnModelError::Busy { .. } => FailureKind::Overloaded,
            TurnModelError::Unavailable(_) | TurnModelError::Away(_) => FailureKind::Unavailable,
            TurnModelError::Failed(_) => FailureKind::Failed,
        };
        Self::new(kind, error)
    }

    /// The same failure, with its message cut to the longest length that is passed on.
    pub(crate) fn shortened(mut self) -> Self {
        if let Some((at, _)) = self.message.char_indices().nth(MAX_MESSAGE_CHARS) {
            self.message.truncate(at);
        }
        self
    }

    /// The error of the hub's port; `worker` is for the log.
    pub(crate) fn stt(self, worker: &str) -> SttError {
        let message = format!("on the worker {worker}: {}", self.message);
        SttError::Remote { fault: self.kind.fault(), message, source: None }
    }

    /// The error of the hub's port; `worker` is for the log.
    pub(crate) fn tts(self, worker: &str) -> TtsError {
        if self.kind == FailureKind::NoVoice {
            return TtsError::NoVoice(self.message);
        }
        let message = format!("on the worker {worker}: {}", self.message);
        TtsError::Remote { fault: self.kind.fault(), message, source: None }
    }

    /// The error of the hub's port; `worker` is for the log.
    pub(crate) fn turn(self, worker: &str) -> TurnModelError {
        TurnModelError::Failed(format!("on the worker {worker}: {}", self.message))
    }
}

/// What a worker says each 250 ms and when its load changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerAdvert {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its incarnation: one run of a worker process.
    pub worker: String,
    /// Its name, which survives a restart.
    pub name: String,
    /// Version of the program.
    pub build: String,
    /// Digest of its [`Description`]; another digest is another description.
    pub description: String,
    /// It finishes what it has and takes nothing more.
    #[serde(default)]
    pub is_draining: bool,
    /// Its clock: milliseconds since 1970.
    #[serde(default)]
    pub clock_ms: u64,
    /// How long it has run, in milliseconds.
    #[serde(default)]
    pub up_ms: u64,
    /// The load of each stage that it serves. Stages that this build does not know are left out.
    #[serde(default, deserialize_with = "known_stages")]
    pub stages: Vec<StageLoad>,
}

fn known_stages<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<StageLoad>, D::Error> {
    let stages = Vec::<serde_json::Value>::deserialize(from)?;
    let known = stages.into_iter().filter_map(|stage| serde_json::from_value::<StageLoad>(stage).ok());
    Ok(known.map(StageLoad::bounded).collect())
}

/// More slots or requests than a worker can have.
const MAX_COUNT: usize = 1_000_000;

impl StageLoad {
    /// The same load, with counts limited so that sums cannot overflow.
    fn bounded(mut self) -> Self {
        self.slots = self.slots.min(MAX_COUNT);
        self.in_flight = self.in_flight.min(MAX_COUNT);
        self
    }
}

/// The model and the load of a stage of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageLoad {
    /// The stage.
    pub stage: Stage,
    /// The model's name.
    #[serde(default)]
    pub model: String,
    /// Digest of what the model is made of. Workers with one model name and different fingerprints do not work together.
    #[serde(default)]
    pub fingerprint: String,
    /// Requests that it serves at the same time; more of them wait there.
    pub slots: usize,
    /// Requests accepted and not finished.
    #[serde(default)]
    pub in_flight: usize,
    /// How long a slot serves a request: a moving average in milliseconds, 0 before the first.
    #[serde(default)]
    pub service_ms: f32,
    /// Estimated wait of a request that arrives now, in milliseconds.
    #[serde(default)]
    pub wait_ms: f32,
    /// Rate of the audio it takes or makes, in Hz; 0 while it is not known.
    #[serde(default)]
    pub rate_hz: u32,
}

/// What a worker serves. It does not change during a run, so it is fetched once and not repeated in adverts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The stages.
    pub stages: Vec<StageDescription>,
}

impl Description {
    /// Identifies it in adverts.
    pub(crate) fn digest(&self) -> String {
        hex(&Sha256::digest(to_json(self))[..8])
    }

    /// The description of a stage.
    pub(crate) fn stage(&self, stage: Stage) -> Option<&StageDescription> {
        self.stages.iter().find(|described| described.stage == stage)
    }
}

/// A stage as a worker serves it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageDescription {
    /// The stage.
    pub stage: Stage,
    /// The engine's name, such as "kokoro".
    pub engine: String,
    /// The model's name: that of the registry where it has one, else the engine's.
    pub model: String,
    /// Text to speech: the voices, default first.
    #[serde(default)]
    pub voices: Vec<Voice>,
    /// Text to speech: what is read as something else than words, such as "[laugh]".
    #[serde(default)]
    pub marks: Vec<String>,
    /// Speech to text: it translates to English.
    #[serde(default)]
    pub translates: bool,
    /// Speech to text: it detects the language spoken.
    #[serde(default)]
    pub detects_language: bool,
    /// Speech to text: it takes recordings in stretches of nearly 30 s, whether times are requested or not.
    #[serde(default)]
    pub takes_long_stretches: bool,
    /// Speech to text: the codes of the languages it transcribes, where that is known.
    #[serde(default)]
    pub languages: Option<Vec<String>>,
    /// Turn model: samples at 16 kHz that it considers.
    #[serde(default)]
    pub span_samples: u64,
}

/// What a hub says each second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HubAdvert {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its incarnation.
    pub hub: String,
    /// Its name.
    pub name: String,
    /// Version of the program.
    pub build: String,
    /// It finishes what it has and takes nothing more.
    #[serde(default)]
    pub is_draining: bool,
    /// Its clock: milliseconds since 1970.
    #[serde(default)]
    pub clock_ms: u64,
    /// How long it has run, in milliseconds.
    #[serde(default)]
    pub up_ms: u64,
    /// Sessions that it serves.
    #[serde(default)]
    pub sessions: usize,
    /// Sessions that it serves at most.
    #[serde(default)]
    pub max_sessions: usize,
    /// It wants to receive the others' news: a page watches there.
    #[serde(default)]
    pub is_watching: bool,
}

/// The version alone, of an advert whose other fields this build may not know.
#[derive(Debug, Deserialize)]
pub(crate) struct AdvertVersion {
    pub(crate) protocol: Protocol,
    #[serde(default)]
    pub(crate) name: String,
}

/// This machine's clock, in milliseconds since 1970.
pub(crate) fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// JSON of one of the types above, which cannot fail.
pub(crate) fn to_json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("maps have text keys, numbers are finite").into()
}

/// A payload of JSON.
pub(crate) fn of_json<T: DeserializeOwned>(payload: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(payload)
}

/// Reads a payload as each of the types, for fuzzing.
#[cfg(feature = "testing")]
pub(crate) fn read_any(payload: &[u8]) {
    let _ = of_json::<Open>(payload).map(|open| match open.request {
        Request::Tts(request) => drop(request.request()),
        Request::Stt(request) => drop(request.options()),
        Request::Turn {} => {}
    });
    let _ = (of_json::<Answer>(payload), of_json::<Failure>(payload), of_json::<Busy>(payload));
    let _ = (of_json::<WorkerAdvert>(payload), of_json::<HubAdvert>(payload), of_json::<Description>(payload));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_of_another_minor_version_is_understood() {
        let older = r#"{"protocol":{"major":1,"minor":0},"hub":"h","stage":"tts","text":"Hi","voice":"v","speed":1.0}"#;
        let open: Open = of_json(older.as_bytes()).unwrap();
        let Request::Tts(request) = open.request else { panic!("{open:?}") };
        assert_eq!((request.text.as_str(), request.skip_samples), ("Hi", 0));
        let newer =
            r#"{"protocol":{"major":1,"minor":9},"hub":"h","later":[1],"stage":"stt","language":"en","more":{}}"#;
        let open: Open = of_json(newer.as_bytes()).unwrap();
        assert_eq!(open.request, Request::Stt(SttRequest { language: Some("en".into()), ..SttRequest::default() }));
    }

    #[test]
    fn a_failure_of_an_unknown_kind_is_a_failure() {
        let failure: Failure = of_json(br#"{"kind":"melted","message":"m"}"#).unwrap();
        assert_eq!(failure.kind, FailureKind::Failed);
    }

    #[test]
    fn a_request_that_an_engine_refuses_or_is_late_with_goes_to_no_other_worker() {
        let of_worker = |fault| FailureKind::of_fault(fault).is_of_worker();
        for fault in [Fault::Failed, Fault::Unavailable, Fault::Unreachable, Fault::BrokenOff] {
            assert!(of_worker(fault), "{fault:?}");
        }
        for fault in [Fault::Refused, Fault::Auth, Fault::BadAnswer, Fault::Overloaded, Fault::Timeout] {
            assert!(!of_worker(fault), "{fault:?}");
        }
        assert!(!FailureKind::NoVoice.is_of_worker());
    }

    #[test]
    fn what_is_no_number_does_not_reach_an_engine() {
        let request = TtsRequest { speed: f32::NAN, ..TtsRequest::default() };
        assert_eq!(request.request().speed, 1.0);
    }
}
