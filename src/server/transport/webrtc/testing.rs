//! Offers, datagrams and RTP packets from a stranger, read as the hub reads them: for the fuzz targets. There is no session.

use super::Webrtc;
use super::answer::{answer, media_of};
use super::endpoint::frame;
use super::microphone::{MAX_JUMP, Microphone, SILENCE};
use crate::config::RtcConfig;
use bytes::{Buf, Bytes};
use std::net::SocketAddr;
use str0m::net::{Protocol, Receive};
use str0m::{Input, Output};
use tokio::time::Instant;

/// The steps of str0m between two datagrams at most: each gives a packet or an event.
const MAX_STEPS: usize = 10_000;

/// The sockets and the certificate of a hub, on loopback.
pub struct Peers(Webrtc);

impl Peers {
    /// Binds the sockets.
    ///
    /// # Errors
    /// The machine has no free port.
    ///
    /// # Panics
    /// The settings disable WebRTC.
    pub async fn bind() -> std::io::Result<Self> {
        let config = RtcConfig { listen: "127.0.0.1:0".into(), ..RtcConfig::default() };
        Ok(Self(Webrtc::bind(&config).await?.expect("an address is set")))
    }

    /// Reads an offer.
    ///
    /// # Panics
    /// The answer is none to this offer, or the refusal is no short sentence.
    pub fn offer(&self, sdp: &str) {
        match answer(&self.0, sdp) {
            Ok(answered) => {
                assert_eq!(media_of(&answered.sdp).count(), media_of(sdp).count(), "{}", answered.sdp);
                assert!(answered.sdp.contains("a=ice-lite") && answered.max_message_bytes.is_none_or(|n| n >= 1024));
            }
            Err(refusal) => assert!(!refusal.is_empty() && refusal.len() <= 1024),
        }
    }

    /// Reads datagrams for a call that `offer` has opened: a sequence, each preceded by its length in two bytes, little-endian. Each
    /// is one by UDP, the frames of a TCP connection, and an RTP packet of six bytes of number and time and its payload.
    ///
    /// # Panics
    /// The offer cannot be answered, a datagram finds another call than its own, or a packet makes more silence than a pause may.
    pub async fn datagrams(&self, offer: &str, data: &[u8]) {
        let mut rtc = answer(&self.0, offer).expect("the offer is valid").rtc;
        let endpoint = &self.0.endpoint;
        let mut route = endpoint.list("own".to_owned());
        let known = SocketAddr::from(([127, 0, 0, 1], 5_000));
        let unknown = SocketAddr::from(([127, 0, 0, 1], 5_001));
        route.answers(known);
        let mut microphone = Microphone::default();
        let mut sequence = 0_u64;
        let mut time = 0_u64;
        let mut rest = Bytes::copy_from_slice(data);
        while rest.len() > 2 {
            let n = usize::from(rest.get_u16_le()).min(rest.len());
            let bytes = rest.split_to(n);
            for source in [known, unknown] {
                assert!(endpoint.find(&bytes, Some(source)).is_none_or(|found| route.is(&found)));
            }
            let mut stream = &bytes[..];
            while let Some(framed) = frame(&mut stream).await {
                assert!(!framed.is_empty());
            }
            if let Some((head, payload)) = bytes.split_first_chunk::<6>() {
                // Both count on from the last, with any jump; RTP's are extended by str0m.
                sequence = sequence.wrapping_add(u64::from(u16::from_be_bytes([head[0], head[1]]) as i16 as u16))
                    & 0xffff_ffff;
                time = time.wrapping_add(u64::from(u32::from_be_bytes([head[2], head[3], head[4], head[5]])));
                let mut frames = Vec::new();
                microphone.packet(sequence, time, Bytes::copy_from_slice(payload), &mut frames);
                assert!(frames.len() as u64 <= MAX_JUMP / SILENCE + 1, "{} frames", frames.len());
                let _ = microphone.idle();
            }
            let now = Instant::now().into_std();
            let destination = endpoint.destination(known);
            let Ok(receive) = Receive::new(Protocol::Udp, known, destination, &bytes) else { continue };
            let input = Input::Receive(now, receive);
            if rtc.accepts(&input) && rtc.handle_input(input).is_err() {
                return;
            }
            let drained = (0..MAX_STEPS)
                .map(|_| rtc.poll_output())
                .find(|out| !matches!(out, Ok(Output::Transmit(_) | Output::Event(_))));
            assert!(drained.is_some(), "a datagram has no end of consequences");
        }
    }
}
