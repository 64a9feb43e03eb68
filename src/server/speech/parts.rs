//! What the handlers of the speech API share: slots, memory for uploads, jobs, and the engines of the sessions.

use super::error::ApiError;
use super::jobs::Jobs;
use super::names::Names;
use super::request_times::RequestTimes;
use super::upload::UploadMemory;
use crate::config::{Config, SpeechConfig};
use crate::server::access::attempts::Attempts;
use crate::server::access::holder_counts::{Holder, HolderCount, HolderCounts};
use crate::server::access::limits::{Resource, Spender};
use crate::server::access::security::Act;
use crate::server::sessions::SessionParts;
use antiphon_engine_api::tts::VoiceScope;
use antiphon_engines::table::{EngineStage, ModelSource};
use antiphon_types::sealed::Sealing;
use antiphon_types::{Brownout, BrownoutLevel};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest JSON body: the longest text there may be is refused for its length, not for its bytes.
pub(super) const MAX_JSON_BYTES: usize = 4 << 20;
/// What a form may hold beside its file.
pub(super) const FORM_BYTES: usize = 1 << 20;

/// Voices that are being added at once: each is decoded, judged and conditioned, seconds of a core.
pub(super) const VOICES_AT_ONCE: usize = 2;

/// When to come again to a server that does without a kind of request: the level falls by one at a time, each takes seconds.
const RETRY_IN_BROWNOUT: Duration = Duration::from_secs(10);

/// The part of the speech API. It is complete when it is made.
pub(in crate::server) struct SpeechParts {
    pub(in crate::server) sessions: Arc<SessionParts>,
    pub(super) config: SpeechConfig,
    /// The configured models, by stage; empty where there is none.
    models: [(&'static str, String); 3],
    permits: Arc<Semaphore>,
    by_holder: HolderCounts<Holder>,
    /// How long requests take.
    pub(super) times: Arc<RequestTimes>,
    brownout: Brownout,
    pub(super) uploads: Arc<UploadMemory>,
    /// Stretches of files that are written down at once: a session finds a decoder that no file has.
    pub(super) decoders: Arc<Semaphore>,
    pub(in crate::server) jobs: Jobs,
    pub(super) voices: Voices,
}

impl SpeechParts {
    /// `sealing`: encrypts the jobs on the disk.
    pub(in crate::server) fn new(
        sessions: Arc<SessionParts>,
        config: &Config,
        sealing: Option<Arc<dyn Sealing>>,
    ) -> Self {
        let jetstream = sessions.jetstream();
        let tasks = sessions.setup.tasks.clone();
        Self {
            brownout: sessions.load.brownout(),
            times: Arc::default(),
            permits: Arc::new(Semaphore::new(config.speech.max_requests)),
            by_holder: HolderCounts::default(),
            uploads: Arc::new(UploadMemory::new((config.speech.max_upload_mib << 20) + FORM_BYTES)),
            decoders: Arc::new(Semaphore::new(decoders_of_files(config))),
            models: [
                ("tts", named(EngineStage::Tts, &config.tts.engine, &config.tts.model)),
                ("stt", named(EngineStage::Stt, &config.stt.engine, &config.stt.model)),
                ("llm", named(EngineStage::Llm, &config.llm.engine, &config.llm.model)),
            ],
            jobs: Jobs::new(
                &config.speech,
                sealing,
                jetstream.map(|jetstream| (jetstream, tasks)),
                &sessions.access.keys,
            ),
            voices: Voices::default(),
            config: config.speech.clone(),
            sessions,
        }
    }

    /// Refuses a request that would get no slot now, or of a kind that the server does without from the level `without` on,
    /// before its body is read.
    pub(super) fn check_place(&self, spender: &Spender, without: BrownoutLevel) -> Result<(), ApiError> {
        if self.brownout.is_at_least(without) {
            let message = "This server is overloaded and serves running conversations first. Try again later.";
            return Err(ApiError::overloaded(message).after(RETRY_IN_BROWNOUT));
        }
        self.admit(spender).map(drop)
    }

    /// A slot among the requests in progress. It is taken once the body is complete: a client that sends slowly, or never ends
    /// it, does not occupy a slot. A key has half of the slots where there are other keys, an address where there are no keys.
    pub(super) fn admit(&self, spender: &Spender) -> Result<SpeechPlace, ApiError> {
        let busy = |message: &str| ApiError::overloaded(message).after(self.times.until_next(self.config.max_requests));
        let holder = self.holder(spender);
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

    /// Whose share of what all requests use a request takes; `None`: there are no others that could go short.
    pub(super) fn holder(&self, spender: &Spender) -> Option<Holder> {
        Holder::of(spender.owner, spender.client, self.sessions.access.keys.current().n_clients() > 1)
    }
}

/// What the requests that add voices share.
pub(super) struct Voices {
    pub(super) adding: Arc<Semaphore>,
    /// Voices that were sent from each address: ten at once, then one a second.
    pub(super) sent: Attempts,
}

impl Default for Voices {
    fn default() -> Self {
        Self { adding: Arc::new(Semaphore::new(VOICES_AT_ONCE)), sent: Attempts::default() }
    }
}

/// A slot among the requests in progress. Dropping it releases it.
pub(super) struct SpeechPlace {
    _permit: OwnedSemaphorePermit,
    _share: Option<HolderCount<Holder>>,
}

/// Takes `amount` of a limit of the request's key and address.
///
/// # Errors
/// 429: the limit is used up.
pub(super) fn take(speech: &SpeechParts, spender: &Spender, resource: Resource, amount: u64) -> Result<(), ApiError> {
    check(speech, spender, resource)?;
    spender.consumer.spend(resource, amount);
    Ok(())
}

/// Whether there is at least one unit of it.
///
/// # Errors
/// As [`take`].
pub(super) fn check(speech: &SpeechParts, spender: &Spender, resource: Resource) -> Result<(), ApiError> {
    let Spender { consumer, client, owner } = spender;
    consumer.check(resource).map_err(|used_up| {
        let act = Act { client: *client, owner: *owner, name: Some(consumer.name()), target: "/v1/audio" };
        speech.sessions.access.security.limited(act, used_up);
        ApiError::limited(used_up, consumer)
    })
}

/// What is called how, with the engines that serve now.
pub(super) fn names(speech: &SpeechParts) -> Names {
    let served = speech.sessions.models.served();
    let model = |stage: &str| {
        let chosen =
            served.iter().find(|served| served.stage == stage).map(|served| served.model.clone().unwrap_or_default());
        let configured = || speech.models.iter().find(|(of, _)| *of == stage).map(|(_, model)| model.clone());
        chosen.filter(|model| !model.is_empty()).or_else(configured).unwrap_or_default()
    };
    let [tts_model, stt_model, llm_model] = ["tts", "stt", "llm"].map(model);
    let active_llm = speech.sessions.models.manager().map(|manager| manager.active_llm());
    let llm_model = match active_llm {
        Some((connected, true)) => named(EngineStage::Llm, &connected.engine, &connected.model),
        _ => llm_model,
    };
    Names { tts_model, stt_model, llm_model, voice: speech.sessions.setup().voice.clone(), scope: VoiceScope::Nobody }
}

/// Stretches of files that are written down at once: a session finds a decoder that no file has.
fn decoders_of_files(config: &Config) -> usize {
    config.stt.decoders.saturating_sub(1).max(1)
}

/// What a configured engine's model is called; empty for one without, and where the engine is chosen at start. The
/// path is not exposed to clients.
fn named(stage: EngineStage, engine: &str, model: &str) -> String {
    let has_one = match stage.kind(engine).map(|kind| kind.model) {
        None | Some(ModelSource::BuiltIn) => false,
        Some(ModelSource::Server { has_default_model: true }) => true,
        Some(_) => !model.contains(['/', '\\']),
    };
    if has_one { model.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::super::upload::{UPLOAD_UNIT, UPLOADS};
    use super::*;
    use crate::config;
    use antiphon_types::setting::Rule;

    #[test]
    fn the_largest_file_that_may_be_allowed_finds_room() {
        let key = config::keys().find(|key| key.name == "max_upload_mib").expect("a key");
        let Rule::Whole(_, most, _) = key.rule else { panic!("{key:?}") };
        assert!((most as usize) << 20 <= UPLOADS * UPLOAD_UNIT);
    }

    #[test]
    fn files_leave_a_decoder_to_the_sessions() {
        for (decoders, of_files) in [(4, 3), (2, 1), (1, 1)] {
            let mut config = Config::default();
            config.stt.decoders = decoders;
            assert_eq!(decoders_of_files(&config), of_files);
        }
    }
}
