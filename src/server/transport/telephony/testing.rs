//! What peers of phone calls send, read as a call reads it: for the fuzz targets. There is no connection and no session.

use super::Provider;
use super::audio::Microphone;
use super::audiosocket::{self, AudioSocket};
use super::leg::{Leg, LegError, Parameters, PeerMessage};
use bytes::{Buf, Bytes, BytesMut};

/// Frames of the peer's numbering that may be lost at once, and what a resampler holds, in bytes for the session.
const SLACK: usize = 1 << 20;

/// Reads the messages of a peer, which the first byte chooses: 0 to 5 those by WebSocket, as messages that are preceded by their
/// length in two bytes, little-endian, with the highest bit of a binary one; others AudioSocket, as a stream that arrives in pieces
/// of the size in the second byte.
///
/// # Panics
/// Audio comes before the start, there are two starts, or audio grows beyond its coding and rate.
pub fn feed(bytes: &[u8]) {
    let Some((&chosen, rest)) = bytes.split_first() else { return };
    let Some(provider) = Provider::ALL.get(usize::from(chosen)) else { return stream(rest) };
    let Ok(leg) = provider.leg(&Parameters::default()) else { return };
    let mut call = Call { leg, microphone: None };
    let mut rest = Bytes::copy_from_slice(rest);
    while rest.len() > 2 {
        let head = rest.get_u16_le();
        let message = rest.split_to(usize::from(head & 0x7fff).min(rest.len()));
        let said = match std::str::from_utf8(&message) {
            Ok(text) if head & 0x8000 == 0 => call.leg.text(text),
            _ => call.leg.binary(message.clone()),
        };
        if call.take(said, message.len()).is_none() {
            return;
        }
    }
}

/// AudioSocket's frames in a stream.
fn stream(bytes: &[u8]) {
    let Some((&size, rest)) = bytes.split_first() else { return };
    let mut call = Call { leg: Box::<AudioSocket>::default(), microphone: None };
    let mut buffer = BytesMut::new();
    for piece in rest.chunks(usize::from(size).max(1)) {
        buffer.extend_from_slice(piece);
        while let Some(frame) = audiosocket::frame(&mut buffer) {
            let n_bytes = frame.len();
            let said = call.leg.binary(frame);
            if call.take(said, n_bytes).is_none() {
                return;
            }
        }
    }
}

struct Call {
    leg: Box<dyn Leg>,
    microphone: Option<Microphone>,
}

impl Call {
    /// `None`: the call is over.
    fn take(&mut self, said: Result<Option<PeerMessage>, LegError>, n_bytes: usize) -> Option<()> {
        match said {
            Ok(Some(PeerMessage::Started(start))) => {
                assert!(self.microphone.is_none(), "a second start is refused");
                self.microphone = Some(Microphone::new(start.input));
                let _ = self.leg.play(start.output.encode(&[0; 160]));
                let _ = self.leg.clear();
                Some(())
            }
            Ok(Some(PeerMessage::Audio { number, audio })) => {
                assert!(!audio.is_empty());
                let microphone = self.microphone.as_mut().expect("audio before the start is refused");
                let frames = microphone.push(number, audio).ok()?;
                let n_out: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
                // G.711 at 8 kHz to PCM16 at 24 kHz; up to four frames that waited.
                assert!(n_out <= 4 * 6 * n_bytes + SLACK, "{n_out} bytes of {n_bytes}");
                Some(())
            }
            Ok(Some(PeerMessage::Key(_) | PeerMessage::Played(_) | PeerMessage::Held(_)) | None) => Some(()),
            Ok(Some(PeerMessage::Ended)) => None,
            Err(error) => {
                assert!(error.to_string().len() <= 200 && (1002..1012).contains(&error.code()), "{error}");
                None
            }
        }
    }
}
