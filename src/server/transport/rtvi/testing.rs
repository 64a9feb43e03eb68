//! RTVI frames from a stranger, read as a connection reads them: for the fuzz targets. There is no session.

use super::connection::Microphone;
use super::frame::{Frame, Kind};
use super::projection::Projection;
use antiphon_protocol::Dialect;
use antiphon_session::InboundPayload;
use bytes::{Buf, Bytes};
use std::time::Duration;
use tokio::time::Instant;

/// Reads a sequence of frames, each preceded by its length in two bytes, little-endian.
///
/// # Panics
/// A message to the client is no RTVI message, a message becomes audio, or audio grows beyond the ratio of the rates.
pub fn feed(bytes: &[u8]) {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut microphone = Microphone::default();
    let mut projection = Projection::new(Duration::from_secs(2), Dialect::default());
    projection.begin();
    while rest.len() > 2 {
        let n = usize::from(rest.get_u16_le()).min(rest.len());
        match Frame::read(rest.split_to(n)) {
            Ok(Frame { kind: Some(Kind::Audio(audio)) }) => {
                let Some(pieces) = microphone.take(&audio) else { continue };
                let n_bytes: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
                // 8 kHz to 24 kHz, and what the resampler held.
                assert!(n_bytes <= 3 * audio.audio.len() + 4_096, "{n_bytes} bytes of {}", audio.audio.len());
            }
            Ok(Frame { kind: Some(Kind::Message(message)) }) => {
                let outgoing = projection.message_of_client(&message.data, Instant::now());
                assert!(outgoing.to_client.iter().all(|message| message["label"] == "rtvi-ai"));
                assert!(!outgoing.to_session.iter().any(|payload| matches!(payload, InboundPayload::Audio(_))));
            }
            Ok(Frame { kind: None | Some(Kind::Interruption(_)) }) => {}
            // The connection is closed.
            Err(_) => return,
        }
    }
}
