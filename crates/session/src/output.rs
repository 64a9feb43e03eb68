//! What leaves a session: its events, and packets of reply audio.
//!
//! The session puts outputs into its log ([`super::egress`]), adapters of transports read them from there. As a WebSocket's
//! messages they are in [`super::message`].

use antiphon_protocol::ServerEvent;
use antiphon_types::{ItemId, Samples};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// One output of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// An event.
    Event(Box<OutputEvent>),
    /// Reply audio, in a session whose audio is not in events.
    Audio(OutputAudio),
}

/// An event and its id.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputEvent {
    /// `event_...`, once in a session.
    pub event_id: String,
    /// The event.
    pub event: ServerEvent,
}

/// One packet of reply audio: 20 ms, the last of an item may be shorter, `session.lead_ms` ahead of playback.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputAudio {
    /// The item it belongs to.
    pub item: ItemId,
    /// Number of the packet in the session, from 0, wrapping.
    pub sequence: u32,
    /// Its first sample within the item, at 24 kHz.
    pub offset: Samples,
    /// PCM16 at 24 kHz or one Opus packet, as the session's [`AudioMode`] says.
    pub payload: Bytes,
}

/// How audio travels on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AudioMode {
    /// Base64 in JSON events, as the GA protocol has it; sent as produced.
    #[default]
    Events,
    /// Binary frames of PCM16 at 24 kHz, paced.
    Pcm16,
    /// Binary frames of one Opus packet, paced.
    Opus,
}
