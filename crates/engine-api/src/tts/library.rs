//! Custom voices: what a client adds to an engine that clones voices, as a reference recording with a consent.
//!
//! `server` serves `/v1/audio/voices` from it. An engine that speaks with custom voices returns a library from
//! `Tts::voice_library`; a voice of the library is then a voice of that engine, by its id.

use super::{Tts, Voice};
use antiphon_types::{KeyId, Pcm};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Beginning of the id of every uploaded voice; 16 hexadecimal digits follow.
const UPLOADED: &str = "voice_";

/// A voice to add.
#[derive(Clone, Debug)]
pub struct NewVoice {
    /// Name for people; the id is derived from it. 1 to 64 characters.
    pub name: String,
    /// BCP-47 tag of the language spoken in the recording; `None`: the engine's first.
    pub language: Option<String>,
    /// The reference recording.
    pub recording: Recording,
    /// The words of the recording, where they are known; some engines clone better with them.
    pub transcript: Option<String>,
    /// The speaker's consent. A voice without one is refused by the server before it arrives here.
    pub consent: Consent,
    /// Id of the API key that adds the voice; `None` where keys are off.
    pub owner: Option<String>,
}

/// A reference recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Mono, at the rate of the file.
    pub pcm: Pcm,
}

/// The statement that the speaker agrees to the cloning of the voice. It is stored with the voice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The statement as the client sent it: a text, or the id of a consent recording. 1 to 2000 characters.
    pub statement: String,
    /// When it was received, in seconds since 1970.
    pub received_at: u64,
}

/// A voice that was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomVoice {
    /// Id used in requests: `voice_` and 16 hexadecimal digits for uploads, the file's name for a voice of the folder.
    pub id: String,
    /// Display name.
    pub name: String,
    /// BCP-47 tag, or `auto`: each text in its own language.
    pub language: String,
    /// When it was added, in seconds since 1970.
    pub created_at: u64,
    /// Playing time of the recording in milliseconds.
    pub recording_ms: u64,
    /// `None` for a voice that the operator put into the folder.
    pub consent: Option<Consent>,
    /// Id of the API key that added it.
    pub owner: Option<String>,
    /// What there is to know of the recording: that only its first seconds are used, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl CustomVoice {
    /// Whether a client added it, and may remove it; otherwise it is the operator's, which everybody may use.
    pub fn is_uploaded(&self) -> bool {
        self.consent.is_some()
    }

    /// Whether requests of this scope may see, use and remove it.
    pub fn is_visible(&self, scope: VoiceScope) -> bool {
        match scope {
            _ if !self.is_uploaded() => true,
            VoiceScope::All => true,
            VoiceScope::Key(key) => self.owner.as_ref().is_some_and(|owner| *owner == key.to_string()),
            VoiceScope::Nobody => false,
        }
    }

    /// The same as a voice of the engine.
    pub fn voice(&self) -> Voice {
        Voice { id: self.id.clone(), name: self.name.clone(), language: self.language.clone() }
    }
}

/// Whose uploaded voices a request may use. The operator's are everybody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VoiceScope {
    /// Everybody's: an administrator's request, or a hub without keys.
    All,
    /// Those of one API key.
    Key(KeyId),
    /// Nobody's.
    #[default]
    Nobody,
}

impl From<Option<KeyId>> for VoiceScope {
    /// The scope of a session: its key's, or everybody's where the hub has no keys.
    fn from(owner: Option<KeyId>) -> Self {
        owner.map_or(Self::All, Self::Key)
    }
}

/// Whether `id` has the form of an uploaded voice's: `voice_` and 16 lower-case hexadecimal digits.
pub fn is_uploaded_id(id: &str) -> bool {
    let digits = id.strip_prefix(UPLOADED).unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// An uploaded voice's id of these random bits.
pub fn uploaded_id(bits: u64) -> String {
    format!("{UPLOADED}{bits:016x}")
}

/// The id of the voice that a request names: a custom voice that `scope` allows, by its id or its name (of several of one
/// name, the latest), or another that the engine accepts. Does not block.
///
/// # Errors
/// What is wrong, and which names are valid, as [`Tts::check_voice`] words it.
pub fn find_voice(tts: &dyn Tts, asked: &str, scope: VoiceScope) -> Result<String, String> {
    let Some(library) = tts.voice_library() else { return tts.check_voice(asked).map(|()| asked.to_owned()) };
    let voices = library.list();
    let of_id = voices.iter().find(|voice| voice.id == asked);
    if of_id.is_some_and(|voice| voice.is_visible(scope)) {
        return Ok(asked.to_owned());
    }
    let fixed = tts.voices();
    let is_fixed = fixed.iter().any(|voice| voice.id == asked);
    let named = voices.iter().filter(|voice| voice.name == asked && voice.is_visible(scope));
    if let Some(voice) = named.max_by_key(|voice| voice.created_at).filter(|_| !is_fixed) {
        return Ok(voice.id.clone());
    }
    if library.unusable().iter().any(|voice| voice.id == asked) {
        return Err(format!("the voice {asked} is there and cannot be used; the operator's log says why"));
    }
    // Another owner's voice is as unknown as one that was removed.
    if of_id.is_some() || is_uploaded_id(asked) {
        return Err(format!("there is no voice {asked}; it may have been removed"));
    }
    tts.check_voice(asked).map(|()| asked.to_owned())
}

/// What a library takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoiceLimits {
    /// The shortest recording, in milliseconds.
    pub min_recording_ms: u64,
    /// The longest recording, in milliseconds.
    pub max_recording_ms: u64,
    /// What the engine uses of a recording, in milliseconds from its beginning.
    pub used_recording_ms: u64,
    /// The lowest sampling rate of a recording, in hertz.
    pub min_rate_hz: u32,
    /// BCP-47 tags of the languages that the engine speaks, and `auto` where it can find out by the text.
    pub languages: Vec<String>,
    /// Whether a voice needs the words of its recording.
    pub needs_transcript: bool,
    /// Uploaded voices that find room, of all keys together.
    pub max_voices: usize,
}

impl VoiceLimits {
    /// The longest recording.
    pub fn max_recording(&self) -> Duration {
        Duration::from_millis(self.max_recording_ms)
    }
}

/// A voice that is there and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnusableVoice {
    /// Its id.
    pub id: String,
    /// Why, for the operator: its files are sealed with another key, for example.
    pub reason: String,
}

/// Why a voice was not added or removed. The text is for the client and says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    /// The recording or a field cannot be used: too short or long, silent, of a language that the model lacks.
    #[error("{message}")]
    Invalid {
        /// The field at fault, as the speech API names it.
        field: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// There is no voice of that id.
    #[error("there is no voice {0:?}")]
    Unknown(String),
    /// The voice is not the client's to remove: the operator put it there.
    #[error("{0}")]
    Fixed(String),
    /// The library is full.
    #[error("{0}")]
    Full(String),
    /// The engine cannot take it now; the request may be repeated.
    #[error("{0}")]
    Busy(String),
    /// The engine or its store failed; the details were logged.
    #[error("{0}")]
    Failed(String),
}

/// Custom voices of one engine. Shared by all requests.
pub trait VoiceLibrary: Send + Sync {
    /// All custom voices, sorted by id. Does not block.
    fn list(&self) -> Vec<CustomVoice>;

    /// Voices that are there and cannot be used, sorted by id. Does not block.
    fn unusable(&self) -> Vec<UnusableVoice> {
        Vec::new()
    }

    /// What it takes. Does not block.
    fn limits(&self) -> VoiceLimits;

    /// Checks the recording, stores the voice and makes it available to new requests; takes as long as the engine's
    /// conditioning. Dropping the future gives up the wait; the voice may be added all the same, but never in part.
    fn add(&self, voice: NewVoice) -> BoxFuture<'static, Result<CustomVoice, VoiceError>>;

    /// Removes a voice; chunks under way are spoken to their end.
    fn remove(&self, id: &str) -> BoxFuture<'static, Result<(), VoiceError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uploaded_id_is_told_from_other_names() {
        assert!(is_uploaded_id(&uploaded_id(0x2a)) && uploaded_id(0x2a) == "voice_000000000000002a");
        for other in ["voice_", "voice_1", "voice_000000000000002A", "voice_000000000000002a0", "anna", ""] {
            assert!(!is_uploaded_id(other), "{other}");
        }
    }
}
