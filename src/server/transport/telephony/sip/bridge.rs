//! The sound and the keys of two calls that are connected: each hears the other.
//!
//! [`super::answered`] runs it. A frame leaves as soon as its 20 ms are there, so that nothing waits here but the
//! beginning of the next one, which silence fills up where no sound follows; the peers' jitter buffers even it out. Nothing
//! is recorded or recognized.

use super::key_events::KeySender;
use super::media::{LineMessage, MediaSink, MediaSource};
use antiphon_audio::Resampler;
use antiphon_types::{SampleRate, Samples};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The longest sound that leaves at once, in milliseconds: what is older is dropped, so that a stall adds no delay.
const MAX_BURST_MS: u64 = 200;
/// A frame of silence leaves after this time without sound, and then each [`FRAME`].
const QUIET: Duration = Duration::from_millis(100);
const FRAME: Duration = Duration::from_millis(20);

/// One of the calls.
pub(super) struct BridgeSide<'a> {
    pub(super) source: &'a mut MediaSource,
    pub(super) sink: &'a mut MediaSink,
    /// Presses keys in it.
    pub(super) keys: &'a KeySender,
}

/// Relays until one of the calls ends, or has sent nothing for 60 s outside a hold. Gives why.
pub(super) async fn run(one: BridgeSide<'_>, other: BridgeSide<'_>) -> &'static str {
    tokio::select! {
        over = relay(one.source, other.sink, other.keys) => over,
        over = relay(other.source, one.sink, one.keys) => over,
    }
}

/// Relays in one direction.
async fn relay(source: &mut MediaSource, sink: &mut MediaSink, keys: &KeySender) -> &'static str {
    let mut frames = FrameCutter::new(source.rate(), sink.rate());
    let mut quiet_at = Instant::now() + QUIET;
    loop {
        tokio::select! {
            biased;
            message = source.next_message() => match message {
                LineMessage::Sound(samples) => {
                    frames.push(&samples);
                    while let Some(frame) = frames.next() {
                        sink.send_samples(frame);
                        quiet_at = Instant::now() + QUIET;
                    }
                }
                LineMessage::Key(key) => keys.press_now(key),
                // Silence stands for what it sends meanwhile.
                LineMessage::Held(_) => {}
                LineMessage::Ended => return "a peer hung up",
                LineMessage::Silent => return "no audio of a peer for 60 s",
            },
            () = sleep_until(quiet_at) => {
                match frames.finish() {
                    Some(frame) => sink.send_samples(frame),
                    None => sink.idle(),
                }
                // One that was not polled for long does not catch up.
                quiet_at = (quiet_at + FRAME).max(Instant::now());
            }
        }
    }
}

/// Cuts sound into frames of 20 ms at the rate of the other side.
struct FrameCutter {
    resampler: Resampler,
    pending: Vec<i16>,
    /// Samples of `pending` that have left.
    n_left: usize,
    frame: usize,
    max: usize,
}

impl FrameCutter {
    fn new(from: SampleRate, to: SampleRate) -> Self {
        let n = |ms: u64| Samples::from_ms(ms, to).0 as usize;
        let resampler = Resampler::new(from, to);
        Self { resampler, pending: Vec::new(), n_left: 0, frame: n(20), max: n(MAX_BURST_MS) }
    }

    /// Takes sound; the oldest beyond [`MAX_BURST_MS`] is dropped.
    fn push(&mut self, samples: &[i16]) {
        self.pending.drain(..self.n_left);
        self.resampler.process(samples, &mut self.pending);
        self.n_left = self.pending.len().saturating_sub(self.max);
    }

    /// No sound follows: the next frame of what is left, the last one filled up with silence.
    fn finish(&mut self) -> Option<&[i16]> {
        self.pending.drain(..self.n_left);
        self.n_left = 0;
        self.resampler.flush(&mut self.pending);
        self.pending.resize(self.pending.len().next_multiple_of(self.frame), 0);
        self.next()
    }

    /// The next frame, if it is whole.
    fn next(&mut self) -> Option<&[i16]> {
        let from = self.n_left;
        let frame = self.pending.get(from..from + self.frame)?;
        self.n_left += self.frame;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_events::key_events;
    use super::super::media::testing;
    use super::*;
    use futures_util::poll;
    use std::net::UdpSocket;
    use std::pin::pin;
    use tokio::time::advance;

    fn cut(cutter: &mut FrameCutter, samples: &[i16]) -> Vec<Vec<i16>> {
        cutter.push(samples);
        std::iter::from_fn(|| cutter.next().map(<[i16]>::to_vec)).collect()
    }

    #[test]
    fn sound_of_any_length_leaves_in_whole_frames_and_in_order() {
        let mut cutter = FrameCutter::new(SampleRate::HZ_8000, SampleRate::HZ_8000);
        let samples: Vec<i16> = (0..1_000).collect();
        let mut frames = Vec::new();
        for part in samples.chunks(70) {
            frames.extend(cut(&mut cutter, part));
        }
        assert!(frames.iter().all(|frame| frame.len() == 160));
        assert_eq!(frames.concat(), samples[..960]);
    }

    #[test]
    fn the_end_of_a_sound_does_not_wait_for_the_next_one() {
        for (from, to, n) in [(8_000, 8_000, 160), (16_000, 24_000, 480)] {
            let mut cutter = FrameCutter::new(SampleRate::new(from), SampleRate::new(to));
            let mut frames = cut(&mut cutter, &vec![1_000; from as usize / 100 * 3]);
            frames.extend(std::iter::from_fn(|| cutter.finish().map(<[i16]>::to_vec)));
            assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [n, n], "30 ms from {from} to {to} Hz");
            let end = frames[1].iter().rposition(|sample| *sample > 500).expect("sound");
            assert!(end.abs_diff(n / 2) < 3, "sound up to {end} of {n}");
            assert_eq!(cut(&mut cutter, &vec![1_000; from as usize / 50]).len(), usize::from(from == to));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_does_not_catch_up_after_a_stall() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_nonblocking(true).unwrap();
        let n_received = || std::iter::from_fn(|| peer.recv(&mut [0; 512]).ok()).count();
        let (mut source, mut sink, _control) = testing::silent_call(peer.local_addr().unwrap()).await;
        let (keys, _events) = key_events();
        let mut relayed = pin!(relay(&mut source, &mut sink, &keys));
        assert!(poll!(&mut relayed).is_pending());
        advance(QUIET).await;
        assert!(poll!(&mut relayed).is_pending());
        n_received();
        advance(Duration::from_secs(2)).await;
        assert!(poll!(&mut relayed).is_pending());
        let n = n_received();
        assert!((1..=2).contains(&n), "{n} frames at once");
    }

    #[test]
    fn a_stall_adds_no_delay() {
        let mut cutter = FrameCutter::new(SampleRate::HZ_8000, SampleRate::HZ_8000);
        let samples: Vec<i16> = (0..8_000).collect();
        let frames = cut(&mut cutter, &samples).concat();
        assert_eq!(frames, samples[8_000 - 1_600..]);
    }

    #[test]
    fn rates_may_differ() {
        let mut cutter = FrameCutter::new(SampleRate::HZ_8000, SampleRate::HZ_24000);
        let n: usize = (0..50).map(|_| cut(&mut cutter, &[1_000; 160]).len()).sum();
        assert!((48..=50).contains(&n), "{n} frames of 50");
    }
}
