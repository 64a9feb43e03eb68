//! The sound and the keys of two calls that are connected: each hears the other.
//!
//! [`super::sip`] and [`super::accounts`] run it after a warm transfer. A frame leaves as soon as its 20 ms are there, so
//! that nothing waits here but the beginning of the next one, which silence fills up where no sound follows; the peers'
//! buffers even it out. Nothing is recorded or recognized.

use super::conversation::Over;
use super::leg::{Coding, Leg, LegError, PeerMessage, Start};
use super::link::{Incoming, PeerGone, Sink, Source};
use crate::server::sessions::heartbeat::{Beat, Heartbeat, HeartbeatReset};
use crate::server::transport::keypad::PressKeys;
use antiphon_audio::Resampler;
use antiphon_types::{SampleRate, Samples};
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The longest sound that leaves at once, in milliseconds: more is dropped, so that a stall adds no further delay.
const MAX_BURST_MS: u64 = 200;
/// A frame of silence leaves after this time without sound, and then each [`FRAME`].
const QUIET: Duration = Duration::from_millis(100);
const FRAME: Duration = Duration::from_millis(20);
/// Keys that wait to be pressed in one call; further ones are lost.
const MAX_WAITING_KEYS: usize = 32;

/// One of the calls.
pub(super) struct BridgeSide {
    pub(super) link: (Source, Sink),
    pub(super) leg: Box<dyn Leg>,
    pub(super) start: Start,
    /// Presses keys in it; `None`: nothing does.
    pub(super) keys: Option<Arc<dyn PressKeys>>,
}

/// Which of the calls has ended, and how.
#[derive(Debug)]
pub(super) enum BridgeEnd {
    One(Over),
    Other(Over),
}

/// Relays until one of the calls ends, or its peer is silent for too long: a peer with pings does not answer two of
/// them, one by SIP has sent nothing for 60 s outside a hold.
pub(super) async fn run(one: &mut BridgeSide, other: &mut BridgeSide, ping_every: Duration) -> BridgeEnd {
    let (one_reset, one_heartbeat) = Heartbeat::new(ping_every);
    let (other_reset, other_heartbeat) = Heartbeat::new(ping_every);
    let one_has_pings = one.link.1.has_pings();
    let other_has_pings = other.link.1.has_pings();
    let one_leg: &mut dyn Leg = one.leg.as_mut();
    let one_leg = Mutex::new(one_leg);
    let other_leg: &mut dyn Leg = other.leg.as_mut();
    let other_leg = Mutex::new(other_leg);
    let to_other = Relay {
        source: &mut one.link.0,
        from: &one_leg,
        input: one.start.input,
        reset: one_reset,
        sink: &mut other.link.1,
        to: &other_leg,
        output: other.start.output,
        heartbeat: other_has_pings.then_some(other_heartbeat),
        keys: KeyQueue::new(other.keys.clone()),
    };
    let to_one = Relay {
        source: &mut other.link.0,
        from: &other_leg,
        input: other.start.input,
        reset: other_reset,
        sink: &mut one.link.1,
        to: &one_leg,
        output: one.start.output,
        heartbeat: one_has_pings.then_some(one_heartbeat),
        keys: KeyQueue::new(one.keys.clone()),
    };
    tokio::select! {
        end = relay(to_other) => match end {
            RelayEnd::Source(over) => BridgeEnd::One(over),
            RelayEnd::Sink(over) => BridgeEnd::Other(over),
        },
        end = relay(to_one) => match end {
            RelayEnd::Source(over) => BridgeEnd::Other(over),
            RelayEnd::Sink(over) => BridgeEnd::One(over),
        },
    }
}

/// One direction.
struct Relay<'a, 'l> {
    source: &'a mut Source,
    from: &'a Mutex<&'l mut dyn Leg>,
    input: Coding,
    /// Of the heartbeat of the call that is heard.
    reset: HeartbeatReset,
    sink: &'a mut Sink,
    to: &'a Mutex<&'l mut dyn Leg>,
    output: Coding,
    /// Of the call that hears; `None`: its connection has no pings.
    heartbeat: Option<Heartbeat>,
    /// Of the call that hears.
    keys: KeyQueue,
}

/// Which end of a direction has ended, and how.
enum RelayEnd {
    Source(Over),
    Sink(Over),
}

/// Relays in one direction.
async fn relay(direction: Relay<'_, '_>) -> RelayEnd {
    let Relay { source, from, input, reset, sink, to, output, mut heartbeat, mut keys } = direction;
    let mut frames = FrameCutter::new(input.rate, output.rate);
    let mut pace = Pace(Instant::now());
    let mut samples = Vec::new();
    let mut quiet_at = Instant::now() + QUIET;
    loop {
        let beat = async {
            match &mut heartbeat {
                Some(heartbeat) => heartbeat.beat().await,
                None => pending().await,
            }
        };
        let sent = tokio::select! {
            biased;
            incoming = source.next() => {
                reset.renew();
                let message = match read(incoming, from) {
                    Ok(message) => message,
                    Err(over) => return RelayEnd::Source(over),
                };
                match message {
                    Some(PeerMessage::Audio { audio, .. }) => {
                        samples.clear();
                        if let Err(error) = input.decode(&audio, &mut samples) {
                            return RelayEnd::Source(error.into());
                        }
                        frames.push(&samples);
                        let mut sent: Result<(), PeerGone> = Ok(());
                        while let Some(frame) = frames.next()
                            && sent.is_ok()
                        {
                            quiet_at = Instant::now() + QUIET;
                            if pace.admits(Instant::now()) {
                                sent = send(sink, to, output.encode(frame)).await;
                            }
                        }
                        sent
                    }
                    Some(PeerMessage::Key(key)) => {
                        keys.push(key);
                        Ok(())
                    }
                    // Silence stands for what it sends during a hold.
                    None | Some(PeerMessage::Held(_) | PeerMessage::Played(_)) => Ok(()),
                    Some(PeerMessage::Ended) => return RelayEnd::Source(Over::Gone),
                    Some(PeerMessage::Started(_)) => return RelayEnd::Source(LegError::StartedTwice.into()),
                }
            }
            () = keys.press_next() => Ok(()),
            beat = beat => match beat {
                // The round trip is of no interest here.
                Beat::Ping => sink.ping(0).await,
                Beat::Dead => return RelayEnd::Sink(Over::Close(1011, "no answer to two pings".into())),
            },
            () = sleep_until(quiet_at) => {
                // One that was not polled for long does not catch up.
                quiet_at = (quiet_at + FRAME).max(Instant::now());
                match frames.finish() {
                    Some(frame) if pace.admits(Instant::now()) => send(sink, to, output.encode(frame)).await,
                    Some(_) => Ok(()),
                    None => {
                        sink.idle();
                        Ok(())
                    }
                }
            }
        };
        if let Err(gone) = sent {
            return RelayEnd::Sink(gone.into());
        }
    }
}

/// What a peer says; `None`: nothing that matters here.
fn read(incoming: Incoming, leg: &Mutex<&mut dyn Leg>) -> Result<Option<PeerMessage>, Over> {
    let mut leg = leg.lock().expect("no panic while locked");
    match incoming {
        Incoming::Text(text) => Ok(leg.text(&text)?),
        Incoming::Binary(bytes) => Ok(leg.binary(bytes)?),
        Incoming::Message(message) => Ok(Some(message)),
        Incoming::Pong(_) | Incoming::Sign => Ok(None),
        Incoming::Gone => Err(Over::Gone),
        Incoming::Violation(code, reason) => Err(Over::Close(code, reason.into())),
    }
}

/// Plays a frame.
async fn send(sink: &mut Sink, leg: &Mutex<&mut dyn Leg>, audio: Vec<u8>) -> Result<(), PeerGone> {
    let packet = leg.lock().expect("no panic while locked").play(audio);
    sink.send(packet).await
}

/// When all that has left is played at the latest: a peer that buffers would play everything later after a burst.
struct Pace(Instant);

impl Pace {
    /// Whether a frame may leave now.
    fn admits(&mut self, now: Instant) -> bool {
        let until = self.0.max(now) + FRAME;
        let fits = until <= now + Duration::from_millis(MAX_BURST_MS);
        if fits {
            self.0 = until;
        }
        fits
    }
}

/// Presses keys in a call, one after the other.
struct KeyQueue {
    keys: Option<Arc<dyn PressKeys>>,
    waiting: VecDeque<char>,
    pressing: Option<BoxFuture<'static, bool>>,
}

impl KeyQueue {
    fn new(keys: Option<Arc<dyn PressKeys>>) -> Self {
        Self { keys, waiting: VecDeque::new(), pressing: None }
    }

    /// Adds a key, where keys are pressed.
    fn push(&mut self, key: char) {
        if self.keys.is_some() && self.waiting.len() < MAX_WAITING_KEYS {
            self.waiting.push_back(key);
        }
    }

    /// Resolves when a key was pressed, or was not taken. Cancel safe.
    async fn press_next(&mut self) {
        if self.pressing.is_none()
            && let Some(keys) = &self.keys
            && let Some(key) = self.waiting.pop_front()
        {
            self.pressing = Some(keys.press(key.encode_utf8(&mut [0; 4])));
        }
        match &mut self.pressing {
            Some(pressing) => {
                pressing.await;
                self.pressing = None;
            }
            None => pending().await,
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
    use super::super::link;
    use super::super::sip::media::{SipLeg, testing};
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
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
        peer.set_nonblocking(true).expect("a socket");
        let n_received = || std::iter::from_fn(|| peer.recv(&mut [0; 512]).ok()).count();
        let address = peer.local_addr().expect("bound");
        let (source, sink, _control) = testing::silent_call(address).await;
        let (mut source, mut sink) = link::media(source, sink);
        let mut one = SipLeg;
        let mut other = SipLeg;
        let from: Mutex<&mut dyn Leg> = Mutex::new(&mut one);
        let to: Mutex<&mut dyn Leg> = Mutex::new(&mut other);
        let (reset, _heartbeat) = Heartbeat::new(Duration::from_secs(20));
        let direction = Relay {
            source: &mut source,
            from: &from,
            input: Coding::ULAW,
            reset,
            sink: &mut sink,
            to: &to,
            output: Coding::ULAW,
            heartbeat: None,
            keys: KeyQueue::new(None),
        };
        let mut relayed = pin!(relay(direction));
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

    #[tokio::test(start_paused = true)]
    async fn a_burst_leaves_up_to_its_bound_and_the_rest_in_real_time() {
        let mut pace = Pace(Instant::now());
        let n_of_burst = (0..50).filter(|_| pace.admits(Instant::now())).count();
        assert_eq!(n_of_burst, 10, "200 ms");
        let mut n_later = 0;
        for _ in 0..50 {
            advance(FRAME).await;
            n_later += usize::from(pace.admits(Instant::now()));
        }
        assert_eq!(n_later, 50);
    }
}
