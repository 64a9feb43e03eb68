//! The jitter buffer of one call: from RTP packets to the caller's sound in order, and keys.
//!
//! [`super::media`] pushes each packet and takes what is due. A missing packet is waited for until four later ones are
//! there or for 60 ms, then it is concealed. A pause of the sender (silence suppression, comfort noise) becomes silence
//! of the same length; where nothing comes at all, silence stands in after 60 ms, so that turns end, and is taken off
//! the next pause. Sound is not kept for a playback clock: the session counts samples, and a sender whose clock is fast
//! or slow is followed. It reads no clock.

use super::coder::Decoder;
use antiphon_sip::rtp::{Packet, key_of_event};
use antiphon_sip::sdp::Agreed;
use antiphon_types::Samples;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Later packets after which a missing one counts as lost; and how long it is waited for.
const REORDERED: usize = 4;
const WAIT: Duration = Duration::from_millis(60);
/// A jump of the numbers or of the time beyond this restarts the stream.
const MAX_JUMP: i64 = 100;
const MAX_PAUSE_SECONDS: u64 = 2;
/// Silence for a sender that sends nothing: after this time, in steps.
const STEP: Duration = Duration::from_millis(20);
/// Sound during a key and shortly after it is the key's tone.
const TONE: Duration = Duration::from_millis(60);
/// The payload type of comfort noise (RFC 3389), which some send without having offered it. It is heard as silence: what a
/// recognizer needs of noise is nothing.
const COMFORT_NOISE: u8 = 13;

/// What a caller does.
#[derive(Debug, PartialEq)]
pub(super) enum LineEvent {
    /// Samples at the decoder's rate.
    Sound(Vec<i16>),
    Key(char),
}

/// See the module.
pub(super) struct Receiver {
    decoder: Decoder,
    payload_type: u8,
    events_type: Option<u8>,
    noise_type: u8,
    /// RTP's clock, in Hz.
    clock_hz: u64,
    ssrc: Option<u32>,
    next: Option<Expected>,
    waiting: BTreeMap<i64, Packet>,
    /// Since when a packet is missing behind which others wait.
    gap_since: Option<Instant>,
    /// The time of the key that was reported last.
    key_time: Option<u32>,
    key_until: Option<Instant>,
    out: VecDeque<LineEvent>,
}

/// What comes next.
struct Expected {
    /// Extended by the numbers' wraps.
    sequence: i64,
    timestamp: u32,
    /// Length of the last packet with sound, in ticks.
    duration: u32,
    /// Silence, in ticks, that stood in since.
    filled: u32,
    /// Silence that stood in for packets that came after all.
    ahead: u32,
    /// When silence is due.
    quiet_at: Instant,
}

impl Receiver {
    pub(super) fn new(decoder: Decoder, agreed: &Agreed) -> Self {
        Self {
            decoder,
            payload_type: agreed.payload_type,
            events_type: agreed.events.map(|(number, _)| number),
            noise_type: agreed.noise.unwrap_or(COMFORT_NOISE),
            clock_hz: u64::from(agreed.codec.clock_hz()),
            ssrc: None,
            next: None,
            waiting: BTreeMap::new(),
            gap_since: None,
            key_time: None,
            key_until: None,
            out: VecDeque::new(),
        }
    }

    /// Whether a packet is of this call's stream.
    pub(super) fn takes(&self, packet: &Packet) -> bool {
        packet.payload_type == self.payload_type
            || Some(packet.payload_type) == self.events_type
            || packet.payload_type == self.noise_type
    }

    /// Whether a packet's timestamp follows the time, as those of telephone events do not.
    pub(super) fn is_media(&self, packet: &Packet) -> bool {
        packet.payload_type == self.payload_type
    }

    /// Takes a packet. One that is not of the stream is dropped.
    pub(super) fn push(&mut self, packet: Packet, now: Instant) {
        if !self.takes(&packet) {
            return;
        }
        if self.ssrc != Some(packet.ssrc) {
            self.restart(&packet, now);
        }
        let Some(expected) = &self.next else { return };
        let distance = i64::from(packet.sequence.wrapping_sub(expected.sequence as u16) as i16);
        let pause = packet.timestamp.wrapping_sub(expected.timestamp) as i32;
        let longest = MAX_PAUSE_SECONDS * self.clock_hz;
        let is_event = Some(packet.payload_type) == self.events_type;
        if distance.abs() > MAX_JUMP || !is_event && u64::from(pause.unsigned_abs()) > longest {
            self.restart(&packet, now);
        }
        let Some(expected) = &self.next else { return };
        let distance = i64::from(packet.sequence.wrapping_sub(expected.sequence as u16) as i16);
        if distance < 0 {
            // Late or a duplicate.
            return;
        }
        let sequence = expected.sequence + distance;
        self.waiting.insert(sequence, packet);
        if distance > 0 {
            self.gap_since.get_or_insert(now);
        }
        self.advance(now);
    }

    /// What the caller does next.
    pub(super) fn pop(&mut self) -> Option<LineEvent> {
        self.out.pop_front()
    }

    /// When [`Receiver::expire`] is due; `None` before the first packet.
    pub(super) fn due(&self) -> Option<Instant> {
        // Packets that wait for a missing one are no silence.
        let quiet = self.next.as_ref().map(|expected| expected.quiet_at);
        self.gap_since.map(|since| since + WAIT).or(quiet)
    }

    /// Gives up what is missing and puts silence where nothing comes.
    pub(super) fn expire(&mut self, now: Instant) {
        self.advance(now);
        let ticks = (self.clock_hz * STEP.as_millis() as u64 / 1_000) as u32;
        let n = Samples::from_ms(STEP.as_millis() as u64, self.decoder.rate());
        let is_quiet = self.waiting.is_empty();
        let Some(expected) = self.next.as_mut().filter(|expected| is_quiet && expected.quiet_at <= now) else { return };
        expected.filled = expected.filled.saturating_add(ticks);
        // One that was not polled for long does not catch up.
        expected.quiet_at = (expected.quiet_at + STEP).max(now);
        self.out.push_back(LineEvent::Sound(vec![0; n.0 as usize]));
    }

    /// The next packet begins a stream.
    pub(super) fn forget_stream(&mut self) {
        self.ssrc = None;
    }

    fn restart(&mut self, packet: &Packet, now: Instant) {
        self.waiting.clear();
        self.gap_since = None;
        self.ssrc = Some(packet.ssrc);
        self.next = Some(Expected {
            sequence: i64::from(packet.sequence),
            timestamp: packet.timestamp,
            duration: (self.clock_hz / 50) as u32,
            filled: 0,
            ahead: 0,
            quiet_at: now + WAIT + STEP,
        });
    }

    /// Takes all packets that are in order, and those behind a gap that is given up.
    fn advance(&mut self, now: Instant) {
        loop {
            let Some(expected) = &self.next else { return };
            let Some((&sequence, _)) = self.waiting.first_key_value() else {
                self.gap_since = None;
                return;
            };
            if sequence > expected.sequence {
                let is_late = self.gap_since.is_some_and(|since| since + WAIT <= now);
                if !is_late && self.waiting.len() < REORDERED {
                    return;
                }
                let n_lost = sequence - expected.sequence;
                self.conceal(n_lost, sequence);
                // A further gap has a wait of its own.
                self.gap_since = Some(now);
            }
            if let Some(packet) = self.waiting.remove(&sequence) {
                self.take(sequence, packet, now);
            }
        }
    }

    /// Puts sound in the place of lost packets before the one with this number.
    fn conceal(&mut self, n_lost: i64, sequence: i64) {
        let Some(expected) = &mut self.next else { return };
        let Some(following) = self.waiting.get(&sequence) else { return };
        let missing = following.timestamp.wrapping_sub(expected.timestamp);
        let is_sound = following.payload_type == self.payload_type;
        // What was filled with silence meanwhile is not filled again.
        let left = missing.saturating_sub(expected.filled);
        let most = expected.duration.saturating_mul(n_lost.min(MAX_JUMP) as u32);
        let n_ticks = left.min(most);
        if (missing as i32) < 0 || !is_sound || n_ticks == 0 {
            expected.sequence = sequence;
            return;
        }
        let mut ticks = 0;
        while ticks < n_ticks {
            let step = expected.duration.min(n_ticks - ticks).max(1);
            let n = Samples(u64::from(step) * u64::from(self.decoder.rate().hz()) / self.clock_hz);
            let is_last = ticks + step >= n_ticks;
            let next = is_last.then_some(following.payload.as_ref());
            self.out.push_back(LineEvent::Sound(self.decoder.conceal(n, next)));
            ticks += step;
        }
        expected.sequence = sequence;
        expected.timestamp = expected.timestamp.wrapping_add(n_ticks);
    }

    fn take(&mut self, sequence: i64, packet: Packet, now: Instant) {
        let Packet { payload_type, timestamp, payload, .. } = packet;
        if Some(payload_type) == self.events_type {
            self.key(sequence, timestamp, &payload, now);
            return;
        }
        if payload_type == self.noise_type {
            if let Some(expected) = &mut self.next {
                expected.sequence = sequence + 1;
            }
            return;
        }
        self.pause_until(timestamp);
        let mut samples = self.decoder.decode(&payload);
        let n_ticks = (samples.len() as u64 * self.clock_hz / u64::from(self.decoder.rate().hz())) as u32;
        if self.key_until.is_some_and(|until| now < until) {
            samples.fill(0);
        }
        if let Some(expected) = &mut self.next {
            expected.sequence = sequence + 1;
            expected.timestamp = timestamp.wrapping_add(n_ticks);
            expected.duration = if n_ticks == 0 { expected.duration } else { n_ticks };
            expected.filled = 0;
            let length = Duration::from_micros(u64::from(n_ticks) * 1_000_000 / self.clock_hz);
            expected.quiet_at = now + WAIT + length.max(STEP);
        }
        if !samples.is_empty() {
            self.out.push_back(LineEvent::Sound(samples));
        }
    }

    /// Silence up to this time of the stream, less what stood in for it already.
    fn pause_until(&mut self, timestamp: u32) {
        let Some(expected) = &mut self.next else { return };
        let pause = timestamp.wrapping_sub(expected.timestamp);
        let pause = if (pause as i32) < 0 { 0 } else { pause };
        expected.ahead = expected.ahead.saturating_add(expected.filled.saturating_sub(pause));
        let left = pause.saturating_sub(expected.filled);
        let repaid = left.min(expected.ahead);
        expected.ahead -= repaid;
        let n = u64::from(left - repaid) * u64::from(self.decoder.rate().hz()) / self.clock_hz;
        if n > 0 {
            self.out.push_back(LineEvent::Sound(vec![0; n as usize]));
        }
    }

    /// A key is reported by its first packet: the others repeat it, and the last one may be lost.
    fn key(&mut self, sequence: i64, timestamp: u32, payload: &Bytes, now: Instant) {
        if let Some(expected) = &mut self.next {
            expected.sequence = sequence + 1;
        }
        self.key_until = Some(now + TONE);
        if self.key_time == Some(timestamp) {
            return;
        }
        self.key_time = Some(timestamp);
        if let Some(key) = key_of_event(payload) {
            self.out.push_back(LineEvent::Key(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_sip::sdp::Codec;
    use proptest::prelude::*;

    fn receiver(codec: Codec) -> Receiver {
        let agreed = Agreed {
            codec,
            payload_type: 0,
            events: Some((101, 8_000)),
            remote: None,
            peer_receives: true,
            peer_sends: true,
            srtp: None,
            noise: None,
            has_mux: true,
            rtcp: None,
            profile: "RTP/AVP".to_owned(),
            refused_before: Vec::new(),
            refused_after: Vec::new(),
        };
        Receiver::new(Decoder::new(codec).unwrap(), &agreed)
    }

    fn packet(sequence: u16, timestamp: u32, n: usize) -> Packet {
        let payload = Bytes::from(vec![0x90; n]);
        Packet { payload_type: 0, marker: false, sequence, timestamp, ssrc: 1, payload }
    }

    fn event(sequence: u16, timestamp: u32, key: u8) -> Packet {
        let payload = Bytes::from(vec![key, 10, 0, 160]);
        Packet { payload_type: 101, marker: false, sequence, timestamp, ssrc: 1, payload }
    }

    /// Sounds as `L` (loud) or `.` (silence) for each 10 ms at 8 kHz, keys as they are.
    fn drain(receiver: &mut Receiver) -> String {
        let mut text = String::new();
        while let Some(heard) = receiver.pop() {
            match heard {
                LineEvent::Key(key) => text.push(key),
                LineEvent::Sound(samples) => {
                    text.extend(
                        samples.chunks(80).map(|chunk| if chunk.iter().any(|s| s.abs() > 500) { 'L' } else { '.' }),
                    );
                }
            }
        }
        text
    }

    /// Packets as (number, time in packets of 20 ms, milliseconds since the beginning).
    fn run(arrivals: &[(u16, u32, u64)], end_ms: u64) -> String {
        let mut receiver = receiver(Codec::Pcmu);
        let start = Instant::now();
        let mut text = String::new();
        let mut arrivals = arrivals.iter().peekable();
        for ms in 0..=end_ms {
            let now = start + Duration::from_millis(ms);
            while let Some((sequence, time, _)) = arrivals.next_if(|(_, _, at)| *at <= ms) {
                receiver.push(packet(*sequence, time * 160, 160), now);
            }
            if receiver.due().is_some_and(|due| due <= now) {
                receiver.expire(now);
            }
            text.push_str(&drain(&mut receiver));
        }
        text
    }

    #[tokio::test(start_paused = true)]
    async fn packets_come_in_order_and_once() {
        assert_eq!(run(&[(65_535, 0, 0), (1, 2, 40), (0, 1, 41), (0, 1, 42), (2, 3, 60)], 80), "LLLLLLLL");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_packet_is_concealed_once_others_are_there_or_after_a_while() {
        assert_eq!(
            run(&[(1, 0, 0), (2, 1, 20), (4, 3, 60), (5, 4, 80), (6, 5, 100), (7, 6, 120)], 130),
            "LLLLLLLLLLLLLL"
        );
        // The concealed one, then what waited for it.
        assert_eq!(run(&[(1, 0, 0), (2, 1, 20), (4, 3, 21)], 82), "LLLLLLLL");
        // Three later ones wait, and four do not.
        let four = [(1, 0, 0), (2, 1, 20), (4, 3, 21), (5, 4, 21), (6, 5, 21), (7, 6, 21)];
        assert_eq!(run(&four[..5], 21), "LLLL");
        assert_eq!(run(&four, 21), "LLLLLLLLLLLLLL");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_the_sender_is_silence_of_the_same_length() {
        // At 200 ms the sender goes on, and says how long it paused.
        let text = run(&[(1, 0, 0), (2, 10, 200)], 210);
        assert_eq!(text, format!("LL{}LL", "..".repeat(9)));
        // Late packets are not silence and sound both: the next pause is shorter.
        let text = run(&[(1, 0, 0), (2, 1, 120), (3, 10, 200)], 210);
        assert_eq!(text.len(), 2 * 11, "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn packets_of_any_length_are_taken() {
        for n in [80, 160, 240, 480] {
            let mut receiver = receiver(Codec::Pcmu);
            for number in 0..4u16 {
                receiver.push(packet(number, u32::from(number) * n as u32, n), Instant::now());
            }
            assert_eq!(drain(&mut receiver), "L".repeat(4 * n / 80), "{n} samples");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_reported_once_and_its_tone_is_silence() {
        let mut receiver = receiver(Codec::Pcmu);
        let now = Instant::now();
        receiver.push(packet(1, 0, 160), now);
        for number in 2..6 {
            receiver.push(event(number, 160, 5), now);
        }
        receiver.push(packet(6, 160, 160), now);
        receiver.push(event(7, 1_000, 11), now + Duration::from_secs(1));
        receiver.push(packet(8, 1_000, 160), now + Duration::from_secs(2));
        assert_eq!(drain(&mut receiver).replace('.', ""), "LL5#LL");
    }

    #[tokio::test(start_paused = true)]
    async fn comfort_noise_is_a_pause_of_its_length() {
        let mut receiver = receiver(Codec::Pcmu);
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let noise = |sequence: u16, timestamp: u32, n: usize| {
            let payload = Bytes::from(vec![20; n]);
            Packet { payload_type: COMFORT_NOISE, payload, ..packet(sequence, timestamp, 0) }
        };
        receiver.push(packet(1, 0, 160), at(0));
        receiver.push(noise(2, 160, 1), at(20));
        // With the shape of the noise, as some write it.
        receiver.push(noise(3, 1_760, 11), at(220));
        receiver.push(packet(4, 3_200, 160), at(400));
        assert_eq!(drain(&mut receiver), format!("LL{}LL", "..".repeat(19)));
    }

    #[tokio::test(start_paused = true)]
    async fn another_stream_restarts() {
        let mut receiver = receiver(Codec::Pcmu);
        let now = Instant::now();
        receiver.push(packet(1, 0, 160), now);
        receiver.push(Packet { ssrc: 2, ..packet(40_000, 9_999_999, 160) }, now);
        receiver.push(Packet { ssrc: 2, ..packet(10_000, 1, 160) }, now);
        receiver.push(Packet { payload_type: 18, ..packet(10_001, 161, 160) }, now);
        assert_eq!(drain(&mut receiver), "LLLLLL");
    }

    proptest! {
        #[test]
        fn no_packets_panic_or_make_much_of_little(
            packets in proptest::collection::vec(
                (any::<u16>(), any::<u32>(), 0usize..400, any::<bool>(), any::<bool>(), 0u64..200),
                1..60,
            ),
            codec in 0usize..4,
        ) {
            let mut receiver = receiver(Codec::ALL[codec]);
            let mut now = Instant::now();
            let mut timestamp = 0u32;
            let mut sequence = 0u16;
            for (jump, time, n, jumps, is_event, ms) in packets {
                now += Duration::from_millis(ms);
                sequence = if jumps { jump } else { sequence.wrapping_add(jump % 4) };
                timestamp = if jumps { time } else { timestamp.wrapping_add(time % 20_000) };
                let packet =
                    if is_event { event(sequence, timestamp, n as u8) } else { packet(sequence, timestamp, n) };
                receiver.push(packet, now);
                receiver.expire(now);
                let n_samples: usize = std::iter::from_fn(|| receiver.pop()).map(|heard| match heard {
                    LineEvent::Sound(samples) => samples.len(),
                    LineEvent::Key(_) => 0,
                }).sum();
                prop_assert!(n_samples <= 10 * 48_000, "{n_samples}");
                prop_assert!(receiver.waiting.len() < REORDERED);
            }
        }
    }
}
