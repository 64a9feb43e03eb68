//! The speech API: OpenAI's `/v1/audio/speech`, `/v1/audio/transcriptions`, `/v1/audio/voices` and `/v1/models`, and jobs for
//! long texts.
//!
//! `server` mounts [`routes`] behind its checks of keys, hosts and origins. Requests use the engines of the sessions through
//! the same ports, and wait for them as sessions do; how many are worked on at once is bounded here, and how much of their bodies
//! is in memory, and for how long one may come, in [`upload`]. Nothing of what is spoken or written down is logged.

mod chosen;
mod create;
mod cutting;
mod error;
mod fields;
mod form;
mod jobs;
mod listening;
pub(super) mod live;
mod metering;
mod models;
mod names;
mod request;
mod speaking;
mod transcriptions;
mod upload;
mod voices;
mod waiting;
mod written;

use super::app::App;
use crate::server::access::limits::{Resource, Spender};
use crate::server::access::security::Act;
use crate::server::access::holder_counts::{Holder, Share, Shares};
use crate::config::{Config, SpeechConfig};
use antiphon_engine_api::tts::VoiceScope;
use antiphon_types::{Brownout, BrownoutLevel};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request};
use axum::routing::{get, post};
use error::ApiError;
pub(super) use jobs::Jobs;
use metering::RequestTimes;
use names::Names;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest JSON body: the longest text there may be is refused for its length, not for its bytes.
const MAX_JSON_BYTES: usize = 4 << 20;
/// What a form may hold beside its file.
const FORM_BYTES: usize = 1 << 20;
/// Sound files of all requests together that are held in memory, in units of [`UPLOAD_UNIT`]; beyond it the answer is 503.
const UPLOADS: usize = (1 << 30) / UPLOAD_UNIT;
const UPLOAD_UNIT: usize = 64 << 10;

/// When to come again to a server that does without a kind of request: the level falls by one at a time, each takes seconds.
const RETRY_IN_BROWNOUT: Duration = Duration::from_secs(10);

/// What the handlers share.
pub(super) struct Speech {
    config: SpeechConfig,
    /// The configured models, by stage; empty where there is none.
    models: [(&'static str, String); 3],
    permits: Arc<Semaphore>,
    by_holder: Shares<Holder>,
    /// How long requests take.
    times: Arc<RequestTimes>,
    brownout: Brownout,
    uploads: Arc<Semaphore>,
    /// Stretches of files that are written down at once: a session finds a decoder that no file has.
    decoders: Arc<Semaphore>,
    pub(super) jobs: Jobs,
    voices: voices::Voices,
}

impl Speech {
    pub(super) fn new(config: &Config, brownout: Brownout) -> Self {
        Self {
            brownout,
            times: Arc::default(),
            permits: Arc::new(Semaphore::new(config.speech.max_requests)),
            by_holder: Shares::default(),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
            decoders: Arc::new(Semaphore::new(config.stt.decoders.saturating_sub(1).max(1))),
            models: [
                ("tts", named(&config.tts.engine, &config.tts.model)),
                ("stt", named(&config.stt.engine, &config.stt.model)),
                ("llm", named(&config.llm.engine, &config.llm.model)),
            ],
            jobs: Jobs::new(&config.speech),
            voices: voices::Voices::default(),
            config: config.speech.clone(),
        }
    }

    /// Refuses a request that would get no slot now, or of a kind that the server does without from the level `without` on,
    /// before its body is read.
    fn check_place(&self, app: &App, spender: &Spender, without: BrownoutLevel) -> Result<(), ApiError> {
        if self.brownout.is_at_least(without) {
            let message = "This server is overloaded and serves running conversations first. Try again later.";
            return Err(ApiError::overloaded(message).after(RETRY_IN_BROWNOUT));
        }
        self.admit(app, spender).map(drop)
    }

    /// The largest file to transcribe.
    fn largest_file(&self) -> form::LargestFile {
        form::LargestFile { field: "file", mib: self.config.max_upload_mib, setting: " (speech.max_upload_mib)" }
    }

    /// A slot among the requests in progress. It is taken once the body is complete: a client that sends slowly, or never ends
    /// it, does not occupy a slot. A key has half of the slots where there are other keys, an address where there are no keys.
    fn admit(&self, app: &App, spender: &Spender) -> Result<SpeechPlace, ApiError> {
        let busy = |message: &str| ApiError::overloaded(message).after(self.times.until_next(self.config.max_requests));
        let holder = Holder::of(spender.owner, spender.client, app.access.keys().n_clients() > 1);
        let most = self.config.max_requests.div_ceil(2);
        let share = holder.map(|holder| self.by_holder.take(holder, most).ok_or(holder)).transpose();
        let share = share.map_err(|holder| {
            busy(match holder {
                Holder::Key(_) => {
                    "This server works on as many speech requests of your API key as it may: half of speech.max_requests. Try again soon."
                }
                Holder::Address(_) => {
                    "This server works on as many speech requests of your address as it may: half of speech.max_requests. Try again soon."
                }
            })
        })?;
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| {
            busy("This server works on as many speech requests as it may (speech.max_requests). Try again soon.")
        })?;
        Ok(SpeechPlace { _permit: permit, _share: share })
    }
}

/// A slot among the requests in progress. Dropping it releases it.
struct SpeechPlace {
    _permit: OwnedSemaphorePermit,
    _share: Option<Share<Holder>>,
}

/// Takes `amount` of a limit of the request's key and address.
///
/// # Errors
/// 429: the limit is used up.
fn take(app: &App, spender: &Spender, resource: Resource, amount: u64) -> Result<(), ApiError> {
    check(app, spender, resource)?;
    spender.consumer.spend(resource, amount);
    Ok(())
}

/// Whether there is at least one unit of it.
///
/// # Errors
/// As [`take`].
fn check(app: &App, spender: &Spender, resource: Resource) -> Result<(), ApiError> {
    let Spender { consumer, client, owner } = spender;
    consumer.check(resource).map_err(|used_up| {
        let act = Act { client: *client, owner: *owner, name: Some(consumer.name()), target: "/v1/audio" };
        app.security.limited(act, used_up);
        ApiError::limited(used_up, consumer)
    })
}

/// What is called how, with the engines that serve now.
fn names(app: &App) -> Names {
    let served = app.models.served();
    let model = |stage: &str| {
        let chosen =
            served.iter().find(|served| served.stage == stage).map(|served| served.model.clone().unwrap_or_default());
        let configured = || app.speech.models.iter().find(|(of, _)| *of == stage).map(|(_, model)| model.clone());
        chosen.filter(|model| !model.is_empty()).or_else(configured).unwrap_or_default()
    };
    let [tts_model, stt_model, llm_model] = ["tts", "stt", "llm"].map(model);
    Names { tts_model, stt_model, llm_model, voice: app.setup().voice.clone(), scope: VoiceScope::Nobody }
}

/// What a configured engine's model is called; empty for one without, and where the engine is chosen at start. The
/// path is not exposed to clients.
fn named(engine: &str, model: &str) -> String {
    let has_one = match engine {
        "auto" | "flite" | "none" | "assistant" => false,
        "openai" => true,
        _ => !model.contains(['/', '\\']),
    };
    if has_one { model.to_owned() } else { String::new() }
}

/// The routes.
pub(super) fn routes(app: &App) -> Router<Arc<App>> {
    let upload = app.speech.largest_file().body_bytes();
    Router::new()
        .route("/v1/audio/speech", post(create::create).layer(DefaultBodyLimit::max(MAX_JSON_BYTES)))
        .route("/v1/audio/transcriptions", post(transcriptions::create).layer(DefaultBodyLimit::max(upload)))
        .route("/v1/audio/translations", post(transcriptions::translate).layer(DefaultBodyLimit::max(upload)))
        .merge(jobs::routes())
        .merge(voices::routes())
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::one))
}

/// A request's body of at most `most` bytes, and its share of the memory for uploads. It may take its time but not for ever.
async fn body_of(request: Request, speech: &Speech, most: usize) -> Result<(Bytes, upload::Held), ApiError> {
    upload::whole(request.into_body(), speech, most).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KEYS, Rule};

    #[test]
    fn the_largest_file_that_may_be_allowed_finds_room() {
        let key = KEYS.iter().find(|key| key.name == "max_upload_mib").expect("a key");
        let Rule::Whole(_, most, _) = key.rule else { panic!("{key:?}") };
        assert!((most as usize) << 20 <= UPLOADS * UPLOAD_UNIT);
    }

    #[test]
    fn files_leave_a_decoder_to_the_sessions() {
        for (decoders, of_files) in [(4, 3), (2, 1), (1, 1)] {
            let mut config = Config::default();
            config.stt.decoders = decoders;
            assert_eq!(Speech::new(&config, Brownout::default()).decoders.available_permits(), of_files);
        }
    }
}
