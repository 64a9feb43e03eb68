//! Custom voices: what a client adds to an engine that clones voices, as a reference recording with a consent.
//!
//! `server` serves `/v1/audio/voices` from it. An engine that speaks with custom voices returns a library from
//! `Tts::voice_library`; a voice of the library is then a voice of that engine, by its id.

use antiphon_types::Pcm;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

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
    /// BCP-47 tag.
    pub language: String,
    /// When it was added, in seconds since 1970.
    pub created_at: u64,
    /// Playing time of the recording in milliseconds.
    pub recording_ms: u64,
    /// `None` for a voice that the operator put into the folder.
    pub consent: Option<Consent>,
    /// Id of the API key that added it.
    pub owner: Option<String>,
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

    /// Checks the recording, stores the voice and makes it available to new requests. Dropping the future gives up the wait;
    /// the voice may be added all the same.
    fn add(&self, voice: NewVoice) -> BoxFuture<'static, Result<CustomVoice, VoiceError>>;

    /// Removes a voice; chunks under way are spoken to their end.
    fn remove(&self, id: &str) -> BoxFuture<'static, Result<(), VoiceError>>;
}
