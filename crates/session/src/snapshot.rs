//! The state of a session at a moment at which only data is in it: no utterance, response or call is under way.
//!
//! The actor makes one at the end of each turn and when the session moves to another hub ([`super::checkpoint`]); `server`
//! stores its bytes and gives them to [`Setup::resume`](super::Setup::resume) on the hub that the client comes back to. JSON, since a newer build
//! must read an older one's. It holds what was said and the keys of remote servers: it must be stored encrypted. This module
//! reads no clock and stores nothing.

use super::message::Message;
use super::output::AudioMode;
use antiphon_dialog::Dialog;
use antiphon_dialog::turn::TurnTaker;
use antiphon_protocol::StoredSession;
use antiphon_types::{IdMint, ItemId, KeyId, ResponseId, Samples, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// The schema that is written, and the newest that is read. A change of a name or a meaning in the types below, or in those
/// that they hold (the dialog, turn-taking, the session object), raises it, unless an older build reads the new form correctly.
pub const SNAPSHOT_SCHEMA: u32 = 1;

/// The longest snapshot that is read, in bytes: a conversation of 4 MiB of text, as JSON, with 1 MiB of unacknowledged messages
/// and 30 s of audio in base64, twice.
pub const MAX_SNAPSHOT_BYTES: usize = 16 << 20;

/// Why a snapshot cannot be resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It is of a newer build.
    #[error("its schema is {found}, and this build reads schemas up to {SNAPSHOT_SCHEMA}: upgrade this hub")]
    Newer {
        /// Its schema.
        found: u32,
    },
    /// It is larger than any session can be.
    #[error("it has {0} bytes, more than a session can have")]
    TooLarge(usize),
    /// It is cut short, or holds something that this build does not know.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// A session's state. It does not implement `Debug`: it holds what was said, and keys.
#[derive(Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) schema: u32,
    /// Version of the hub that wrote it, for the log.
    pub(super) build: String,
    /// The session went back to this message of its own, and its client may not know yet: it has sent nothing since.
    #[serde(default)]
    pub(super) went_back_to: Option<u64>,
    pub(super) owner: Option<KeyId>,
    pub(super) mode: AudioMode,
    pub(super) beta: bool,
    pub(super) session: StoredSession,
    pub(super) kind_is_fixed: bool,
    pub(super) conversation: String,
    /// Of events, and of items with inline audio.
    pub(super) ids: IdMint,
    /// Names of turns in the turn history, and how many there were.
    pub(super) turns: (IdMint, u64),
    pub(super) dialog: Dialog,
    /// Time of the session, and wall time, when it was written.
    pub(super) at: Timestamp,
    pub(super) wall: Duration,
    #[serde(rename = "is_there")]
    pub(super) client_connected: bool,
    /// Messages of the client that are part of this state.
    pub(super) received: u64,
    pub(super) log: StoredLog,
    pub(super) playback: StoredPlayback,
    pub(super) input: StoredInput,
}

/// What was sent and may not have arrived.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredLog {
    /// The number of the last message that the client has acknowledged.
    pub(super) answered: u64,
    #[serde(with = "messages")]
    pub(super) messages: Vec<Message>,
}

/// Frames that wait for their time.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredPlayback {
    pub(super) sequence: u32,
    pub(super) sounded_by: Samples,
    pub(super) waiting: Vec<StoredFrame>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredFrame {
    pub(super) response: ResponseId,
    pub(super) item: ItemId,
    pub(super) what: StoredQueued,
}

#[derive(Serialize, Deserialize)]
pub(super) enum StoredQueued {
    Audio {
        #[serde(with = "base64_bytes")]
        payload: Vec<u8>,
        offset: Samples,
        n: Samples,
    },
    End {
        index: u32,
        part: u32,
    },
}

/// The microphone.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredInput {
    pub(super) turn: TurnTaker,
    /// Turn time.
    pub(super) position: Samples,
    pub(super) buffer_start: Samples,
    /// The number of the next frame; `None` before the first.
    pub(super) sequence: Option<u32>,
    /// Audio at 16 kHz before `position`, in which the next utterance may begin.
    #[serde(with = "base64_samples")]
    pub(super) recent: Vec<i16>,
    /// Audio at 16 kHz that has filled no window yet.
    #[serde(with = "base64_samples")]
    pub(super) waiting: Vec<i16>,
}

impl Snapshot {
    /// Reads what [`Snapshot::to_bytes`] wrote.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        if bytes.len() > MAX_SNAPSHOT_BYTES {
            return Err(SnapshotError::TooLarge(bytes.len()));
        }
        // The message of serde_json may quote what was said.
        let unreadable = |error: serde_json::Error| {
            SnapshotError::Unreadable(format!(
                "{:?} error at byte {} of {}",
                error.classify(),
                error.column(),
                bytes.len()
            ))
        };
        let Head { schema } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if schema > SNAPSHOT_SCHEMA {
            return Err(SnapshotError::Newer { found: schema });
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }

    /// Its stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a session has text for keys")
    }

    /// The API key that the session belongs to.
    pub fn owner(&self) -> Option<KeyId> {
        self.owner
    }

    /// How its audio travels.
    pub fn mode(&self) -> AudioMode {
        self.mode
    }

    /// Whether its client speaks the protocol of before GA.
    pub fn is_beta(&self) -> bool {
        self.beta
    }

    /// The session goes back to this state: what its client received after it is void. New identifiers are none that the
    /// client may have seen.
    pub fn go_back(mut self, with: u64) -> Self {
        self.went_back_to = Some(self.sent());
        self.dialog = self.dialog.with_forked_ids(with);
        self.ids.fork(with);
        self.turns.0.fork(with);
        self
    }

    /// The number of the message that the session went back to, while its client may not know.
    pub fn went_back_to(&self) -> Option<u64> {
        self.went_back_to
    }

    /// Messages of the client that are part of it.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The number of the last message that the session has sent.
    pub fn sent(&self) -> u64 {
        self.log.answered + self.log.messages.len() as u64
    }

    /// Version of the hub that wrote it.
    pub fn build(&self) -> &str {
        &self.build
    }
}

mod base64_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        BASE64.decode(String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

mod base64_samples {
    use super::*;

    pub(super) fn serialize<S: Serializer>(samples: &[i16], to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        base64_bytes::serialize(&bytes, to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<i16>, D::Error> {
        let bytes = base64_bytes::deserialize(from)?;
        let (samples, rest) = bytes.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(serde::de::Error::custom("half a sample"));
        }
        Ok(samples.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect())
    }
}

mod messages {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum StoredMessage<'a> {
        #[serde(borrow)]
        Text(std::borrow::Cow<'a, str>),
        Binary(String),
    }

    pub(super) fn serialize<S: Serializer>(messages: &[Message], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(messages.iter().map(|message| match message {
            Message::Text(text) => StoredMessage::Text(text.into()),
            Message::Binary(bytes) => StoredMessage::Binary(BASE64.encode(bytes)),
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Message>, D::Error> {
        let stored = Vec::<StoredMessage>::deserialize(from)?;
        let message = |stored| match stored {
            StoredMessage::Text(text) => Ok(Message::Text(text.into_owned())),
            StoredMessage::Binary(text) => match BASE64.decode(text) {
                Ok(bytes) => Ok(Message::Binary(Bytes::from(bytes))),
                Err(error) => Err(serde::de::Error::custom(error)),
            },
        };
        stored.into_iter().map(message).collect()
    }
}
