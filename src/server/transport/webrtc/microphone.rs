//! Numbers a peer's RTP packets as microphone frames of the session.
//!
//! The session's input restores order and conceals lost frames by number, and its time is the sum of its frames. So lost
//! packets leave a gap in the numbers, and a pause in the RTP timestamps (DTX) or on the clock becomes frames of silence: turns
//! can end although nothing arrives. It reads no clock, decodes nothing and keeps no packet.

use antiphon_audio::codec::opus_packet_samples;
use bytes::Bytes;

/// RTP's clock of Opus in Hz (RFC 7587, section 4.1).
const CLOCK_HZ: u64 = 48_000;
/// A frame of silence: 20 ms of that clock.
pub(super) const SILENCE: u64 = CLOCK_HZ / 50;
/// The longest jump of numbers or timestamps that is a loss or a pause; a longer one restarts the stream.
pub(super) const MAX_JUMP: u64 = 2 * CLOCK_HZ;
/// The longest packet: 120 ms of that clock.
const MAX_PACKET: u64 = CLOCK_HZ * 12 / 100;

/// One frame for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumberedFrame {
    /// Its number, for [`crate::server::transport::call::Call::push_frame`].
    pub(super) number: u32,
    /// One Opus packet; of one byte: silence.
    pub(super) payload: Bytes,
}

/// The numbering of one stream.
#[derive(Default)]
pub(super) struct Microphone {
    next: Option<Next>,
    /// The session's next number.
    number: u32,
}

/// What is expected after the packets so far.
struct Next {
    sequence: u64,
    time: u64,
    /// Duration and first byte of the last packet.
    duration: u64,
    toc: u8,
    /// Frames of silence since the last packet.
    n_filled: u64,
    /// Silence that was inserted for packets that came after all; the next pauses are shorter by that.
    ahead: u64,
    /// A packet's number less its RTP sequence number, for packets from `numbered_from` on.
    shift: u32,
    numbered_from: u64,
}

impl Microphone {
    /// Takes a packet: extended RTP sequence number and timestamp, payload. Appends the frames that it makes, in order.
    pub(super) fn packet(&mut self, sequence: u64, time: u64, payload: Bytes, frames: &mut Vec<NumberedFrame>) {
        let Some(duration) = opus_packet_samples(&payload, CLOCK_HZ as u32) else { return };
        let duration = u64::from(duration).min(MAX_PACKET);
        let Some(&toc) = payload.first() else { return };
        let mut next = self.next.take().unwrap_or(Next {
            sequence,
            time,
            duration,
            toc,
            n_filled: 0,
            ahead: 0,
            shift: 0,
            numbered_from: sequence,
        });
        if sequence < next.sequence && next.sequence - sequence < MAX_JUMP / SILENCE {
            // Late or a duplicate: the session knows which.
            if sequence >= next.numbered_from {
                let number = (sequence as u32).wrapping_add(next.shift);
                frames.push(NumberedFrame { number, payload });
            }
            self.next = Some(next);
            return;
        }
        let n_lost = sequence.saturating_sub(next.sequence);
        let gap = time.wrapping_sub(next.time);
        let is_continued =
            sequence >= next.sequence && n_lost.saturating_mul(next.duration) <= MAX_JUMP && gap <= MAX_JUMP;
        let (n_lost, gap) = if is_continued { (n_lost, gap) } else { (0, 0) };
        let filled = next.n_filled * SILENCE;
        if is_continued {
            next.ahead += filled.saturating_sub(gap);
        }
        let left = gap.saturating_sub(filled);
        let n_lost_left = n_lost.min(left / next.duration.max(1));
        let n_silent = (left - n_lost_left * next.duration) / SILENCE;
        let n_repaid = n_silent.min(next.ahead / SILENCE);
        next.ahead -= n_repaid * SILENCE;
        for _ in n_repaid..n_silent {
            frames.push(self.silence(next.toc));
        }
        self.number = self.number.wrapping_add(n_lost_left as u32);
        if next.n_filled > 0 || n_silent > 0 || !is_continued {
            next.numbered_from = sequence - n_lost_left.min(sequence);
        }
        next.shift = self.number.wrapping_sub(sequence as u32);
        frames.push(NumberedFrame { number: self.number, payload });
        self.number = self.number.wrapping_add(1);
        next.sequence = sequence + 1;
        next.time = time.wrapping_add(duration);
        next.duration = duration;
        next.toc = toc;
        next.n_filled = 0;
        self.next = Some(next);
    }

    /// The next packet begins another stream of the same microphone.
    pub(super) fn restart(&mut self) {
        self.next = None;
    }

    /// 20 ms have passed without a packet that was due: a frame of silence; `None` before the first packet.
    pub(super) fn idle(&mut self) -> Option<NumberedFrame> {
        let next = self.next.as_mut()?;
        next.n_filled += 1;
        let toc = next.toc;
        Some(self.silence(toc))
    }

    fn silence(&mut self, toc: u8) -> NumberedFrame {
        let number = self.number;
        self.number = self.number.wrapping_add(1);
        NumberedFrame { number, payload: Bytes::copy_from_slice(&[silent(toc)]) }
    }
}

/// A packet without a frame in the mode of another one, 20 ms long: the decoder fades out (RFC 6716, sections 2.1.9 and 3.1).
fn silent(toc: u8) -> u8 {
    let config = match toc >> 3 {
        silk @ 0..=11 => (silk & !3) | 1,
        hybrid @ 12..=15 => hybrid | 1,
        celt => celt | 3,
    };
    config << 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::codec::OpusIn;
    use proptest::prelude::*;

    /// Packets of 20 ms by sequence number and pause before them, in frames; `.` is a tick without a packet. Gives the numbers,
    /// silence in brackets.
    fn check(arrivals: &[(u64, u64)], expect: &str) {
        let mut microphone = Microphone::default();
        let mut seen = Vec::new();
        for &(sequence, frame) in arrivals {
            let mut frames = Vec::new();
            match frame {
                u64::MAX => frames.extend(microphone.idle()),
                frame => microphone.packet(sequence, frame * SILENCE, Bytes::from_static(&[0x78, 1]), &mut frames),
            }
            seen.extend(frames.iter().map(|frame| match frame.payload.len() {
                1 => format!("[{}]", frame.number),
                _ => frame.number.to_string(),
            }));
        }
        assert_eq!(seen.join(" "), expect);
    }

    const TICK: (u64, u64) = (0, u64::MAX);

    #[test]
    fn loss_leaves_a_gap_and_late_packets_their_numbers() {
        check(&[(7, 0), (8, 1), (10, 3), (9, 2), (11, 4)], "0 1 3 2 4");
        check(&[(7, 0), (9, 2), (9, 2)], "0 2 2");
    }

    #[test]
    fn a_pause_of_the_sender_is_silence() {
        check(&[(7, 0), (8, 4), (9, 5)], "0 [1] [2] [3] 4 5");
        check(&[(7, 0), TICK, TICK, (8, 4)], "0 [1] [2] [3] 4");
        check(&[(7, 0), (9, 4)], "0 [1] [2] 4");
    }

    #[test]
    fn silence_takes_the_place_of_lost_packets() {
        check(&[(7, 0), TICK, TICK, (11, 4)], "0 [1] [2] 4");
    }

    #[test]
    fn silence_for_late_packets_shortens_the_next_pause() {
        check(&[(7, 0), TICK, TICK, (8, 1), (9, 2), (10, 6)], "0 [1] [2] 3 4 [5] 6");
    }

    #[test]
    fn a_pause_longer_than_a_jump_shortens_no_other_one() {
        let mut arrivals = vec![(7, 0)];
        arrivals.extend([TICK; 150]);
        arrivals.extend([(8, 151), (9, 155)]);
        let filled: Vec<_> = (1..=150).map(|number| format!("[{number}]")).collect();
        check(&arrivals, &format!("0 {} 151 [152] [153] [154] 155", filled.join(" ")));
    }

    #[test]
    fn a_stream_that_jumps_restarts() {
        check(&[(7, 0), (8, 1), (60_000, 900_000), (60_001, 900_001)], "0 1 2 3");
    }

    #[test]
    fn silence_is_20_ms_in_each_mode_and_decodes() {
        for toc in 0..=u8::MAX {
            let packet = [silent(toc)];
            assert_eq!(opus_packet_samples(&packet, CLOCK_HZ as u32), Some(960), "{toc:#x}");
            let mut decoder = OpusIn::new().unwrap();
            let mut pcm = Vec::new();
            decoder.decode(&packet, &mut pcm).unwrap();
            assert_eq!(pcm, vec![0; 320]);
        }
    }

    proptest! {
        #[test]
        fn numbers_never_jump_far(steps in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u8>(), any::<bool>()), 1..60)) {
            let mut microphone = Microphone::default();
            let mut frames = Vec::new();
            for (sequence, time, toc, idle) in steps {
                let before = frames.len();
                if idle { frames.extend(microphone.idle()) }
                else { microphone.packet(sequence >> 1, time >> 1, Bytes::copy_from_slice(&[toc, 1, 2]), &mut frames) }
                prop_assert!(frames.len() - before <= 1 + (MAX_JUMP / SILENCE) as usize);
            }
        }
    }
}
