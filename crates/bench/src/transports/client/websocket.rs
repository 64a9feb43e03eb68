//! A session by WebSocket, through the client of `antiphon ask`.

use super::Received;
use crate::BenchError;
use crate::voice_to_voice::open;
use antiphon_audio::codec;
use antiphon_client::{AudioMode, Connection, RATE, ReceivedMessage as Message};
use antiphon_types::Format;
use bytes::Bytes;
use serde_json::Value;

/// See the module.
pub(in super::super) struct WebSocket(Connection);

impl WebSocket {
    /// Opens a session with the settings of this `session.update`.
    pub(in super::super) async fn open(url: &str, mode: AudioMode, session: &Value) -> Result<Self, BenchError> {
        Ok(Self(open(url, mode, session).await?))
    }

    pub(super) async fn speak(&mut self, frame: &Bytes) -> Result<(), BenchError> {
        let mut samples = Vec::new();
        codec::decode(Format::Pcm16, frame, &mut samples).map_err(|error| BenchError::Method(error.to_string()))?;
        Ok(self.0.sender.audio(&samples).await?)
    }

    pub(super) async fn next(&mut self) -> Result<Received, BenchError> {
        Ok(match self.0.receiver.next().await? {
            Message::Event(event) => Received::Event(event),
            Message::Audio { samples, .. } => Received::Sound { samples, rate: RATE, plays_at: None },
            Message::Resumed(_) => return Err(BenchError::Method("the connection broke".into())),
        })
    }

    pub(super) async fn close(mut self) {
        self.0.sender.close().await;
    }
}
