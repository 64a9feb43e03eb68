//! The engine's custom voices: the store of recordings, on a thread of its own since it blocks on the disk, with the engine's
//! conditioning as the test of a new one.

use super::super::voices::{Reference, VoiceStore};
use super::SpeechContext;
use super::condition::Conditioning;
use antiphon_engine_api::tts::{
    CustomVoice, NewVoice, TtsError, UnusableVoice, VoiceError, VoiceLibrary, VoiceLimits, is_uploaded_id,
};
use antiphon_inference::onnx::OnnxError;
use antiphon_inference::pool::{Pool, PoolError};
use futures_util::future::{BoxFuture, FutureExt};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests that may wait for the thread that reads recordings.
const MAX_WAITING: usize = 32;
/// Uploads and removals that may wait.
const MAX_UPLOADS: usize = 4;

/// The recordings: which voices there are, and the contents of those that have spoken.
pub struct Recordings {
    store: Arc<VoiceStore>,
    disk: Pool<Arc<VoiceStore>>,
    /// Uploads and removals, which take long: speech does not wait for them.
    uploads: Pool<Arc<VoiceStore>>,
    /// The digest of each voice's recording, once it was read.
    digests: Mutex<HashMap<String, [u8; 32]>>,
}

impl Recordings {
    /// Starts the store's threads.
    pub fn new(store: VoiceStore) -> Self {
        let store = Arc::new(store);
        let thread = |name: &str, max_waiting: usize| {
            let own = store.clone();
            let started = Pool::start(name, 1, max_waiting, move |_| Ok::<_, Infallible>(own.clone()));
            started.unwrap_or_else(|never| match never {})
        };
        let disk = thread("speechlm-voices", MAX_WAITING);
        let uploads = thread("speechlm-uploads", MAX_UPLOADS);
        Self { store, disk, uploads, digests: Mutex::default() }
    }

    /// All voices. Does not block.
    pub fn list(&self) -> Vec<CustomVoice> {
        self.store.list()
    }

    /// The digest of a voice's recording, where it was read before.
    fn digest(&self, id: &str) -> Option<[u8; 32]> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    /// The reference of a voice. Waits for the disk.
    async fn reference(&self, id: &str) -> Result<Arc<Reference>, VoiceError> {
        let asked = id.to_owned();
        let mut lease = self.disk.lease().await.map_err(|_| busy())?;
        let reference = lease.run(move |store| store.reference(&asked)).await.map_err(ended)??;
        let known = self.store.list();
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.retain(|id, _| known.iter().any(|voice| voice.id == *id));
        digests.insert(id.to_owned(), reference.digest);
        Ok(reference)
    }
}

impl SpeechContext {
    /// The conditioning and the language of a voice. An unknown name means the default one; an uploaded voice that is gone
    /// means none. Waits for the disk and the graph where the voice has not spoken lately.
    pub(super) async fn voice(&self, asked: &str) -> Result<(Arc<Conditioning>, String), TtsError> {
        let voices = self.recordings.list();
        let found = voices.iter().find(|voice| voice.id == asked);
        if found.is_none() && is_uploaded_id(asked) {
            return Err(TtsError::NoVoice(format!("there is no voice {asked}; it may have been removed")));
        }
        let default = || self.fixed_voices().into_iter().next();
        let Some((id, language)) = found
            .map(|voice| (voice.id.clone(), voice.language.clone()))
            .or_else(|| default().map(|voice| (voice.id, voice.language)))
        else {
            let message =
                "there is no voice yet: put NAME.wav into the folder tts.voices_dir, or upload one to /v1/audio/voices";
            return Err(TtsError::NoVoice(message.into()));
        };
        if let Some(kept) = self.recordings.digest(&id).and_then(|digest| self.kept.get(&digest)) {
            return Ok((kept, language));
        }
        let reference = self.recordings.reference(&id).await.map_err(|error| match error {
            VoiceError::Busy(_) => TtsError::Overloaded { waiting: MAX_WAITING },
            VoiceError::Unknown(_) => TtsError::NoVoice(error.to_string()),
            error => TtsError::Unavailable(error.to_string()),
        })?;
        Ok((self.conditioning(reference).await?, language))
    }

    /// The conditioning of a reference, made and kept where it is not kept.
    async fn conditioning(&self, reference: Arc<Reference>) -> Result<Arc<Conditioning>, TtsError> {
        let digest = reference.digest;
        if let Some(kept) = self.kept.get(&digest) {
            return Ok(kept);
        }
        let made = self.make_conditioning(reference).await?;
        self.kept.keep(made.clone());
        Ok(made)
    }

    /// A conditioning, made unless another request has made it meanwhile.
    async fn make_conditioning(&self, reference: Arc<Reference>) -> Result<Arc<Conditioning>, TtsError> {
        let digest = reference.digest;
        let mut lease =
            self.conditioner.lease().await.map_err(|full| TtsError::Overloaded { waiting: full.waiting })?;
        if let Some(kept) = self.kept.get(&digest) {
            return Ok(kept);
        }
        let breaks = |made: &Result<Conditioning, OnnxError>| matches!(made, Err(OnnxError::Run { .. }));
        let made = lease
            .run_judged(move |graph| graph.condition(&reference.samples, reference.transcript.clone(), digest), breaks)
            .await;
        let failed = |error: &dyn std::error::Error| TtsError::Engine { message: error.to_string(), source: None };
        Ok(Arc::new(made.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?))
    }
}

/// See the module.
pub struct Library(pub(super) Arc<SpeechContext>);

impl VoiceLibrary for Library {
    fn list(&self) -> Vec<CustomVoice> {
        self.0.recordings.list()
    }

    fn unusable(&self) -> Vec<UnusableVoice> {
        self.0.recordings.store.unusable()
    }

    fn limits(&self) -> VoiceLimits {
        self.0.recordings.store.limits()
    }

    fn add(&self, voice: NewVoice) -> BoxFuture<'static, Result<CustomVoice, VoiceError>> {
        let shared = self.0.clone();
        async move {
            let mut lease = shared.recordings.uploads.lease().await.map_err(|_| busy())?;
            let engine = shared.clone();
            lease.run(move |store| store.add(voice, |reference| engine.accepts(reference))).await.map_err(ended)?
        }
        .boxed()
    }

    fn remove(&self, id: &str) -> BoxFuture<'static, Result<(), VoiceError>> {
        let shared = self.0.clone();
        let id = id.to_owned();
        async move {
            let mut lease = shared.recordings.uploads.lease().await.map_err(|_| busy())?;
            lease.run(move |store| store.remove(&id)).await.map_err(ended)?
        }
        .boxed()
    }
}

impl SpeechContext {
    /// Whether the engine can speak with a recording: its conditioning can be made. It is not kept, so that uploads push no
    /// voice out that speaks. Blocks for that; called on the thread for uploads.
    fn accepts(&self, reference: &Reference) -> Result<(), VoiceError> {
        let made = futures_executor::block_on(self.make_conditioning(Arc::new(reference.clone())));
        made.map(drop).map_err(|error| match error {
            TtsError::Overloaded { .. } => busy(),
            error => {
                tracing::warn!(%error, "a recording was not taken");
                let message = "The engine cannot make a voice of this recording: try another one.".into();
                VoiceError::Invalid { field: "audio_sample", message }
            }
        })
    }
}

fn busy() -> VoiceError {
    VoiceError::Busy("Many voices are being added or read now; try again in a moment".into())
}

fn ended(error: PoolError) -> VoiceError {
    tracing::error!(%error, "the voices' thread failed");
    VoiceError::Failed("The voices cannot be read now; the operator's log has the details".into())
}
