//! The connection of a conversation: to a Realtime server, or to a bot by pipecat's frames.
//!
//! [`super::runner`] calls it. Both ends speak in the messages of a Realtime server.

use super::pipecat::Bot;
use crate::voice_to_voice::open;
use antiphon_client::{AudioMode, ClientError, Connection, ReceivedMessage};
use antiphon_types::ItemId;
use serde_json::Value;

/// How a session is opened.
#[derive(Clone, Debug)]
pub(super) enum SessionOptions {
    /// With a Realtime server.
    Realtime {
        /// The server's address.
        url: String,
        /// How audio travels.
        mode: AudioMode,
        /// The settings of the session.
        update: Value,
    },
    /// With a bot.
    Bot {
        /// The address of its WebSocket.
        url: String,
    },
}

/// An open session.
pub(super) enum Link {
    Realtime(Box<Connection>),
    Bot(Box<Bot>),
}

impl Link {
    pub(super) async fn open(options: &SessionOptions) -> Result<Self, ClientError> {
        match options {
            SessionOptions::Realtime { url, mode, update } => {
                Ok(Self::Realtime(Box::new(open(url, *mode, update).await?)))
            }
            SessionOptions::Bot { url } => Ok(Self::Bot(Box::new(Bot::connect(url).await?))),
        }
    }

    /// The next message. May be dropped at any time without a loss.
    pub(super) async fn next(&mut self) -> Result<ReceivedMessage, ClientError> {
        match self {
            Self::Realtime(connection) => connection.receiver.next().await,
            Self::Bot(bot) => bot.next().await,
        }
    }

    /// Sends a frame of the microphone.
    pub(super) async fn audio(&mut self, frame: &[i16]) -> Result<(), ClientError> {
        match self {
            Self::Realtime(connection) => connection.sender.audio(frame).await,
            Self::Bot(bot) => bot.audio(frame).await,
        }
    }

    /// Reports how much of a reply has sounded. A bot knows from its own clock.
    pub(super) async fn played(&mut self, item_id: &ItemId, heard_ms: u64) -> Result<(), ClientError> {
        match self {
            Self::Realtime(connection) => connection.sender.played(item_id, heard_ms).await,
            Self::Bot(_) => Ok(()),
        }
    }

    /// Whether the client stops a reply when the server hears speech.
    pub(super) fn stops_replies(&self) -> bool {
        match self {
            Self::Realtime(connection) => connection.sender.mode() == AudioMode::Ga,
            Self::Bot(_) => false,
        }
    }

    /// Reports that a reply was stopped, and where.
    pub(super) async fn truncate(&mut self, item_id: &str, heard_ms: u64) -> Result<(), ClientError> {
        match self {
            Self::Realtime(connection) => connection.sender.truncate(item_id, heard_ms).await,
            Self::Bot(_) => Ok(()),
        }
    }

    pub(super) async fn close(&mut self) {
        match self {
            Self::Realtime(connection) => connection.sender.close().await,
            Self::Bot(bot) => bot.close().await,
        }
    }
}
