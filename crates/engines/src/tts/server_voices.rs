//! The voices of a speech server: its list, read at start and again beside later speech, and voices that are added to it.
//!
//! `openai` and `fish` use it. A server that does not list its voices has the known ones; a list that cannot be read leaves the
//! one before. The server's answers are bounded in size and time. Voices can be added where the list names those that were
//! (`uploaded_voices`, vLLM-Omni and SGLang-Omni): the recording, the consent and the transcript go to the server, which keeps
//! them; what it has no field for (language, owner, playing time) goes along in its description of the voice, so that it is
//! known again after a restart.

use crate::remote::{Body, Bounds, Server};
use antiphon_audio::wav;
use antiphon_engine_api::tts::{
    Consent, CustomVoice, NewVoice, TtsError, Voice, VoiceError, VoiceLibrary, VoiceLimits, listed, uploaded_id,
};
use antiphon_types::Pcm;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::header::ACCEPT;
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// The longest wait for a list, `tts.timeout_ms` where that is less.
const LIST_DEADLINE: Duration = Duration::from_secs(5);
/// A reading that failed or was cut off is begun again after this time, beside the next speech.
const LIST_RETRY: Duration = Duration::from_secs(5);
/// A list that is older is read again beside the next speech, and so is one that was not read at the start.
const LIST_AGE: Duration = Duration::from_secs(60);
const LIST_BOUNDS: Bounds = Bounds { bytes: 1 << 20, stall: LIST_DEADLINE, total: LIST_DEADLINE };
/// Voices of a list that are taken, and the longest name of one in bytes.
const MAX_VOICES: usize = 4_096;
const MAX_NAME: usize = 256;
/// The largest recording in bytes: what vLLM-Omni and SGLang-Omni take.
const MAX_RECORDING: usize = 10 << 20;
/// What the hub itself asks of a recording; the server may ask for more, and says so. The longest fits [`MAX_RECORDING`] at
/// 48 kHz.
const MIN_RECORDING_MS: u64 = 1_000;
const MAX_RECORDING_MS: u64 = 100_000;
const MIN_RATE_HZ: u32 = 16_000;
/// The longest wait for a voice to be added or removed: the server encodes it.
const CHANGE_DEADLINE: Duration = Duration::from_secs(60);
/// Voices that are being added or removed at once.
const CHANGES_AT_ONCE: usize = 2;

/// What is known of a server's voices without asking it.
pub(super) struct KnownVoices {
    /// Where the list is, below the base address.
    pub(super) path: &'static str,
    /// The voices of a server that does not list them; not empty.
    pub(super) unlisted: Vec<Voice>,
    /// The configured voice, which comes first.
    pub(super) chosen: Option<String>,
    /// A voice that every list has.
    pub(super) always: Option<Voice>,
}

/// See the module.
pub(super) struct VoiceList {
    server: Server,
    deadline: Duration,
    known: KnownVoices,
    current: Mutex<Current>,
    /// The list is being read.
    is_reading: AtomicBool,
    changes: Arc<Semaphore>,
}

/// The list as it was read last.
struct Current {
    voices: Arc<Vec<Voice>>,
    custom: Arc<Vec<Custom>>,
    takes_voices: bool,
    /// `None` until there was a list.
    read_at: Option<Instant>,
    /// When reading it was begun last.
    begun_at: Option<Instant>,
    /// The server has said that it has no list.
    has_none: bool,
    /// The last reading failed, which was logged.
    has_failed: bool,
}

/// A voice that was added to the server.
#[derive(Clone)]
struct Custom {
    voice: CustomVoice,
    /// Added by a hub, not on the server itself.
    is_ours: bool,
}

/// What goes along with a voice that is added, as its description on the server.
#[derive(Serialize, Deserialize)]
struct Description {
    name: String,
    language: String,
    recording_ms: u64,
    owner: Option<String>,
}

/// A list of voices, of any server's form.
#[derive(Deserialize)]
#[serde(untagged)]
enum ListReply {
    Bare(Vec<Entry>),
    Named {
        #[serde(default, alias = "reference_ids")]
        voices: Vec<Entry>,
        uploaded_voices: Option<Vec<UploadedVoice>>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Id(String),
    Described {
        #[serde(alias = "voice_id")]
        id: Option<String>,
        name: Option<String>,
        language: Option<String>,
    },
}

#[derive(Deserialize)]
struct UploadedVoice {
    name: String,
    #[serde(default)]
    consent: String,
    #[serde(default)]
    created_at: f64,
    speaker_description: Option<String>,
}

/// Why a list was not read.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error("the server {0} does not list its voices")]
    None(String),
    #[error("{0}")]
    Failed(String),
}

impl VoiceList {
    /// The known voices; reads nothing. `deadline`: the longest wait for the server.
    pub(super) fn new(server: Server, deadline: Duration, known: KnownVoices) -> Arc<Self> {
        let current = Current {
            voices: Arc::new(known.unlisted.clone()),
            custom: Arc::default(),
            takes_voices: false,
            read_at: None,
            begun_at: None,
            has_none: false,
            has_failed: false,
        };
        Arc::new(Self {
            server,
            deadline: deadline.min(LIST_DEADLINE),
            known,
            current: Mutex::new(current),
            is_reading: AtomicBool::new(false),
            changes: Arc::new(Semaphore::new(CHANGES_AT_ONCE)),
        })
    }

    /// The voices, the default first.
    pub(super) fn voices(&self) -> Vec<Voice> {
        self.current(|current| current.voices.to_vec())
    }

    /// What to send for a voice that a request names: itself where the server has it, else the default.
    pub(super) fn resolve(&self, voice: &str) -> String {
        let voices = self.current(|current| current.voices.clone());
        if has(&voices, voice) { voice.to_owned() } else { voices[0].id.clone() }
    }

    /// As [`Tts::check_voice`](antiphon_engine_api::tts::Tts::check_voice); a mixture of known voices is one.
    pub(super) fn check(&self, voice: &str, engine: &str) -> Result<(), String> {
        let voices = self.current(|current| current.voices.clone());
        if has(&voices, voice) {
            return Ok(());
        }
        let ids: Vec<_> = voices.iter().map(|voice| voice.id.as_str()).collect();
        Err(format!("there is no voice {voice:?}; {engine} has {}", listed(&ids)))
    }

    /// Where voices can be added, if the server takes any.
    pub(super) fn library(self: &Arc<Self>) -> Option<Arc<dyn VoiceLibrary>> {
        let takes_voices = self.current(|current| current.takes_voices);
        takes_voices.then(|| Arc::new(Library(self.clone())) as Arc<dyn VoiceLibrary>)
    }

    /// Reads the list. A failure leaves the voices as they are; the first one after a success is a warning.
    pub(super) async fn refresh(&self) {
        if self.is_reading.swap(true, Ordering::Relaxed) {
            return;
        }
        let _reading = ReadingGuard(&self.is_reading);
        self.current(|current| current.begun_at = Some(Instant::now()));
        let read = match timeout(self.deadline, self.read()).await {
            Ok(read) => read,
            Err(_) => Err(ListError::Failed(format!("the list of voices did not come within {:?}", self.deadline))),
        };
        match read {
            Ok(listed) => {
                let is_first = self.current(|current| {
                    current.has_failed = false;
                    current.read_at.replace(Instant::now()).is_none()
                });
                self.take(listed, is_first);
            }
            Err(error @ ListError::None(_)) => {
                // A server without a list is not asked for one beside speech.
                self.current(|current| current.has_none = true);
                tracing::info!(%error, "the known voices are offered");
            }
            Err(error) if self.current(|current| std::mem::replace(&mut current.has_failed, true)) => {
                tracing::debug!(%error, "the voices stay as they are");
            }
            Err(error) => tracing::warn!(%error, "the voices stay as they are"),
        }
    }

    /// The same speech. Where the list is old, or was never read, it is read while the speech lasts. A reading that fails,
    /// or that the end of its speech cuts off, is begun again after [`LIST_RETRY`].
    pub(super) fn refresh_beside(
        self: &Arc<Self>,
        mut speech: BoxStream<'static, Result<Pcm, TtsError>>,
    ) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let is_due = self.current(|current| {
            let is_old = current.read_at.is_none_or(|read_at| read_at.elapsed() > LIST_AGE);
            let was_tried = current.begun_at.is_some_and(|begun_at| begun_at.elapsed() < LIST_RETRY);
            is_old && !was_tried && !current.has_none
        });
        if !is_due {
            return speech;
        }
        let list = self.clone();
        let mut refresh = Some(Box::pin(async move { list.refresh().await }));
        stream::poll_fn(move |context| {
            if refresh.as_mut().is_some_and(|refresh| refresh.as_mut().poll(context).is_ready()) {
                refresh = None;
            }
            speech.poll_next_unpin(context)
        })
        .boxed()
    }

    /// Takes the server for one that does not list its voices.
    #[cfg(test)]
    pub(super) fn without_list(&self) {
        self.current(|current| current.has_none = true);
    }

    async fn read(&self) -> Result<ListReply, ListError> {
        let host = self.server.host();
        // fish-speech answers in MessagePack unless JSON is asked for.
        let request = self.server.request(Method::GET, self.known.path).header(ACCEPT, "application/json");
        let sent = request.send().await;
        let response =
            sent.map_err(|error| ListError::Failed(format!("{host} cannot be reached: {}", error.without_url())))?;
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
            Body::new(response, LIST_BOUNDS).drain().await;
            return Err(ListError::None(host.to_owned()));
        }
        if !status.is_success() {
            return Err(ListError::Failed(self.server.refusal(response).await));
        }
        let body = Body::new(response, LIST_BOUNDS).whole().await;
        let body = body.map_err(|error| ListError::Failed(format!("the list of voices of {host}: {error}")))?;
        serde_json::from_slice(&body)
            .map_err(|_| ListError::Failed(format!("{host} sent a list of voices that is none")))
    }

    fn take(&self, listed: ListReply, is_first: bool) {
        let (entries, uploaded) = match listed {
            ListReply::Bare(entries) => (entries, None),
            ListReply::Named { voices, uploaded_voices } => (voices, uploaded_voices),
        };
        let takes_voices = uploaded.is_some();
        let mut custom: Vec<Custom> =
            uploaded.into_iter().flatten().take(MAX_VOICES).filter(|voice| is_name(&voice.name)).map(custom).collect();
        custom.sort_by(|a, b| a.voice.id.cmp(&b.voice.id));
        let mut found: Vec<Voice> = entries.into_iter().filter_map(voice).take(MAX_VOICES).collect();
        for Custom { voice: CustomVoice { id, name, language, .. }, .. } in &custom {
            let described = Voice { id: id.clone(), name: name.clone(), language: language.clone() };
            match found.iter_mut().find(|voice| voice.id == *id) {
                Some(voice) => *voice = described,
                None => found.push(described),
            }
        }
        found.extend(self.known.always.clone());
        let n_found = found.len();
        let voices = self.arrange(found, is_first);
        if is_first {
            tracing::info!(server = self.server.host(), n_voices = n_found, "the speech server's voices are offered");
        }
        self.current(|current| {
            current.voices = Arc::new(voices);
            current.custom = Arc::new(custom);
            current.takes_voices = takes_voices;
        });
    }

    /// The voices with the chosen one first, each once; the known ones where there are none.
    fn arrange(&self, found: Vec<Voice>, is_first: bool) -> Vec<Voice> {
        let mut voices: Vec<Voice> = Vec::new();
        if let Some(chosen) = &self.known.chosen {
            if is_first && !has(&found, chosen) {
                tracing::warn!(
                    voice = chosen,
                    "the speech server does not list the voice tts.voice; it is tried all the same"
                );
            }
            let listed = found.iter().find(|voice| voice.id == *chosen).cloned();
            voices.push(listed.unwrap_or_else(|| unnamed(chosen.clone())));
        }
        let mut seen: std::collections::HashSet<String> = voices.iter().map(|voice| voice.id.clone()).collect();
        voices.extend(found.into_iter().filter(|voice| seen.insert(voice.id.clone())));
        if voices.is_empty() { self.known.unlisted.clone() } else { voices }
    }

    fn current<T>(&self, with: impl FnOnce(&mut Current) -> T) -> T {
        with(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Says at its end that the list is no longer being read.
struct ReadingGuard<'a>(&'a AtomicBool);

impl Drop for ReadingGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Whether `voice` is one of them, or a mixture such as `a+b` or `a(2)+b(1)`.
fn has(voices: &[Voice], voice: &str) -> bool {
    let is_known = |id: &str| voices.iter().any(|known| known.id == id);
    if is_known(voice) {
        return true;
    }
    let part = |part: &str| is_known(part.split(['(', ':']).next().unwrap_or_default().trim());
    voice.contains('+') && voice.len() <= MAX_NAME && voice.split('+').all(part)
}

fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= MAX_NAME && !name.contains(char::is_control)
}

fn unnamed(id: String) -> Voice {
    Voice { name: id.clone(), id, language: "mul".into() }
}

fn voice(entry: Entry) -> Option<Voice> {
    let voice = match entry {
        Entry::Id(id) => unnamed(id),
        Entry::Described { id, name, language } => {
            let id = id.or_else(|| name.clone())?;
            let name = name.filter(|name| is_name(name)).unwrap_or_else(|| id.clone());
            Voice { id, name, language: language.filter(|tag| is_name(tag)).unwrap_or_else(|| "mul".into()) }
        }
    };
    is_name(&voice.id).then_some(voice)
}

fn custom(uploaded: UploadedVoice) -> Custom {
    let UploadedVoice { name: id, consent, created_at, speaker_description } = uploaded;
    let created_at = created_at.max(0.0) as u64;
    let description: Option<Description> =
        speaker_description.as_deref().and_then(|description| serde_json::from_str(description).ok());
    let description = description.filter(|voice| is_name(&voice.name) && is_name(&voice.language));
    let is_ours = description.is_some();
    let described = description.unwrap_or_else(|| Description {
        name: speaker_description.filter(|name| is_name(name)).unwrap_or_else(|| id.clone()),
        language: "mul".into(),
        recording_ms: 0,
        owner: None,
    });
    let Description { name, language, recording_ms, owner } = described;
    let consent = Some(Consent { statement: consent, received_at: created_at });
    Custom { voice: CustomVoice { id, name, language, created_at, recording_ms, consent, owner, note: None }, is_ours }
}

/// The voices that were added to the server.
struct Library(Arc<VoiceList>);

impl VoiceLibrary for Library {
    fn list(&self) -> Vec<CustomVoice> {
        let custom = self.0.current(|current| current.custom.clone());
        custom.iter().map(|custom| custom.voice.clone()).collect()
    }

    fn limits(&self) -> VoiceLimits {
        VoiceLimits {
            min_recording_ms: MIN_RECORDING_MS,
            max_recording_ms: MAX_RECORDING_MS,
            used_recording_ms: MAX_RECORDING_MS,
            needs_transcript: false,
            min_rate_hz: MIN_RATE_HZ,
            languages: Vec::new(),
            max_voices: MAX_VOICES,
        }
    }

    fn add(&self, voice: NewVoice) -> BoxFuture<'static, Result<CustomVoice, VoiceError>> {
        let list = self.0.clone();
        Box::pin(async move {
            let _change = list.clone().changes.clone().try_acquire_owned().map_err(|_| busy())?;
            let id = uploaded_id(rand::random());
            let recording = wav::write(&voice.recording.pcm);
            if recording.len() > MAX_RECORDING {
                let longest = MAX_RECORDING / 2 / voice.recording.pcm.rate.hz() as usize;
                let message =
                    format!("the recording is too long for the speech server: at most {longest} s at this rate");
                return Err(VoiceError::Invalid { field: "audio_sample", message });
            }
            let added = CustomVoice {
                id: id.clone(),
                name: voice.name.clone(),
                language: voice.language.unwrap_or_else(|| "mul".into()),
                created_at: voice.consent.received_at,
                recording_ms: u64::try_from(voice.recording.pcm.duration().as_millis()).unwrap_or(u64::MAX),
                consent: Some(voice.consent.clone()),
                owner: voice.owner,
                note: None,
            };
            let description = Description {
                name: added.name.clone(),
                language: added.language.clone(),
                recording_ms: added.recording_ms,
                owner: added.owner.clone(),
            };
            let description = serde_json::to_string(&description).expect("texts and numbers are JSON");
            let file = Part::bytes(recording).file_name(format!("{id}.wav")).mime_str("audio/wav").expect("a type");
            let mut form =
                Form::new().part("audio_sample", file).text("consent", voice.consent.statement).text("name", id);
            form = form.text("speaker_description", description);
            if let Some(transcript) = voice.transcript {
                form = form.text("ref_text", transcript);
            }
            let answer = list.change(list.server.request(Method::POST, list.known.path).multipart(form)).await?;
            let status = answer.status();
            if !status.is_success() {
                return Err(list.refused(answer, "the recording").await);
            }
            Body::new(answer, LIST_BOUNDS).drain().await;
            list.refresh().await;
            list.insert(&added);
            Ok(added)
        })
    }

    fn remove(&self, id: &str) -> BoxFuture<'static, Result<(), VoiceError>> {
        let list = self.0.clone();
        let id = id.to_owned();
        Box::pin(async move {
            let custom = list.current(|current| current.custom.clone());
            match custom.iter().find(|custom| custom.voice.id == id) {
                None => return Err(VoiceError::Unknown(id)),
                Some(custom) if !custom.is_ours => {
                    return Err(VoiceError::Fixed(format!(
                        "the voice {id:?} was added on the speech server: remove it there"
                    )));
                }
                Some(_) => {}
            }
            let _change = list.clone().changes.clone().try_acquire_owned().map_err(|_| busy())?;
            let answer = list.change(list.server.request(Method::DELETE, &format!("{}/{id}", list.known.path))).await?;
            match answer.status() {
                status if status.is_success() => Body::new(answer, LIST_BOUNDS).drain().await,
                StatusCode::NOT_FOUND => {
                    list.forget(&id);
                    return Err(VoiceError::Unknown(id));
                }
                _ => return Err(list.refused(answer, "to remove the voice").await),
            }
            list.refresh().await;
            list.forget(&id);
            Ok(())
        })
    }
}

fn busy() -> VoiceError {
    VoiceError::Busy("other voices are being changed on the speech server; try again in a minute".into())
}

impl VoiceList {
    async fn change(&self, request: RequestBuilder) -> Result<Response, VoiceError> {
        let failed = |error: String| {
            tracing::warn!(error, "a voice was not changed on the speech server");
            VoiceError::Failed("the speech server cannot be reached; the operator's log has the details".into())
        };
        match timeout(CHANGE_DEADLINE, request.send()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failed(error.without_url().to_string())),
            Err(_) => Err(failed(format!("no answer within {CHANGE_DEADLINE:?}"))),
        }
    }

    /// The server's refusal; its words go to the log only.
    async fn refused(&self, answer: Response, what: &str) -> VoiceError {
        let status = answer.status();
        let error = self.server.refusal(answer).await;
        tracing::warn!(error, "the speech server refused {what}");
        match status.as_u16() {
            429 | 503 => busy(),
            400 | 413 | 415 | 422 => VoiceError::Invalid {
                field: "audio_sample",
                message: format!(
                    "the speech server refused {what}; clear speech of 3 to 30 s by one voice would be right"
                ),
            },
            _ => VoiceError::Failed(format!("the speech server refused {what}; the operator's log has the details")),
        }
    }

    /// Makes a voice available whose addition the server has confirmed, where its list does not have it yet.
    fn insert(&self, added: &CustomVoice) {
        self.current(|current| {
            if !current.custom.iter().any(|custom| custom.voice.id == added.id) {
                let mut custom = current.custom.to_vec();
                custom.push(Custom { voice: added.clone(), is_ours: true });
                custom.sort_by(|a, b| a.voice.id.cmp(&b.voice.id));
                current.custom = Arc::new(custom);
            }
            if !current.voices.iter().any(|voice| voice.id == added.id) {
                let CustomVoice { id, name, language, .. } = added.clone();
                let mut voices = current.voices.to_vec();
                voices.push(Voice { id, name, language });
                current.voices = Arc::new(voices);
            }
        });
    }

    fn forget(&self, id: &str) {
        self.current(|current| {
            current.custom = Arc::new(current.custom.iter().filter(|custom| custom.voice.id != id).cloned().collect());
            let voices: Vec<Voice> = current.voices.iter().filter(|voice| voice.id != id).cloned().collect();
            if !voices.is_empty() {
                current.voices = Arc::new(voices);
            }
        });
    }
}

#[cfg(test)]
#[cfg(feature = "openai")]
mod tests;
