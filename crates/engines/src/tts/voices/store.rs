//! The store: what is in the folder, what is added to it and removed.

use super::files::{self, FileError, VoiceFiles};
use super::recording;
use antiphon_audio::decode::DecodeError;
use antiphon_engine_api::tts::{
    Consent, CustomVoice, NewVoice, TtsError, UnusableVoice, VoiceError, VoiceLimits, is_uploaded_id, uploaded_id,
};
use antiphon_types::SampleRate;
use antiphon_types::sealed::Sealing;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The longest name, in characters.
const MAX_NAME: usize = 64;
/// The longest transcript and the longest statement of consent, in characters.
const MAX_TEXT: usize = 2_000;
/// The operator's voices that are listed; beyond, some are left out with a warning.
const MAX_OPERATORS: usize = 1_000;

/// What a store takes, and what it makes of it.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The folder.
    pub folder: PathBuf,
    /// The rate of a [`Reference`]: what the engine's encoder takes.
    pub rate: SampleRate,
    /// The shortest recording.
    pub min: Duration,
    /// The longest recording.
    pub max: Duration,
    /// What is used of a recording, from its beginning; the voice's note says so where it is longer.
    pub use_at_most: Duration,
    /// The loudness references are brought to, in LUFS (EBU R 128); `None`: as recorded.
    pub loudness_lufs: Option<f64>,
    /// Uploaded voices, at most.
    pub max_voices: usize,
    /// Bytes of their recordings together, at most.
    pub max_bytes: u64,
    /// BCP-47 tags of the languages that the engine speaks, its first one first, and [`AUTO`] where it finds out by the
    /// text; empty: any.
    pub languages: Vec<String>,
    /// Whether a voice needs the words of its recording.
    pub needs_transcript: bool,
    /// Encrypts the files of uploads; `None`: they are plain.
    pub sealing: Option<Arc<dyn Sealing>>,
}

/// The language of a voice that speaks each text in its own language.
pub const AUTO: &str = "auto";

/// A reference recording ready for an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The voice's id.
    pub id: String,
    /// SHA-256 of the samples and the transcript: the key of what an engine keeps of it.
    pub digest: [u8; 32],
    /// Mono at [`StoreSettings::rate`], full scale 1.0; finite and never empty.
    pub samples: Vec<f32>,
    /// The words of the recording, where they are known and all of it is used: those of a beginning would be too many.
    pub transcript: Option<String>,
    /// BCP-47 tag.
    pub language: String,
}

/// See the module. All of it may be called from several threads; nothing is locked while a file is read or written or while
/// an engine accepts a voice.
#[derive(Debug)]
pub struct VoiceStore {
    settings: StoreSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    voices: BTreeMap<String, StoredVoice>,
    /// Why each of the others of the folder was left out.
    unusable: BTreeMap<String, String>,
    /// Being added: they count, and their names are taken.
    pending: Vec<PendingUpload>,
}

#[derive(Debug)]
struct StoredVoice {
    voice: CustomVoice,
    bytes: u64,
}

#[derive(Debug)]
struct PendingUpload {
    id: String,
    name: String,
    owner: Option<String>,
    bytes: u64,
}

/// What an operator's metadata may say.
#[derive(Debug, Default, Deserialize)]
struct Card {
    name: Option<String>,
    language: Option<String>,
}

/// Why an upload of the folder cannot be used.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("its name is an upload's, and it lacks the metadata and the consent of one")]
    NoMetadata,
    #[error("the recording is longer than {0:?}, which this model takes")]
    TooLong(Duration),
    #[error("this model needs the words of the recording, and it was added without them")]
    NoTranscript,
}

impl From<std::io::Error> for LoadError {
    fn from(error: std::io::Error) -> Self {
        FileError::from(error).into()
    }
}

/// A voice's place among those being added; dropping it gives the place back.
struct VoiceReservation<'a> {
    store: &'a VoiceStore,
    id: String,
}

impl Drop for VoiceReservation<'_> {
    fn drop(&mut self) {
        self.store.state().pending.retain(|pending| pending.id != self.id);
    }
}

impl VoiceStore {
    /// Makes the folder where it is missing and lists its voices. A voice that cannot be used is left out with a warning that
    /// says why; its files stay. With a key, uploads that are plain are encrypted. Blocks: reads the operator's recordings and
    /// those that are encrypted, which takes some milliseconds each.
    ///
    /// # Errors
    /// [`TtsError::Unavailable`] where the folder cannot be made or read.
    pub fn open(settings: StoreSettings) -> Result<Self, TtsError> {
        let folder = &settings.folder;
        let unusable = |error: std::io::Error| {
            let folder = folder.display();
            TtsError::Unavailable(format!(
                "the folder of voices {folder} cannot be used: {error}; set tts.voices_dir to one this user may write"
            ))
        };
        files::make_private(folder).map_err(unusable)?;
        let most = MAX_OPERATORS.saturating_add(settings.max_voices);
        let names = files::recordings(folder, most).map_err(unusable)?;
        let store = Self { settings, state: Mutex::default() };
        for id in names {
            match store.load(&id) {
                Ok(stored) => {
                    store.state().voices.insert(id, stored);
                }
                Err(why) => {
                    tracing::warn!(voice = id, why, "a voice of the folder cannot be used");
                    store.state().unusable.insert(id, why);
                }
            }
        }
        Ok(store)
    }

    /// All voices, sorted by id.
    pub fn list(&self) -> Vec<CustomVoice> {
        self.state().voices.values().map(|stored| stored.voice.clone()).collect()
    }

    /// Those of the folder that were left out, sorted by id.
    pub fn unusable(&self) -> Vec<UnusableVoice> {
        let unusable = |(id, reason): (&String, &String)| UnusableVoice { id: id.clone(), reason: reason.clone() };
        self.state().unusable.iter().map(unusable).collect()
    }

    /// What it takes.
    pub fn limits(&self) -> VoiceLimits {
        let settings = &self.settings;
        let ms = |duration: Duration| duration.as_millis() as u64;
        VoiceLimits {
            min_recording_ms: ms(settings.min),
            max_recording_ms: ms(settings.max),
            used_recording_ms: ms(settings.use_at_most.min(settings.max)),
            min_rate_hz: recording::MIN_RATE.hz(),
            languages: settings.languages.clone(),
            needs_transcript: settings.needs_transcript,
            max_voices: settings.max_voices,
        }
    }

    /// Reads a voice's recording and makes the reference of it. Blocks for some milliseconds; the caller keeps what it makes
    /// of it by the digest.
    ///
    /// # Errors
    /// [`VoiceError::Unknown`]; [`VoiceError::Failed`] where the file cannot be read any more, which is logged.
    pub fn reference(&self, id: &str) -> Result<Arc<Reference>, VoiceError> {
        let unknown = || VoiceError::Unknown(id.to_owned());
        let voice = self.state().voices.get(id).map(|stored| stored.voice.clone()).ok_or_else(unknown)?;
        let files = self.files(id);
        let read = files.recording(self.settings.max).and_then(|pcm| Ok((pcm, files.transcript()?)));
        let (pcm, transcript) = read.map_err(|error| {
            // It may have been removed meanwhile.
            if !self.state().voices.contains_key(id) {
                return unknown();
            }
            tracing::warn!(voice = id, %error, "a voice's recording cannot be read");
            VoiceError::Failed(format!("The recording of the voice {id} cannot be read"))
        })?;
        let transcript = transcript.filter(|_| pcm.duration() <= self.settings.use_at_most);
        let prepared = recording::convert(&pcm, &self.settings);
        Ok(Arc::new(reference(id.to_owned(), prepared.samples, transcript, voice.language)))
    }

    /// Checks a voice, has the engine accept it and stores it. Blocks: for `accept`, and for the disk. It is listed once all
    /// of its files are there.
    ///
    /// # Errors
    /// [`VoiceError::Invalid`] for a recording, a name or a field that cannot be used, with what would be right;
    /// [`VoiceError::Full`]; whatever `accept` returns; [`VoiceError::Failed`] for the disk, which is logged.
    pub fn add(
        &self,
        voice: NewVoice,
        accept: impl FnOnce(&Reference) -> Result<(), VoiceError>,
    ) -> Result<CustomVoice, VoiceError> {
        let name = name(&voice.name)?;
        let language = self.language(voice.language.as_deref())?;
        let transcript = text("ref_text", voice.transcript.as_deref().unwrap_or_default())?;
        let transcript = Some(transcript).filter(|text| !text.is_empty());
        if self.settings.needs_transcript && transcript.is_none() {
            return Err(invalid("ref_text", "'ref_text' is missing: this model needs the words of the recording."));
        }
        let statement = text("consent", &voice.consent.statement)?;
        if statement.is_empty() {
            return Err(invalid("consent", "'consent' is empty: it states that the speaker agrees."));
        }
        let pcm = &voice.recording.pcm;
        let prepared = recording::prepare(pcm, &self.settings)?;
        let bytes = files::encoded(pcm);

        let place = self.reserve(&name, voice.owner.as_deref(), bytes.len() as u64)?;
        let id = place.id.clone();
        let used_words = transcript.is_none() || pcm.duration() <= self.settings.use_at_most;
        let used = transcript.clone().filter(|_| used_words);
        let reference = reference(id.clone(), prepared.samples, used, language.clone());
        accept(&reference)?;
        let added = CustomVoice {
            id: id.clone(),
            name,
            language,
            created_at: voice.consent.received_at,
            recording_ms: pcm.duration().as_millis() as u64,
            consent: Some(Consent { statement, ..voice.consent }),
            owner: voice.owner,
            note: match used_words {
                true => prepared.note,
                false => prepared.note.map(|note| format!("{note} Its words are not used then.")),
            },
        };
        self.files(&id).write(&bytes, transcript.as_deref(), &added).map_err(|error| {
            tracing::warn!(%error, "a voice cannot be stored");
            if error.kind() == std::io::ErrorKind::StorageFull {
                return VoiceError::Full("The server's disk is full".into());
            }
            VoiceError::Failed("The voice could not be stored; the operator's log has the details".into())
        })?;
        let stored = StoredVoice { voice: added.clone(), bytes: bytes.len() as u64 };
        self.state().voices.insert(id, stored);
        Ok(added)
    }

    /// Removes an uploaded voice and its files. References that were read stay as they are. Blocks for the disk.
    ///
    /// # Errors
    /// [`VoiceError::Unknown`]; [`VoiceError::Fixed`] for the operator's; [`VoiceError::Failed`] for the disk: the voice is
    /// not listed any more, and the log says what to remove.
    pub fn remove(&self, id: &str) -> Result<(), VoiceError> {
        {
            let mut state = self.state();
            let stored = state.voices.get(id).ok_or_else(|| VoiceError::Unknown(id.to_owned()))?;
            if !stored.voice.is_uploaded() {
                let message = format!("The voice {id} is the operator's: it goes with its file in tts.voices_dir");
                return Err(VoiceError::Fixed(message));
            }
            state.voices.remove(id);
        }
        self.files(id).remove().map_err(|error| {
            tracing::error!(voice = id, %error, "a removed voice's files are still there: remove them by hand");
            VoiceError::Failed("The voice's files could not be removed; the operator's log has the details".into())
        })
    }

    /// Takes a place for a voice that is added: an id, its name, its bytes.
    fn reserve(&self, name: &str, owner: Option<&str>, bytes: u64) -> Result<VoiceReservation<'_>, VoiceError> {
        let StoreSettings { max_voices, max_bytes, .. } = self.settings;
        let mut state = self.state();
        let uploads = state.voices.values().filter(|stored| stored.voice.is_uploaded());
        let mut n = state.pending.len();
        let mut n_bytes = state.pending.iter().map(|one| one.bytes).sum::<u64>();
        for upload in uploads {
            n += 1;
            n_bytes += upload.bytes;
        }
        // A key learns nothing of another key's voices, not even that a name is taken.
        let same = |other: &str, others: Option<&str>, is_upload: bool| {
            other.to_lowercase() == name.to_lowercase() && (!is_upload || others == owner)
        };
        let mut all = state.voices.values().map(|stored| &stored.voice);
        let is_taken = all.any(|voice| same(&voice.name, voice.owner.as_deref(), voice.is_uploaded()))
            || state.voices.contains_key(name)
            || state.pending.iter().any(|one| same(&one.name, one.owner.as_deref(), true));
        if is_taken {
            return Err(invalid(
                "name",
                format!("There is a voice {name:?} already: take another name, or remove it."),
            ));
        }
        if n >= max_voices {
            let message = format!("There are {n} uploaded voices, as many as there may be (tts.max_voices)");
            return Err(VoiceError::Full(message));
        }
        if n_bytes.saturating_add(bytes) > max_bytes {
            let message = format!("The recordings of all voices may have {} MiB together", max_bytes >> 20);
            return Err(VoiceError::Full(message));
        }
        let id = uploaded_id(rand::random());
        let pending = PendingUpload { id: id.clone(), name: name.to_owned(), owner: owner.map(str::to_owned), bytes };
        state.pending.push(pending);
        Ok(VoiceReservation { store: self, id })
    }

    /// A voice of the folder. `Err`: why it cannot be used.
    fn load(&self, id: &str) -> Result<StoredVoice, String> {
        if is_uploaded_id(id) {
            return self.load_upload(id).map_err(|error| error.to_string());
        }
        let files = self.files(id);
        let worded = |error: FileError| error.to_string();
        let (bytes, modified) = files.stat().map_err(|error| error.to_string())?;
        let why = |error: VoiceError| error.to_string();
        let card = files.metadata::<Card>().map_err(worded)?.unwrap_or_default();
        name(id).map_err(why)?;
        let language = self.language(card.language.as_deref()).map_err(why)?;
        let name = card.name.as_deref().map_or_else(|| Ok(id.to_owned()), name).map_err(why)?;
        let transcript = text("ref_text", &files.transcript().map_err(worded)?.unwrap_or_default()).map_err(why)?;
        if self.settings.needs_transcript && transcript.is_empty() {
            return Err(format!("this model needs the words of the recording: put them into {id}.txt"));
        }
        let pcm = files.recording(self.settings.max).map_err(|error| match error {
            FileError::Recording(DecodeError::TooLong { .. }) => {
                format!("the recording is longer than {:?}; cut it", self.settings.max)
            }
            error => error.to_string(),
        })?;
        let note = recording::check(&pcm, &self.settings).map_err(why)?;
        if let Some(note) = &note {
            tracing::info!(voice = id, note, "a voice of the folder");
        }
        let recording_ms = pcm.duration().as_millis() as u64;
        let id = id.to_owned();
        let voice =
            CustomVoice { id, name, language, created_at: modified, recording_ms, consent: None, owner: None, note };
        Ok(StoredVoice { voice, bytes })
    }

    /// An upload of the folder, which is encrypted where it is plain and there is a key.
    fn load_upload(&self, id: &str) -> Result<StoredVoice, LoadError> {
        let mut files = self.files(id);
        let voice = files.metadata::<CustomVoice>()?;
        let voice = voice.filter(|voice| voice.id == id && voice.is_uploaded()).ok_or(LoadError::NoMetadata)?;
        // Without a key, it is plain and stays so.
        let was_sealed = files.is_sealed();
        match if was_sealed { files.remove_plain() } else { files.seal() } {
            Ok(()) if files.is_sealed() && !was_sealed => tracing::info!(voice = id, "an uploaded voice was encrypted"),
            Ok(()) => {}
            Err(error) => tracing::warn!(voice = id, %error, "plain files of an uploaded voice are still there"),
        }
        // It may have been added for another model.
        if voice.recording_ms > self.settings.max.as_millis() as u64 {
            return Err(LoadError::TooLong(self.settings.max));
        }
        if self.settings.needs_transcript && files.transcript()?.is_none() {
            return Err(LoadError::NoTranscript);
        }
        let (bytes, _) = files.stat()?;
        Ok(StoredVoice { voice, bytes })
    }

    /// The language of a recording: one that the engine speaks.
    fn language(&self, asked: Option<&str>) -> Result<String, VoiceError> {
        let known = &self.settings.languages;
        let Some(asked) = asked.map(str::trim).filter(|asked| !asked.is_empty()) else {
            return Ok(known.first().map_or_else(|| "en".into(), String::clone));
        };
        if asked == AUTO && known.iter().any(|known| known == AUTO) {
            return Ok(AUTO.into());
        }
        let primary = |tag: &str| tag.split('-').next().unwrap_or_default().to_ascii_lowercase();
        let is_tag = asked.len() <= 35 && asked.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_tag || !(2..=3).contains(&primary(asked).len()) {
            return Err(invalid("language", "Invalid 'language': expected a tag such as 'en' or 'en-US'."));
        }
        if known.is_empty() || known.iter().any(|known| primary(known) == primary(asked)) {
            return Ok(asked.to_owned());
        }
        Err(invalid("language", format!("The engine does not speak '{asked}'. It speaks: {}.", known.join(", "))))
    }

    fn files(&self, id: &str) -> VoiceFiles {
        VoiceFiles::new(&self.settings.folder, id, self.settings.sealing.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }
}

fn invalid(field: &'static str, message: impl Into<String>) -> VoiceError {
    VoiceError::Invalid { field, message: message.into() }
}

fn reference(id: String, samples: Vec<f32>, transcript: Option<String>, language: String) -> Reference {
    let mut hash = Sha256::new();
    samples.iter().for_each(|sample| hash.update(sample.to_le_bytes()));
    // No transcript and an empty one are the same.
    hash.update(transcript.as_deref().unwrap_or_default());
    Reference { id, digest: hash.finalize().into(), samples, transcript, language }
}

/// A name as people write it, which is part of no path but may be typed into one.
fn name(asked: &str) -> Result<String, VoiceError> {
    let name = asked.trim();
    let wrong = |why: &str| {
        let right = "1 to 64 letters, digits, spaces, '-', '_' and dots inside are right";
        Err(invalid("name", format!("Invalid 'name': {why}; {right}.")))
    };
    if name.is_empty() {
        return wrong("it is empty");
    }
    if name.chars().count() > MAX_NAME {
        return wrong("it is too long");
    }
    if name.starts_with('.') || name.ends_with('.') {
        return wrong("it begins or ends with a dot");
    }
    if !name.chars().all(|c| c.is_alphanumeric() || " -_.'".contains(c)) {
        return wrong("it holds other characters");
    }
    if is_uploaded_id(name) {
        return wrong("it has the form of an id");
    }
    Ok(name.to_owned())
}

/// A text of at most [`MAX_TEXT`] characters without control characters other than line ends.
fn text(field: &'static str, text: &str) -> Result<String, VoiceError> {
    let text = text.trim();
    let n = text.chars().count();
    if n > MAX_TEXT {
        return Err(invalid(field, format!("'{field}' holds {n} characters, and {MAX_TEXT} at most are kept.")));
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err(invalid(field, format!("'{field}' holds control characters.")));
    }
    Ok(text.to_owned())
}
