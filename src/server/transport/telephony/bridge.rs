//! The sound and the keys of two calls that are connected: each hears the other.
//!
//! [`super::sip`] and [`super::accounts`] run it after a warm transfer. A frame leaves as soon as its 20 ms are there, so
//! that nothing waits here but the beginning of the next one, which silence fills up where no sound follows; the peers'
//! buffers even it out. While a peer takes nothing, the other one is still read, and the latest frames wait. Nothing is
//! recorded or recognized.

use super::conversation::Over;
use super::leg::{Coding, Leg, LegError, PeerMessage, Start};
use super::link::{Incoming, Sink, Source};
use crate::server::sessions::heartbeat::{Beat, Heartbeat, HeartbeatReset};
use crate::server::transport::keypad::PressKeys;
use antiphon_audio::Resampler;
use antiphon_types::{SampleRate, Samples};
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// The longest sound that leaves at once, and that waits, in milliseconds: the oldest beyond it is dropped, so that a
/// stall adds no further delay.
const MAX_BURST_MS: u64 = 200;
const MAX_BURST: Duration = Duration::from_millis(MAX_BURST_MS);
/// Frames of [`MAX_BURST`].
const MAX_FRAMES: usize = 10;
/// Where more sound than this stays ahead of real time, quiet frames are dropped: the delay that a burst leaves in a
/// peer's buffer ends with the next pause of the sound.
const MAX_LEAD: Duration = Duration::from_millis(60);
/// For this time at least: longer than the longest packets of peers (200 ms), each of which is ahead when it arrives.
const LEAD_WINDOW: Duration = Duration::from_millis(250);
/// No sample of a quiet frame is louder: some 44 dB below full scale, above the noise of a line.
const QUIET_PEAK: u16 = 200;
/// What is left of a sound leaves after this time without more of it; with a peer that gets audio all the time, a frame
/// of silence, and then one each [`FRAME`].
const QUIET: Duration = Duration::from_millis(100);
const FRAME: Duration = Duration::from_millis(20);
/// Keys that wait to be pressed in one call; of more, the oldest are dropped.
const MAX_WAITING_KEYS: usize = 32;
/// A key that has waited for longer is not pressed: nobody expects it any more.
const MAX_KEY_AGE: Duration = Duration::from_secs(5);

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
    let Relay { source, from, input, reset, sink, to, output, heartbeat, keys } = direction;
    let frames = PacedFrames::default();
    let listener = Listener { source, leg: from, input, reset, output, keys, frames: &frames };
    let speaker = Speaker { sink, leg: to, heartbeat, frames: &frames };
    tokio::select! {
        biased;
        over = listener.run() => RelayEnd::Source(over),
        over = speaker.run() => RelayEnd::Sink(over),
    }
}

/// From the call that is heard to the frames that wait. It waits for no other peer.
struct Listener<'a, 'l> {
    source: &'a mut Source,
    leg: &'a Mutex<&'l mut dyn Leg>,
    input: Coding,
    reset: HeartbeatReset,
    /// Of the call that hears.
    output: Coding,
    keys: KeyQueue,
    frames: &'a PacedFrames,
}

impl Listener<'_, '_> {
    async fn run(self) -> Over {
        let Self { source, leg, input, reset, output, mut keys, frames } = self;
        let mut cutter = FrameCutter::new(input.rate, output.rate);
        let mut samples = Vec::new();
        let mut rest_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                incoming = source.next() => {
                    reset.renew();
                    let message = match read(incoming, leg) {
                        Ok(message) => message,
                        Err(over) => return over,
                    };
                    match message {
                        Some(PeerMessage::Audio { audio, .. }) => {
                            samples.clear();
                            if let Err(error) = input.decode(&audio, &mut samples) {
                                return error.into();
                            }
                            cutter.push(&samples);
                            while let Some(frame) = cutter.next() {
                                frames.push(CodedFrame::of(frame, output));
                            }
                            rest_at = Instant::now() + QUIET;
                        }
                        Some(PeerMessage::Key(key)) => keys.push(key),
                        // Silence stands for what it sends during a hold.
                        None | Some(PeerMessage::Held(_) | PeerMessage::Played(_)) => {}
                        Some(PeerMessage::Ended) => return Over::Gone,
                        Some(PeerMessage::Started(_)) => return LegError::StartedTwice.into(),
                    }
                }
                () = keys.press_next() => {}
                () = sleep_until(rest_at), if cutter.has_rest => {
                    while let Some(frame) = cutter.finish() {
                        frames.push(CodedFrame::of(frame, output));
                    }
                }
            }
        }
    }
}

/// From the frames that wait to the call that hears.
struct Speaker<'a, 'l> {
    sink: &'a mut Sink,
    leg: &'a Mutex<&'l mut dyn Leg>,
    /// `None`: its connection has no pings.
    heartbeat: Option<Heartbeat>,
    frames: &'a PacedFrames,
}

impl Speaker<'_, '_> {
    async fn run(self) -> Over {
        let Self { sink, leg, mut heartbeat, frames } = self;
        let is_continuous = sink.is_continuous();
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
                beat = beat => match beat {
                    // The round trip is of no interest here.
                    Beat::Ping => sink.ping(0).await,
                    Beat::Dead => return Over::Close(1011, "no answer to two pings".into()),
                },
                () = frames.due() => {
                    quiet_at = Instant::now() + QUIET;
                    match frames.pop(Instant::now()) {
                        Some(audio) => {
                            let packet = leg.lock().expect("no panic while locked").play(audio);
                            sink.send(packet).await
                        }
                        None => Ok(()),
                    }
                }
                () = sleep_until(quiet_at), if is_continuous => {
                    // One that was not polled for long does not catch up.
                    quiet_at = (quiet_at + FRAME).max(Instant::now());
                    sink.idle();
                    Ok(())
                }
            };
            if let Err(gone) = sent {
                return gone.into();
            }
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

/// 20 ms of sound, coded for the call that hears.
struct CodedFrame {
    audio: Vec<u8>,
    is_quiet: bool,
}

impl CodedFrame {
    fn of(samples: &[i16], coding: Coding) -> Self {
        let is_quiet = samples.iter().all(|sample| sample.unsigned_abs() <= QUIET_PEAK);
        Self { audio: coding.encode(samples), is_quiet }
    }
}

/// The latest frames that have not left, and when they may. One writer, one reader.
struct PacedFrames {
    state: Mutex<PaceState>,
    added: Notify,
}

struct PaceState {
    /// At most [`MAX_FRAMES`].
    waiting: VecDeque<CodedFrame>,
    /// When all that has left is played at the latest: a peer that buffers would play everything later after a burst.
    played_at: Instant,
    standing: StandingLead,
}

/// How much sound stays ahead of real time between what arrives: the least in the last one to two [`LEAD_WINDOW`]s.
struct StandingLead {
    /// When the present window began.
    since: Instant,
    /// The least in the present window, and in the one before.
    present: Duration,
    previous: Duration,
}

impl Default for PacedFrames {
    fn default() -> Self {
        let now = Instant::now();
        let standing = StandingLead { since: now, present: Duration::ZERO, previous: Duration::ZERO };
        let state = PaceState { waiting: VecDeque::new(), played_at: now, standing };
        Self { state: Mutex::new(state), added: Notify::new() }
    }
}

impl PacedFrames {
    /// Adds a frame; the oldest is dropped for it where [`MAX_FRAMES`] wait.
    fn push(&self, frame: CodedFrame) {
        let now = Instant::now();
        let mut state = self.lock();
        let lead = state.lead(now);
        state.standing.update(lead, now);
        if state.waiting.len() == MAX_FRAMES {
            state.waiting.pop_front();
        }
        state.waiting.push_back(frame);
        drop(state);
        self.added.notify_one();
    }

    /// Resolves when a frame may leave. Cancel safe.
    async fn due(&self) {
        loop {
            let wait = self.lock().wait(Instant::now());
            match wait {
                Some(wait) if wait.is_zero() => return,
                Some(wait) => sleep(wait).await,
                None => self.added.notified().await,
            }
        }
    }

    /// The next frame that is to leave; `None`: none waits, or it is not time for one.
    fn pop(&self, now: Instant) -> Option<Vec<u8>> {
        let mut state = self.lock();
        while state.wait(now).is_some_and(|wait| wait.is_zero()) {
            let frame = state.waiting.pop_front()?;
            let lead = state.lead(now).min(state.standing.least());
            if frame.is_quiet && lead > MAX_LEAD {
                state.standing.frame_dropped();
                continue;
            }
            state.played_at = state.played_at.max(now) + FRAME;
            return Some(frame.audio);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, PaceState> {
        self.state.lock().expect("no panic while locked")
    }
}

impl PaceState {
    /// How much sound is ahead of real time, with what waits.
    fn lead(&self, now: Instant) -> Duration {
        self.played_at.saturating_duration_since(now) + FRAME * self.waiting.len() as u32
    }

    /// The time until a frame may leave: at most [`MAX_BURST`] ahead of real time. `None`: none waits.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let lead = self.played_at.saturating_duration_since(now);
        (!self.waiting.is_empty()).then(|| (lead + FRAME).saturating_sub(MAX_BURST))
    }
}

impl StandingLead {
    /// Takes the lead before a frame is added.
    fn update(&mut self, lead: Duration, now: Instant) {
        if now.duration_since(self.since) >= LEAD_WINDOW {
            self.since = now;
            self.previous = self.present;
            self.present = lead;
        }
        self.present = self.present.min(lead);
    }

    fn least(&self) -> Duration {
        self.present.min(self.previous)
    }

    /// A frame was dropped: all of it is that much less ahead.
    fn frame_dropped(&mut self) {
        self.present = self.present.saturating_sub(FRAME);
        self.previous = self.previous.saturating_sub(FRAME);
    }
}

/// Presses keys in a call, one after the other.
struct KeyQueue {
    keys: Option<Arc<dyn PressKeys>>,
    waiting: VecDeque<WaitingKey>,
    pressing: Option<BoxFuture<'static, bool>>,
}

struct WaitingKey {
    key: char,
    since: Instant,
}

impl KeyQueue {
    fn new(keys: Option<Arc<dyn PressKeys>>) -> Self {
        Self { keys, waiting: VecDeque::new(), pressing: None }
    }

    /// Adds a key, where keys are pressed; the oldest is dropped for it where [`MAX_WAITING_KEYS`] wait.
    fn push(&mut self, key: char) {
        if self.keys.is_none() {
            return;
        }
        self.drop_old();
        if self.waiting.len() == MAX_WAITING_KEYS {
            self.waiting.pop_front();
        }
        self.waiting.push_back(WaitingKey { key, since: Instant::now() });
    }

    /// Drops what has waited for more than [`MAX_KEY_AGE`].
    fn drop_old(&mut self) {
        while self.waiting.front().is_some_and(|waiting| waiting.since.elapsed() > MAX_KEY_AGE) {
            self.waiting.pop_front();
        }
    }

    /// Resolves when a key was pressed, or was not taken. Cancel safe.
    async fn press_next(&mut self) {
        if self.pressing.is_none()
            && let Some(keys) = self.keys.clone()
        {
            self.drop_old();
            let next = self.waiting.pop_front();
            self.pressing = next.map(|next| keys.press(next.key.encode_utf8(&mut [0; 4])));
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
    /// Whether some sound may not have left.
    has_rest: bool,
    frame: usize,
    max: usize,
}

impl FrameCutter {
    fn new(from: SampleRate, to: SampleRate) -> Self {
        let n = |ms: u64| Samples::from_ms(ms, to).0 as usize;
        let resampler = Resampler::new(from, to);
        Self { resampler, pending: Vec::new(), n_left: 0, has_rest: false, frame: n(20), max: n(MAX_BURST_MS) }
    }

    /// Takes sound; the oldest beyond [`MAX_BURST_MS`] is dropped.
    fn push(&mut self, samples: &[i16]) {
        self.pending.drain(..self.n_left);
        self.resampler.process(samples, &mut self.pending);
        self.n_left = self.pending.len().saturating_sub(self.max);
        self.has_rest = true;
    }

    /// No sound follows: the next frame of what is left, the last one filled up with silence.
    fn finish(&mut self) -> Option<&[i16]> {
        self.pending.drain(..self.n_left);
        self.n_left = 0;
        self.resampler.flush(&mut self.pending);
        self.pending.resize(self.pending.len().next_multiple_of(self.frame), 0);
        self.has_rest = !self.pending.is_empty();
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
    use super::super::audiosocket::AudioSocket;
    use super::super::link;
    use super::super::sip::media::{SipLeg, testing};
    use super::*;
    use futures_util::poll;
    use std::net::UdpSocket;
    use std::pin::pin;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{advance, timeout};

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

    /// A frame of this number.
    fn numbered(number: u8, is_quiet: bool) -> CodedFrame {
        CodedFrame { audio: vec![number], is_quiet }
    }

    /// The numbers of the frames that leave now.
    fn leave(frames: &PacedFrames) -> Vec<u8> {
        std::iter::from_fn(|| frames.pop(Instant::now())).flatten().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_of_a_burst_leaves_and_the_rest_in_real_time() {
        let frames = PacedFrames::default();
        for number in 0..50 {
            frames.push(numbered(number, false));
        }
        assert_eq!(leave(&frames), (40..50).collect::<Vec<u8>>(), "the latest 200 ms");
        for number in 50..60 {
            frames.push(numbered(number, false));
        }
        assert_eq!(leave(&frames), [0u8; 0], "nothing leaves above that");
        for number in 50..60 {
            frames.due().await;
            assert_eq!(leave(&frames), [number]);
        }
        assert!(poll!(pin!(frames.due())).is_pending(), "none waits");
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_of_a_burst_ends_in_a_pause_of_the_sound() {
        let frames = PacedFrames::default();
        let mut n_pushed = 0u8;
        let mut push = |n: u8, is_quiet: bool| {
            for number in n_pushed..n_pushed + n {
                frames.push(numbered(number, is_quiet));
            }
            n_pushed += n;
        };
        push(10, false);
        assert_eq!(leave(&frames).len(), 10);
        for is_quiet in [false, true, false] {
            let mut n_left = 0;
            for _ in 0..20 {
                advance(FRAME).await;
                push(1, is_quiet);
                n_left += leave(&frames).len();
            }
            let n_dropped = if is_quiet { 6 } else { 0 };
            assert_eq!(n_left, 20 - n_dropped, "quiet: {is_quiet}");
        }
        advance(FRAME).await;
        push(1, false);
        leave(&frames);
        let lead = frames.lock().played_at.duration_since(Instant::now());
        assert_eq!(lead, MAX_LEAD + FRAME, "60 ms, and the frame that is played");
    }

    #[tokio::test(start_paused = true)]
    async fn packets_of_100_ms_are_no_burst() {
        let frames = PacedFrames::default();
        let push = |n: u8, is_quiet: bool| {
            for number in 0..n {
                frames.push(numbered(number, is_quiet));
            }
        };
        for _ in 0..20 {
            push(5, true);
            assert_eq!(leave(&frames), [0, 1, 2, 3, 4]);
            advance(5 * FRAME).await;
        }
        // The delay of a burst ends as with shorter ones.
        push(10, false);
        let mut n_left = leave(&frames).len();
        for _ in 0..20 {
            advance(5 * FRAME).await;
            push(5, true);
            n_left += leave(&frames).len();
        }
        assert_eq!(n_left, 110 - 2, "100 ms ahead, then 60");
    }

    /// A call by AudioSocket, and its peer.
    async fn audiosocket_call() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let peer = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("a connection");
        (stream, peer)
    }

    /// 20 ms of AudioSocket at 8 kHz.
    fn audiosocket_frame() -> Vec<u8> {
        [&[0x10, 0x01, 0x40][..], &[0x20; 320]].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_up_is_noticed_while_the_other_side_takes_nothing() {
        let (stream, mut peer) = audiosocket_call().await;
        let (stuck_stream, _stuck_peer) = audiosocket_call().await;
        // The peer reads nothing.
        stuck_stream.writable().await.expect("it is open");
        while stuck_stream.try_write(&[0; 64 * 1024]).is_ok() {}
        let (mut source, _sink) = link::tcp(stream);
        let (_source, mut sink) = link::tcp(stuck_stream);
        let mut one = AudioSocket::default();
        let named = [&[0x01_u8, 0x00, 0x10][..], &[7; 16]].concat();
        one.binary(named.into()).expect("a UUID");
        one.binary(audiosocket_frame().into()).expect("the start");
        let mut other = AudioSocket::default();
        let from: Mutex<&mut dyn Leg> = Mutex::new(&mut one);
        let to: Mutex<&mut dyn Leg> = Mutex::new(&mut other);
        let (reset, _heartbeat) = Heartbeat::new(Duration::from_secs(20));
        let coding = Coding::l16(8_000).expect("a rate");
        let direction = Relay {
            source: &mut source,
            from: &from,
            input: coding,
            reset,
            sink: &mut sink,
            to: &to,
            output: coding,
            heartbeat: None,
            keys: KeyQueue::new(None),
        };
        let mut relayed = pin!(relay(direction));
        for _ in 0..50 {
            peer.write_all(&audiosocket_frame()).await.expect("the hub reads");
        }
        let one_second = timeout(Duration::from_secs(1), &mut relayed).await;
        assert!(one_second.is_err(), "the other side takes nothing, and the call goes on");
        drop(peer);
        let end = timeout(Duration::from_secs(5), relayed).await.expect("before the other side is given up");
        assert!(matches!(end, RelayEnd::Source(Over::Gone)));
    }

    /// Presses keys, the first of which takes 6 s.
    #[derive(Default)]
    struct SlowKeys(Mutex<String>);

    impl PressKeys for SlowKeys {
        fn press(&self, keys: &str) -> BoxFuture<'static, bool> {
            let mut pressed = self.0.lock().expect("no panic while locked");
            let takes = if pressed.is_empty() { Duration::from_secs(6) } else { Duration::ZERO };
            pressed.push_str(keys);
            Box::pin(async move {
                sleep(takes).await;
                true
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_too_many_keys_is_dropped() {
        let waiting = |keys: &KeyQueue| keys.waiting.iter().map(|waiting| waiting.key).collect::<String>();
        let mut keys = KeyQueue::new(Some(Arc::new(SlowKeys::default())));
        keys.push('1');
        for _ in 1..MAX_WAITING_KEYS {
            keys.push('2');
        }
        assert!(waiting(&keys).starts_with("12"));
        keys.push('3');
        assert_eq!(waiting(&keys), format!("{}3", "2".repeat(MAX_WAITING_KEYS - 1)));
        advance(MAX_KEY_AGE + Duration::from_millis(1)).await;
        keys.push('4');
        assert_eq!(waiting(&keys), "4", "the others are too old");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_have_waited_for_too_long_are_not_pressed() {
        let pressed = Arc::new(SlowKeys::default());
        let mut keys = KeyQueue::new(Some(pressed.clone()));
        keys.push('1');
        keys.push('2');
        assert!(timeout(Duration::from_secs(3), keys.press_next()).await.is_err());
        keys.push('3');
        keys.press_next().await;
        keys.press_next().await;
        assert_eq!(*pressed.0.lock().expect("no panic while locked"), "13");
        assert!(poll!(pin!(keys.press_next())).is_pending());
    }
}
