//! `/v1/audio/voices`: the voices there are, and custom voices: added from a recording, looked at, removed.
//!
//! The shapes are OpenAI's and vLLM-Omni's, which differ in nothing that a client sends: a form with `name`, `audio_sample`,
//! `consent` and, where known, the recording's words as `ref_text`. The voice engine's library checks, keeps and conditions;
//! this module receives, decodes, and decides whose a voice is: a key sees and removes its own, an admin key all of them, and
//! every key may use the operator's, and none may remove them. A voice is added in a task of the server: where the client has gone, or
//! does not wait any longer, it is removed again, so that a client that repeats its request finds the name free.

use super::error::ApiError;
use super::form::{self, LargestFile};
use super::metering::MeteredRequest;
use super::parts::SpeechParts;
use super::upload::UploadReservation;
use crate::assembly::CLUSTER;
use crate::server::access::audit_http::CreatedId;
use crate::server::access::caller::Identity;
use crate::server::edge::client::Client;
use antiphon_audio::decode::{self, DecodeError};
use antiphon_engine_api::tts::{
    Consent, CustomVoice, NewVoice, Recording, Tts, VoiceError, VoiceLibrary, VoiceLimits, VoiceScope,
};
use antiphon_protocol::OPENAI_VOICES;
use antiphon_telemetry::Endpoint;
use antiphon_types::Pcm;
use axum::extract::{DefaultBodyLimit, Extension, Multipart, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

/// The largest recording: a minute of 24-bit stereo at 48 kHz is 17 MB.
const RECORDING: LargestFile = LargestFile { field: "audio_sample", mib: 32, setting: "" };
/// How long a client waits for its voice.
const WAIT: Duration = Duration::from_secs(60);
/// The longest statement of consent, in characters.
const MAX_CONSENT: usize = 2_000;

/// The routes.
pub(super) fn routes() -> Router<Arc<SpeechParts>> {
    let create = post(create).layer(DefaultBodyLimit::max(RECORDING.body_bytes()));
    Router::new().route("/v1/audio/voices", create.get(list)).route("/v1/audio/voices/{id}", get(one).delete(remove))
}

/// `GET /v1/audio/voices`: all voices that the caller may use, the voice sessions begin with, and what the library takes.
/// `data` is OpenAI's list of custom voices, which is not cut into pages.
async fn list(State(speech): State<Arc<SpeechParts>>, identity: Identity) -> Response {
    let setup = speech.sessions.setup();
    let tts = setup.engines.tts.as_ref();
    let custom = visible(tts, identity.voices());
    let fixed = tts.voices();
    let voices: Vec<Value> = fixed
        .iter()
        .map(|voice| match custom.iter().find(|custom| custom.id == voice.id) {
            Some(custom) => described(custom),
            None => json!(voice),
        })
        .chain(custom.iter().filter(|custom| !fixed.iter().any(|voice| voice.id == custom.id)).map(described))
        .collect();
    // The engine replaces an unknown voice with its first one.
    let known = fixed.iter().find(|voice| voice.id == setup.voice).or(fixed.first());
    // The reasons are the operator's affair.
    let library = tts.voice_library();
    let unusable = library.as_ref().filter(|_| identity.voices() == VoiceScope::All).map(|library| library.unusable());
    let mut list = json!({
        "voices": voices,
        "default": known.map_or(&setup.voice, |voice| &voice.id),
        "library": library.map(|library| library.limits()),
        "object": "list",
        "data": custom.iter().map(described).collect::<Vec<_>>(),
        "first_id": custom.first().map(|voice| &voice.id),
        "last_id": custom.last().map(|voice| &voice.id),
        "has_more": false,
    });
    if let Some(unusable) = unusable {
        list["unusable"] = json!(unusable);
    }
    Json(list).into_response()
}

/// `GET /v1/audio/voices/{id}`, or by its name.
async fn one(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    Path(asked): Path<String>,
) -> Result<Response, ApiError> {
    let setup = speech.sessions.setup();
    let tts = setup.engines.tts.as_ref();
    if let Some(custom) = named(visible(tts, identity.voices()), &asked) {
        let mut voice = described(&custom);
        // Whoever sees an upload is its owner or an administrator.
        voice["consent"] = json!(custom.consent);
        return Ok(Json(voice).into_response());
    }
    let fixed = tts.voices().into_iter().find(|voice| voice.id == asked);
    fixed.map(|voice| Json(voice).into_response()).ok_or_else(|| unknown(&asked))
}

/// `DELETE /v1/audio/voices/{id}`, or by its name. What is being spoken is spoken to its end.
async fn remove(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(asked): Path<String>,
) -> Result<Response, ApiError> {
    let tts = speech.sessions.setup().engines.tts.clone();
    let library = library(tts.as_ref())?;
    let Some(voice) = named(visible(tts.as_ref(), identity.voices()), &asked) else {
        if tts.voices().iter().any(|voice| voice.id == asked) {
            return Err(fixed(format!("The voice '{asked}' is the engine's own.")));
        }
        return Err(unknown(&asked));
    };
    library.remove(&voice.id).await?;
    speech.sessions.access.security.act(client, "/v1/audio/voices", identity.owner, "a voice was removed");
    Ok(Json(json!({"id": voice.id, "object": "audio.voice.deleted", "deleted": true})).into_response())
}

/// `POST /v1/audio/voices`: the voice, once the engine speaks with it.
async fn create(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    let metered = MeteredRequest::begin(&speech, Endpoint::Voices);
    let (outcome, response) = match create_from(&speech, identity, client, request).await {
        Ok(response) => ("ok", response),
        Err(error) => (error.outcome(), error.into_response()),
    };
    metered.end(outcome);
    response
}

async fn create_from(
    speech: &SpeechParts,
    identity: Identity,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    let tts = speech.sessions.setup().engines.tts.clone();
    let library = library(tts.as_ref())?;
    let limits = library.limits();
    speech.voices.sent.check(client.network()).map_err(|_| {
        let message = "Too many voices are sent from your address. Try again in a few seconds.";
        ApiError::with(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
    })?;
    check_share(speech, identity, library.as_ref(), &limits)?;
    if speech.voices.adding.available_permits() == 0 {
        return Err(busy());
    }
    let form = Form::read(request, speech).await?;
    let place = speech.voices.adding.clone().try_acquire_owned().map_err(|_| busy())?;
    let _ = speech.voices.sent.failed(client.network());
    let name = form.name.trim().to_lowercase();
    if OPENAI_VOICES.contains(&name.as_str()) || tts.voices().iter().any(|voice| voice.id.to_lowercase() == name) {
        let message = format!("Invalid 'name': '{}' is the name of another voice.", form.name.trim());
        return Err(ApiError::invalid("invalid_value", "name", message));
    }
    let (new, held) = form.decoded(&limits, identity).await?;
    let added = added(speech, library, new, (place, held)).await?;
    speech.sessions.access.security.act(client, "/v1/audio/voices", identity.owner, "a voice was added");
    let mut voice = described(&added);
    voice["consent"] = json!(added.consent);
    let mut response = Json(voice).into_response();
    response.extensions_mut().insert(CreatedId(added.id));
    Ok(response)
}

/// Adds the voice in a task, which outlives a client that goes or waits too long; then what was added is removed again.
async fn added(
    speech: &SpeechParts,
    library: Arc<dyn VoiceLibrary>,
    new: NewVoice,
    held: (OwnedSemaphorePermit, UploadReservation),
) -> Result<CustomVoice, ApiError> {
    let (sender, receiver) = oneshot::channel();
    speech.sessions.setup.tasks.spawn(async move {
        let added = library.add(new).await;
        drop(held);
        if let Err(Ok(unwanted)) = sender.send(added)
            && let Err(error) = library.remove(&unwanted.id).await
        {
            tracing::warn!(voice = unwanted.id, %error, "a voice whose client has gone cannot be removed");
        }
    });
    match timeout(WAIT, receiver).await {
        Ok(Ok(added)) => Ok(added?),
        Ok(Err(_)) => Err(ApiError::failed("The voice could not be added; the operator's log has the details.")),
        Err(_) => Err(ApiError::overloaded("The engine did not take the voice in time. Try again later.")),
    }
}

/// Where there are several keys, one holds half of the voices at most.
fn check_share(
    speech: &SpeechParts,
    identity: Identity,
    library: &dyn VoiceLibrary,
    limits: &VoiceLimits,
) -> Result<(), ApiError> {
    let Some(owner) = identity.owner.filter(|_| speech.sessions.access.keys.current().n_clients() > 1) else {
        return Ok(());
    };
    let owner = owner.to_string();
    let most = limits.max_voices.div_ceil(2);
    let n = library.list().iter().filter(|voice| voice.owner.as_ref() == Some(&owner)).count();
    if n < most || limits.max_voices == 0 {
        return Ok(());
    }
    let message = format!("Your key has {n} voices, and may have {most}: remove one of them.");
    Err(ApiError::invalid("too_many_voices", None, message))
}

/// What a client sends.
#[derive(Debug, Default)]
struct Form {
    name: String,
    audio_sample: Bytes,
    consent: String,
    ref_text: Option<String>,
    language: Option<String>,
    /// The body's share of the memory for uploads.
    held: Option<UploadReservation>,
}

impl Form {
    /// Reads and validates the whole form. Unknown fields are ignored.
    async fn read(request: Request, speech: &SpeechParts) -> Result<Self, ApiError> {
        let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        if media.is_some_and(|media| media.starts_with("application/json")) {
            let message = "Voices are made from recordings here: send multipart/form-data with 'name', 'audio_sample' and \
                           'consent'.";
            return Err(ApiError::invalid("unsupported_type", "type", message));
        }
        let (upload, parts) = form::parts(request, speech, RECORDING).await?;
        let form = Self::fields(parts).await;
        let mut form = form.map_err(|error| form::broken_off(&upload, RECORDING).unwrap_or(error))?;
        form.held = Some(upload.held());
        for (field, is_missing, what) in [
            ("name", form.name.trim().is_empty(), "what the voice is called"),
            ("audio_sample", form.audio_sample.is_empty(), "a recording of the speaker"),
            (
                "consent",
                form.consent.trim().is_empty(),
                "a statement that the speaker agrees to the cloning of the voice",
            ),
        ] {
            if is_missing {
                let message = format!("Missing required parameter: '{field}', {what}.");
                return Err(ApiError::invalid("missing_required_parameter", field, message));
            }
        }
        if form.consent.chars().count() > MAX_CONSENT {
            let message = format!("'consent' holds more than {MAX_CONSENT} characters.");
            return Err(ApiError::invalid("string_above_max_length", "consent", message));
        }
        Ok(form)
    }

    async fn fields(mut parts: Multipart) -> Result<Self, ApiError> {
        let mut form = Self::default();
        while let Some(field) = parts.next_field().await.map_err(|error| form::broken(&error, RECORDING))? {
            match field.name().unwrap_or_default().to_owned().as_str() {
                "audio_sample" => form.audio_sample = form::file(field, RECORDING).await?,
                "name" => form.name = form::value(field, RECORDING).await?,
                "consent" => form.consent = form::value(field, RECORDING).await?,
                "ref_text" => form.ref_text = Some(form::value(field, RECORDING).await?),
                "language" => form.language = Some(form::value(field, RECORDING).await?),
                "type" => {
                    if form::value(field, RECORDING).await?.trim() != "audio_sample" {
                        let message = "Invalid 'type'. Supported values are: 'audio_sample'.";
                        return Err(ApiError::invalid("invalid_value", "type", message));
                    }
                }
                _ => {
                    form::value(field, RECORDING).await?;
                }
            }
        }
        Ok(form)
    }

    /// The voice with its recording decoded, on a thread for such work, and the memory it came in.
    async fn decoded(
        self,
        limits: &VoiceLimits,
        identity: Identity,
    ) -> Result<(NewVoice, UploadReservation), ApiError> {
        let file = self.audio_sample;
        let longest = limits.max_recording();
        let pcm = tokio::task::spawn_blocking(move || decode::read(file, longest))
            .await
            .map_err(|error| ApiError::internal("The reading of the recording", &error))?;
        let pcm: Pcm = pcm.map_err(|error| undecodable(&error, limits))?;
        let new = NewVoice {
            name: self.name,
            language: self.language,
            recording: Recording { pcm },
            transcript: self.ref_text,
            consent: Consent { statement: self.consent, received_at: now() },
            owner: identity.owner.map(|owner| owner.to_string()),
        };
        Ok((new, self.held.expect("a form that was read")))
    }
}

/// The library of the engine that serves new sessions.
fn library(tts: &dyn Tts) -> Result<Arc<dyn VoiceLibrary>, ApiError> {
    tts.voice_library().ok_or_else(|| {
        if tts.name() == CLUSTER {
            let message = "The voices are those of the workers, in the folders of their machines (tts.voices_dir); the hub takes \
                           no recordings.";
            return ApiError::invalid("custom_voices_unsupported", None, message);
        }
        let message = format!(
            "The voices of the engine '{}' are fixed. One that clones voices takes more of them: the operator chooses it with \
             tts.engine = \"speechlm\".",
            tts.name()
        );
        ApiError::invalid("custom_voices_unsupported", None, message)
    })
}

/// The custom voices that a request may see.
fn visible(tts: &dyn Tts, scope: VoiceScope) -> Vec<CustomVoice> {
    let mut voices = tts.voice_library().map(|library| library.list()).unwrap_or_default();
    voices.retain(|voice| voice.is_visible(scope));
    voices
}

/// The one with this id or, where none has it, of this name; of several, the latest.
fn named(voices: Vec<CustomVoice>, asked: &str) -> Option<CustomVoice> {
    let of_id = voices.iter().position(|voice| voice.id == asked);
    let latest = || {
        let of_name = voices.iter().enumerate().filter(|(_, voice)| voice.name == asked);
        of_name.max_by_key(|(_, voice)| voice.created_at).map(|(at, _)| at)
    };
    let at = of_id.or_else(latest)?;
    voices.into_iter().nth(at)
}

/// A custom voice as a client gets it: OpenAI's fields and ours. Its statement of consent is in the answer about one voice only.
fn described(voice: &CustomVoice) -> Value {
    json!({
        "id": voice.id, "object": "audio.voice", "type": "audio_sample", "created_at": voice.created_at, "name": voice.name,
        "language": voice.language, "recording_ms": voice.recording_ms, "note": voice.note, "custom": true,
        "removable": voice.is_uploaded(),
    })
}

fn unknown(asked: &str) -> ApiError {
    let asked: String = asked.chars().filter(|c| !c.is_control()).take(64).collect();
    let message = format!("There is no voice '{asked}', or not any more.");
    ApiError { param: Some("id"), ..ApiError::with(StatusCode::NOT_FOUND, "voice_not_found", message) }
}

fn fixed(message: impl Into<String>) -> ApiError {
    ApiError::with(StatusCode::FORBIDDEN, "voice_fixed", message)
}

fn busy() -> ApiError {
    ApiError::overloaded("Other voices are being added. Try again in a few seconds.")
}

fn undecodable(error: &DecodeError, limits: &VoiceLimits) -> ApiError {
    let plain = ApiError::from(DecodeError::Empty);
    let right = format!(
        "A recording of {} s to {} s is right.",
        limits.min_recording_ms as f64 / 1e3,
        limits.max_recording_ms as f64 / 1e3
    );
    let (code, message) = match error {
        DecodeError::TooLong { .. } => ("audio_too_long", format!("The recording is too long. {right}")),
        DecodeError::Empty => (plain.code, format!("The recording holds no audio. {right}")),
        DecodeError::Broken(_) => ("invalid_audio", error.to_string()),
        DecodeError::Unknown | DecodeError::Codec(_) => ("unsupported_format", error.to_string()),
    };
    ApiError::invalid(code, "audio_sample", message)
}

impl From<VoiceError> for ApiError {
    fn from(error: VoiceError) -> Self {
        let message = format!("{}.", error.to_string().trim_end_matches('.'));
        match error {
            VoiceError::Invalid { field, .. } => Self::invalid("invalid_value", field, message),
            VoiceError::Unknown(id) => unknown(&id),
            VoiceError::Fixed(_) => fixed(message),
            VoiceError::Full(_) => Self::invalid("too_many_voices", None, message),
            VoiceError::Busy(_) => Self::overloaded(message),
            VoiceError::Failed(_) => Self::failed(message),
        }
    }
}

/// Unix seconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, SpeechConfig};
    use crate::server::access::keys::Keys;
    use crate::server::sessions::SessionParts;
    use crate::server::speech::parts::VOICES_AT_ONCE;
    use antiphon_engine_api::Engines;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use antiphon_types::SampleRate;
    use axum::body::Body;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use std::sync::Mutex;

    /// A library whose `add` takes this long.
    struct Slow(Duration, Arc<Mutex<Vec<String>>>);

    impl VoiceLibrary for Slow {
        fn list(&self) -> Vec<CustomVoice> {
            Vec::new()
        }

        fn limits(&self) -> VoiceLimits {
            unreachable!("nobody asks")
        }

        fn add(&self, voice: NewVoice) -> BoxFuture<'static, Result<CustomVoice, VoiceError>> {
            let wait = self.0;
            let added = async move {
                tokio::time::sleep(wait).await;
                let NewVoice { name, consent, owner, .. } = voice;
                let id = "voice_a".into();
                let language = "en".into();
                let consent = Some(consent);
                Ok(CustomVoice { id, name, language, created_at: 0, recording_ms: 0, consent, owner, note: None })
            };
            added.boxed()
        }

        fn remove(&self, id: &str) -> BoxFuture<'static, Result<(), VoiceError>> {
            self.1.lock().expect("no panic").push(id.into());
            async { Ok(()) }.boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_takes_too_long_is_given_up_and_its_voice_removed() {
        let stt = FakeStt::default();
        let llm = FakeLlm::default();
        let tts = FakeTts::default();
        let engines = Engines {
            vad: Arc::new(FakeVad),
            turn: None,
            speaker: None,
            stt: Arc::new(stt),
            llm: Arc::new(llm),
            tts: Arc::new(tts),
        };
        let without_jobs = SpeechConfig { jobs_dir: String::new(), ..SpeechConfig::default() };
        let config = Config { speech: without_jobs, ..Config::default() };
        let sessions = SessionParts::for_tests(config.clone(), Keys::default(), engines);
        let speech = SpeechParts::new(sessions, &config, None);
        for (wait, is_late) in [(WAIT - Duration::from_secs(1), false), (WAIT + Duration::from_secs(1), true)] {
            let removed = Arc::default();
            let library = Arc::new(Slow(wait, Arc::clone(&removed)));
            let new = NewVoice {
                name: "Anna".into(),
                language: None,
                recording: Recording { pcm: Pcm { rate: SampleRate::HZ_24000, samples: Vec::new() } },
                transcript: None,
                consent: Consent { statement: "Yes.".into(), received_at: 0 },
                owner: None,
            };
            let account = speech.uploads.for_json(None);
            let (_, held) = super::super::upload::whole(Body::empty(), account, 1).await.expect("an empty body");
            let place = speech.voices.adding.clone().try_acquire_owned().expect("a place");
            let added = added(&speech, library, new, (place, held)).await;
            assert_eq!(added.as_ref().is_err_and(ApiError::is_busy), is_late, "{added:?}");
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(removed.lock().expect("no panic").len(), usize::from(is_late));
            assert_eq!(speech.voices.adding.available_permits(), VOICES_AT_ONCE);
        }
    }
}
