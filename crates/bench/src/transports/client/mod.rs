//! One call or session from its client's side, whatever its transport: frames of the microphone out, events and sound in.

mod phone;
mod sip;
mod webrtc;
mod websocket;

use crate::BenchError;
use crate::questions::loud;
use antiphon_audio::codec::{self, Delivery, OpusOut};
use antiphon_client::{Event, FRAME, RATE};
use antiphon_types::{Format, SampleRate};
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::Instant;

pub(super) use phone::Phone;
pub(super) use sip::SipPhone;
pub(super) use webrtc::Webrtc;
pub(super) use websocket::WebSocket;

/// A way to reach the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// PCM16 in JSON or in binary frames.
    WebSocket,
    /// Opus over RTP.
    Webrtc,
    /// Mu-law at 8 kHz in Twilio's messages.
    Phone,
    /// Mu-law at 8 kHz over RTP, by SIP.
    Sip,
}

/// An open call or session.
pub(super) enum Client {
    /// The Realtime API.
    WebSocket(Box<WebSocket>),
    /// The same over WebRTC.
    Webrtc(Box<Webrtc>),
    /// Twilio Media Streams.
    Phone(Box<Phone>),
    /// SIP and RTP.
    Sip(Box<SipPhone>),
}

/// What a client receives.
#[derive(Debug)]
pub(super) enum Received {
    /// An event of the Realtime API; phones get none.
    Event(Event),
    /// Reply audio; `plays_at`: when, else behind what was received before.
    Sound { samples: Vec<i16>, rate: SampleRate, plays_at: Option<Instant> },
    /// What was not played is to be discarded.
    Clear,
}

/// A clip, coded for a transport before the measurement: a client's encoder is no part of it.
#[derive(Clone, Debug)]
pub(super) struct Speech {
    /// Frames of 20 ms.
    pub(super) frames: Arc<Vec<Bytes>>,
    /// The frames with the first and the last loud sample (above 5 % of the peak).
    pub(super) loud: (usize, usize),
}

impl Speech {
    /// Codes samples at [`RATE`].
    pub(super) fn new(transport: Transport, samples: &[i16]) -> Result<Self, BenchError> {
        let (first, last) = loud(samples).ok_or_else(|| BenchError::Clips("a clip is silent".into()))?;
        let frames = Arc::new(transport.code(samples)?);
        Ok(Self { frames, loud: (first / FRAME, last / FRAME) })
    }
}

impl Transport {
    /// Name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "WebSocket",
            Self::Webrtc => "WebRTC",
            Self::Phone => "phone",
            Self::Sip => "SIP",
        }
    }

    /// A quiet room of a second, of which a microphone repeats the frames between two clips.
    pub(super) fn room(self) -> Result<Arc<Vec<Bytes>>, BenchError> {
        let mut state = 1_u32;
        let noise: Vec<i16> = (0..RATE.hz())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 28) as i16 - 8
            })
            .collect();
        Ok(Arc::new(self.code(&noise)?))
    }

    /// Frames of 20 ms; the last one is filled with silence.
    fn code(self, samples: &[i16]) -> Result<Vec<Bytes>, BenchError> {
        let mut whole = samples.to_vec();
        whole.resize(samples.len().next_multiple_of(FRAME), 0);
        let bytes = |format: Format, samples: &[i16]| {
            let mut bytes = Vec::new();
            codec::encode(format, samples, &mut bytes);
            Bytes::from(bytes)
        };
        match self {
            Self::WebSocket => Ok(whole.chunks(FRAME).map(|frame| bytes(Format::Pcm16, frame)).collect()),
            Self::Phone | Self::Sip => {
                let narrow = antiphon_audio::convert(&whole, RATE, SampleRate::HZ_8000);
                Ok(narrow.chunks(phone::FRAME).map(|frame| bytes(Format::Ulaw, frame)).collect())
            }
            Self::Webrtc => {
                let coded = |error| BenchError::Method(format!("Opus: {error}"));
                let mut encoder = OpusOut::new(Delivery::Lossy).map_err(coded)?;
                let mut frames = Vec::new();
                encoder.push(&whole, &mut |packet| frames.push(Bytes::copy_from_slice(packet))).map_err(coded)?;
                Ok(frames)
            }
        }
    }
}

impl Client {
    /// Sends the next 20 ms of the microphone.
    pub(super) async fn speak(&mut self, frame: &Bytes) -> Result<(), BenchError> {
        match self {
            Self::WebSocket(client) => client.speak(frame).await,
            Self::Webrtc(client) => client.speak(frame),
            Self::Phone(client) => client.speak(frame).await,
            Self::Sip(client) => client.speak(frame),
        }
    }

    /// The next event or sound. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Received, BenchError> {
        match self {
            Self::WebSocket(client) => client.next().await,
            Self::Webrtc(client) => client.next().await,
            Self::Phone(client) => client.next().await,
            Self::Sip(client) => client.next().await,
        }
    }

    /// Ends the call.
    pub(super) async fn close(self) {
        match self {
            Self::WebSocket(client) => client.close().await,
            Self::Webrtc(client) => client.close(),
            Self::Phone(client) => client.close().await,
            Self::Sip(client) => client.close().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_are_coded_in_frames_of_20_ms() {
        let clip: Vec<i16> = (0..4_900).map(|i| if i < 960 { 0 } else { (i % 50) * 200 }).collect();
        for transport in [Transport::WebSocket, Transport::Webrtc, Transport::Phone, Transport::Sip] {
            let speech = Speech::new(transport, &clip).expect("loud");
            assert_eq!((speech.frames.len(), speech.loud), (11, (2, 10)), "{transport:?}");
            assert_eq!(transport.room().expect("coded").len(), 50);
        }
    }
}
