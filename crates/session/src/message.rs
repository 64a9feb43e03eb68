//! A session's outputs as messages of a WebSocket: JSON text, and binary frames of audio.
//!
//! [`super::egress`] encodes with it for a WebSocket's writer, and keeps the messages of a session that its client can resume:
//! what it gets again must be the same bytes. Adapters of other transports read [`Output`] and never come here.

use super::output::{Output, OutputAudio};
use antiphon_protocol::frame::{Frame, FrameKind, HEADER_BYTES};
use antiphon_protocol::{Dialect, encoded_bytes};
use bytes::Bytes;

/// One message for a client with a WebSocket.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A JSON event.
    Text(String),
    /// A binary audio frame.
    Binary(Bytes),
}

impl Message {
    /// Its length.
    pub(super) fn n_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

impl Output {
    /// Its length as a message in bytes, or a little more.
    pub(super) fn n_bytes(&self) -> usize {
        match self {
            Self::Event(output) => encoded_bytes(&output.event, &output.event_id),
            Self::Audio(audio) => HEADER_BYTES + audio.item.as_str().len() + audio.payload.len(),
        }
    }

    /// The message in a dialect that has the event.
    pub(super) fn message(&self, dialect: Dialect) -> Message {
        match self {
            Self::Event(output) => Message::Text(dialect.encode(&output.event, &output.event_id)),
            Self::Audio(audio) => {
                let OutputAudio { item, sequence, offset, payload } = audio.clone();
                let frame = Frame { kind: FrameKind::Reply { item_id: item }, sequence, offset, payload };
                Message::Binary(frame.encode().expect("the hub's own item ids fit a frame"))
            }
        }
    }
}
