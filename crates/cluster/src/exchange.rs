//! One attempt on the wire, at either end: frames in order, none lost, with credit, over a [`Carrier`] that may lose some.
//!
//! The hub's engines and the worker's tasks each hold one and drive it by awaiting it: nothing here runs by itself. Frames
//! arrive through [`Inboxes`], which one task for each process fills.

use crate::flow::{Arrival, FrameReceiver, FrameSender, MAX_SEQUENCED_BYTES, WINDOW_BYTES};
use crate::frame::{Frame, HEADER_BYTES, Kind};
use crate::link::Link;
use async_nats::Subject;
use bytes::Bytes;
use dashmap::DashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Deliveries that wait for an attempt; small frames reach this bound before the one in bytes.
const INBOX: usize = 1_024;

/// Bytes that wait for an attempt: a window, and what is sent again.
const INBOX_BYTES: usize = 2 * WINDOW_BYTES as usize;

/// Time without an acknowledgement after which the other end is asked for one; doubled up to the maximum, which is also the
/// time after which a silent end is asked whether it still knows the attempt.
const PROBE_AFTER: Duration = Duration::from_millis(200);
const PROBE_AFTER_MAX: Duration = Duration::from_millis(1_000);

/// A gap that is reported within this time of the last is the same gap.
const SAME_GAP: Duration = Duration::from_millis(20);

/// Frames that are taken before they are acknowledged by a message of its own.
const ACKNOWLEDGE_EVERY: u32 = 16;

/// What arrives for an attempt.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// A frame, and when it arrived.
    Frame(Frame, Instant),
    /// NATS knows no subscriber for a frame that was sent.
    NoResponders,
}

/// Frames that were dropped, by reason; in all attempts of a process.
#[derive(Debug, Default)]
pub(crate) struct DropCounters {
    /// No frame, a wrong version, an unknown kind, a kind that the other side may not send.
    pub(crate) malformed: AtomicU64,
    /// Of an attempt that is over, or never was.
    pub(crate) unknown_attempt: AtomicU64,
    /// A number that was here already.
    pub(crate) duplicate: AtomicU64,
    /// Behind a gap, sent without credit, or beyond what an inbox holds: it is sent again.
    pub(crate) early: AtomicU64,
}

/// Where the frames of each attempt go.
#[derive(Clone, Default)]
pub(crate) struct Inboxes(Arc<InboxesInner>);

#[derive(Default)]
struct InboxesInner {
    senders: DashMap<u64, InboxSender>,
    dropped: DropCounters,
}

struct InboxSender {
    deliveries: mpsc::Sender<Delivery>,
    n_bytes: Arc<AtomicUsize>,
}

/// An attempt's deliveries. Dropping it forgets the attempt.
pub(crate) struct Inbox {
    attempt: u64,
    deliveries: mpsc::Receiver<Delivery>,
    n_bytes: Arc<AtomicUsize>,
    inboxes: Inboxes,
}

impl Inboxes {
    /// An inbox for a new attempt; `None` if there is one of this number.
    pub(crate) fn open(&self, attempt: u64) -> Option<Inbox> {
        let (sender, deliveries) = mpsc::channel(INBOX);
        let n_bytes = Arc::new(AtomicUsize::new(0));
        match self.0.senders.entry(attempt) {
            dashmap::Entry::Occupied(_) => None,
            dashmap::Entry::Vacant(place) => {
                place.insert(InboxSender { deliveries: sender, n_bytes: n_bytes.clone() });
                Some(Inbox { attempt, deliveries, n_bytes, inboxes: self.clone() })
            }
        }
    }

    /// Delivers without waiting. `false`: the attempt is unknown here.
    pub(crate) fn deliver(&self, attempt: u64, delivery: Delivery) -> bool {
        let Some(sender) = self.0.senders.get(&attempt) else {
            self.0.dropped.unknown_attempt.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let n = delivery.n_bytes();
        let before = sender.n_bytes.fetch_add(n, Ordering::AcqRel);
        if before + n > INBOX_BYTES || sender.deliveries.try_send(delivery).is_err() {
            sender.n_bytes.fetch_sub(n, Ordering::AcqRel);
            self.0.dropped.early.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// What was dropped.
    pub(crate) fn dropped(&self) -> &DropCounters {
        &self.0.dropped
    }

    /// Attempts that are open.
    pub(crate) fn len(&self) -> usize {
        self.0.senders.len()
    }
}

impl Delivery {
    fn n_bytes(&self) -> usize {
        match self {
            Self::Frame(frame, _) => frame.n_bytes(),
            Self::NoResponders => HEADER_BYTES,
        }
    }
}

impl Inbox {
    /// The attempt's number.
    pub(crate) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The next delivery. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.recv().await?;
        self.n_bytes.fetch_sub(delivery.n_bytes(), Ordering::AcqRel);
        Some(delivery)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.inboxes.0.senders.remove(&self.attempt);
    }
}

/// Why an exchange is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeEnd {
    /// The hub has lost interest.
    Cancelled,
    /// The other end does not know the attempt.
    Reset,
    /// NATS knows no subscriber for the frame that opens the attempt.
    NoResponders,
    /// A payload is larger than a frame may be.
    TooLarge(usize),
}

/// What carries frames to the other end. It may lose, repeat and reorder them.
pub(crate) trait Carrier: Send + Sync {
    /// Sends without waiting.
    fn send(&self, to: &Subject, reply: Option<&Subject>, frame: Bytes);
}

impl Carrier for Link {
    fn send(&self, to: &Subject, reply: Option<&Subject>, frame: Bytes) {
        Self::send(self, to, reply, frame);
    }
}

/// One end of an attempt.
pub(crate) struct Exchange<C = Link> {
    carrier: C,
    inbox: Inbox,
    /// Where frames go.
    to: Subject,
    /// Where NATS answers if the other end has no subscription.
    reply: Subject,
    outgoing: FrameSender,
    incoming: FrameReceiver,
    /// Frames in order that are not consumed yet: a window at most.
    ready: VecDeque<(Frame, Instant)>,
    n_unacknowledged: u32,
    probe_at: Instant,
    probe_after: Duration,
    reported_gap: Option<(u32, Instant)>,
    sent_again_at: Option<Instant>,
    /// When the request arrived that the frames sent now answer.
    request_at: Instant,
    /// The other end has not answered yet. Afterwards a missing subscriber may be one that is reconnecting.
    is_opening: bool,
}

impl<C: Carrier> Exchange<C> {
    pub(crate) fn new(carrier: C, inbox: Inbox, to: Subject, reply: Subject) -> Self {
        let now = Instant::now();
        Self {
            carrier,
            inbox,
            to,
            reply,
            outgoing: FrameSender::new(),
            incoming: FrameReceiver::default(),
            ready: VecDeque::new(),
            n_unacknowledged: 0,
            probe_at: now + PROBE_AFTER,
            probe_after: PROBE_AFTER,
            reported_gap: None,
            sent_again_at: None,
            request_at: now,
            is_opening: true,
        }
    }

    /// Changes where frames go: an attempt is opened on one subject and continues on another.
    pub(crate) fn redirect(&mut self, to: Subject) {
        self.to = to;
    }

    /// Takes a frame that arrived before the exchange was made.
    pub(crate) fn accept(&mut self, frame: Frame, at: Instant) {
        // An opening frame neither ends an exchange nor breaks it.
        let _ = self.take(Delivery::Frame(frame, at));
    }

    /// Whether a payload of `n` bytes may be sent now.
    pub(crate) fn has_credit(&self, n: usize) -> bool {
        self.outgoing.has_credit(n)
    }

    /// Sends a frame, numbered where its kind is. The caller has checked the credit.
    pub(crate) fn send_now(&mut self, kind: Kind, payload: Bytes) {
        let mut frame = Frame { payload, ..Frame::new(kind, self.inbox.attempt()) };
        let elapsed = self.request_at.elapsed().as_micros();
        frame.elapsed_us = u32::try_from(elapsed).unwrap_or(u32::MAX);
        if kind.is_sequenced() {
            if self.outgoing.is_acknowledged() {
                self.probe_after = PROBE_AFTER;
                self.probe_at = Instant::now() + self.probe_after;
            }
            frame = self.outgoing.push(frame).clone();
        } else {
            frame.sequence = self.outgoing.next();
        }
        self.publish(frame);
    }

    /// Sends a frame once there is credit for it. Cancelling before that sends nothing.
    ///
    /// # Errors
    /// The exchange is over, or the payload is too large for a frame.
    pub(crate) async fn send(&mut self, kind: Kind, payload: Bytes) -> Result<(), ExchangeEnd> {
        if payload.len() > MAX_SEQUENCED_BYTES {
            return Err(ExchangeEnd::TooLarge(payload.len()));
        }
        self.credit_for(payload.len()).await?;
        self.send_now(kind, payload);
        Ok(())
    }

    /// Waits until a payload of `n` bytes may be sent. Frames that arrive meanwhile are kept for [`Self::receive`].
    pub(crate) async fn credit_for(&mut self, n: usize) -> Result<(), ExchangeEnd> {
        while !self.has_credit(n) {
            self.step().await?;
        }
        Ok(())
    }

    /// The next numbered frame, in order, and when it arrived. Cancelling loses nothing.
    pub(crate) async fn receive(&mut self) -> Result<(Frame, Instant), ExchangeEnd> {
        loop {
            if let Some((frame, at)) = self.ready.pop_front() {
                self.incoming.consume(&frame);
                let is_last = matches!(frame.kind, Kind::End | Kind::Failed);
                if is_last || self.incoming.owes_credit() {
                    self.acknowledge(false);
                }
                return Ok((frame, at));
            }
            self.step().await?;
        }
    }

    /// Waits until [`Self::receive`] has a frame to return. Cancelling loses nothing.
    pub(crate) async fn arrival(&mut self) -> Result<(), ExchangeEnd> {
        while self.ready.is_empty() {
            self.step().await?;
        }
        Ok(())
    }

    /// Waits for the end of the exchange; frames that arrive meanwhile are kept for [`Self::receive`].
    pub(crate) async fn ended(&mut self) -> ExchangeEnd {
        loop {
            if let Err(ended) = self.step().await {
                return ended;
            }
        }
    }

    /// Waits until all that was sent is received.
    pub(crate) async fn settle(&mut self) -> Result<(), ExchangeEnd> {
        while !self.outgoing.is_acknowledged() {
            // What arrives now is not wanted any more.
            self.ready.clear();
            self.step().await?;
        }
        Ok(())
    }

    /// Frames sent from now on answer what arrived at this time.
    pub(crate) fn answers(&mut self, request_at: Instant) {
        self.request_at = request_at;
    }

    /// Waits for one delivery, or for the time to ask for an acknowledgement. Cancelling loses nothing.
    async fn step(&mut self) -> Result<(), ExchangeEnd> {
        tokio::select! {
            biased;
            delivery = self.inbox.next() => match delivery {
                Some(delivery) => self.take(delivery),
                None => Err(ExchangeEnd::Reset),
            },
            // Also where nothing is owed: an end that has forgotten the attempt says so.
            () = sleep_until(self.probe_at) => {
                self.probe_after = (self.probe_after * 2).min(PROBE_AFTER_MAX);
                self.probe_at = Instant::now() + self.probe_after;
                if self.is_opening {
                    // The other end does not know the attempt yet, and could not say what it misses.
                    self.send_again();
                } else {
                    let mut probe = Frame::new(Kind::Ack, self.inbox.attempt());
                    probe.is_probe = true;
                    probe.sequence = self.outgoing.next();
                    self.publish(probe);
                }
                Ok(())
            }
        }
    }

    fn take(&mut self, delivery: Delivery) -> Result<(), ExchangeEnd> {
        let Delivery::Frame(frame, at) = delivery else {
            return if self.is_opening { Err(ExchangeEnd::NoResponders) } else { Ok(()) };
        };
        self.is_opening = false;
        self.outgoing.acknowledge(frame.acknowledged, frame.credit);
        self.probe_after = if self.outgoing.is_acknowledged() { PROBE_AFTER_MAX } else { PROBE_AFTER };
        self.probe_at = Instant::now() + self.probe_after;
        if frame.has_gap {
            self.send_again();
        }
        match frame.kind {
            Kind::Cancel => return Err(ExchangeEnd::Cancelled),
            Kind::Reset => return Err(ExchangeEnd::Reset),
            Kind::Ack if frame.is_probe => self.acknowledge(self.incoming.misses(frame.sequence)),
            kind if kind.is_sequenced() => match self.incoming.arrive(&frame) {
                Arrival::Next => {
                    self.ready.push_back((frame, at));
                    self.n_unacknowledged += 1;
                    if self.n_unacknowledged >= ACKNOWLEDGE_EVERY {
                        self.acknowledge(false);
                    }
                }
                Arrival::Duplicate => {
                    self.inbox.inboxes.dropped().duplicate.fetch_add(1, Ordering::Relaxed);
                }
                Arrival::Gap => {
                    self.inbox.inboxes.dropped().early.fetch_add(1, Ordering::Relaxed);
                    let expected = self.incoming.expected();
                    let is_new =
                        self.reported_gap.is_none_or(|(gap, since)| gap != expected || since.elapsed() > SAME_GAP);
                    if is_new {
                        self.reported_gap = Some((expected, Instant::now()));
                        self.acknowledge(true);
                    }
                }
                Arrival::OverCredit => {
                    self.inbox.inboxes.dropped().early.fetch_add(1, Ordering::Relaxed);
                }
            },
            _ => {}
        }
        Ok(())
    }

    /// Acknowledges what was taken since the last frame was sent, so that the other end need not ask.
    pub(crate) fn acknowledge_rest(&mut self) {
        if self.n_unacknowledged > 0 {
            self.acknowledge(false);
        }
    }

    fn acknowledge(&mut self, has_gap: bool) {
        let mut frame = Frame::new(Kind::Ack, self.inbox.attempt());
        frame.has_gap = has_gap;
        frame.sequence = self.outgoing.next();
        self.publish(frame);
    }

    fn send_again(&mut self) {
        if self.sent_again_at.is_some_and(|at| at.elapsed() < SAME_GAP) {
            return;
        }
        self.sent_again_at = Some(Instant::now());
        let frames: Vec<Frame> = self.outgoing.unacknowledged().cloned().collect();
        frames.into_iter().for_each(|frame| self.publish(frame));
    }

    /// Every frame carries the state of the other direction.
    fn publish(&mut self, mut frame: Frame) {
        frame.acknowledged = self.incoming.expected();
        frame.credit = self.incoming.credit();
        self.n_unacknowledged = 0;
        self.incoming.reported();
        self.carrier.send(&self.to, Some(&self.reply), frame.encode());
    }
}

/// Feeds bytes from a stranger to an exchange, two bytes of length before each message: for fuzzing. Nothing may panic, and what
/// is kept stays within a window.
#[cfg(feature = "testing")]
pub fn feed(mut bytes: &[u8]) {
    struct Nowhere;
    impl Carrier for Nowhere {
        fn send(&self, _: &Subject, _: Option<&Subject>, frame: Bytes) {
            assert!(Frame::decode(&frame).is_ok(), "what is sent can be read");
        }
    }
    let inboxes = Inboxes::default();
    let inbox = inboxes.open(1).expect("the first");
    let mut exchange = Exchange::new(Nowhere, inbox, Subject::from_static("to"), Subject::from_static("reply"));
    exchange.send_now(Kind::Open, Bytes::from_static(b"{}"));
    while let Some(([high, low], rest)) = bytes.split_first_chunk::<2>() {
        let (message, rest) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([*high, *low]))));
        bytes = rest;
        let Ok(frame) = Frame::decode(&Bytes::copy_from_slice(message)) else { continue };
        crate::message::read_any(&frame.payload);
        if exchange.take(Delivery::Frame(frame, Instant::now())).is_err() {
            return;
        }
        if exchange.has_credit(100) {
            exchange.send_now(Kind::Audio, Bytes::from_static(&[0; 100]));
        }
        let n_bytes: usize = exchange.ready.iter().map(|(frame, _)| frame.n_bytes()).sum();
        assert!(n_bytes as u64 <= WINDOW_BYTES, "{n_bytes} bytes are kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// Frames that are under way, for each direction.
    type Wire = Arc<Mutex<Vec<Frame>>>;

    struct Lossy(Wire);

    impl Carrier for Lossy {
        fn send(&self, _: &Subject, _: Option<&Subject>, frame: Bytes) {
            self.0.lock().unwrap().push(Frame::decode(&frame).expect("what is sent can be read"));
        }
    }

    /// Both ends of an attempt, and the wires from each to the other.
    struct Pair {
        ends: [Exchange<Lossy>; 2],
        wires: [Wire; 2],
        inboxes: [Inboxes; 2],
    }

    impl Pair {
        fn new() -> Self {
            let (wires, inboxes) = <([Wire; 2], [Inboxes; 2])>::default();
            let end = |n: usize| {
                let inbox = inboxes[n].open(1).expect("the first");
                let subject = Subject::from_static("s");
                Exchange::new(Lossy(wires[n].clone()), inbox, subject.clone(), subject)
            };
            Self { ends: [end(0), end(1)], wires, inboxes }
        }

        /// Delivers what `from` has sent; of each eight frames as the bits of `fate` say: lost, twice, or out of order.
        fn deliver(&self, from: usize, fate: u16) {
            let mut frames = std::mem::take(&mut *self.wires[from].lock().unwrap());
            if fate & 0x100 != 0 {
                frames.reverse();
            }
            for (n, frame) in frames.into_iter().enumerate() {
                let is_lost = fate >> (n % 8) & 1 != 0 && fate & 0x200 == 0;
                let n_times = if is_lost { 0 } else { 1 + usize::from(fate & 0x400 != 0) };
                for _ in 0..n_times {
                    self.inboxes[1 - from].deliver(1, Delivery::Frame(frame.clone(), Instant::now()));
                }
            }
        }
    }

    fn payload(n: usize) -> Bytes {
        Bytes::from(vec![n as u8; 1 + n % 3_000])
    }

    /// Sends `n` frames from one end and receives them at the other while the wire does as `fates` say.
    async fn transfer(n: usize, fates: Vec<u16>) -> Vec<Bytes> {
        let mut pair = Pair::new();
        let mut received = Vec::new();
        let mut n_sent = 0;
        let mut fates = fates.into_iter();
        let mut n_rounds = 0;
        while received.len() < n {
            n_rounds += 1;
            assert!(n_rounds < 20_000, "{} of {n} arrived", received.len());
            while n_sent < n && pair.ends[0].has_credit(payload(n_sent).len()) && n_sent < received.len() + 40 {
                pair.ends[0].send_now(Kind::Audio, payload(n_sent));
                n_sent += 1;
            }
            let fate = fates.next().unwrap_or(0x200);
            pair.deliver(0, fate);
            pair.deliver(1, fate.rotate_left(3) | fate & 0x200);
            let patience = Duration::from_millis(50);
            let [sender, receiver] = &mut pair.ends;
            while let Ok(frame) = tokio::time::timeout(patience, receiver.receive()).await {
                received.push(frame.expect("it goes on").0.payload);
            }
            let _ = tokio::time::timeout(patience, sender.ended()).await;
        }
        received
    }

    #[test]
    fn an_attempt_is_there_once_and_goes_with_its_inbox() {
        let inboxes = Inboxes::default();
        let inbox = inboxes.open(7).expect("free");
        assert!(inboxes.open(7).is_none() && inboxes.len() == 1);
        drop(inbox);
        assert!(inboxes.open(7).is_some());
        assert!(!inboxes.deliver(7, Delivery::NoResponders), "it went with the statement");
        assert_eq!(inboxes.dropped().unknown_attempt.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn an_inbox_is_bounded_in_bytes() {
        let inboxes = Inboxes::default();
        let mut inbox = inboxes.open(7).expect("free");
        let frame = Frame { payload: Bytes::from(vec![0; 100_000]), ..Frame::new(Kind::Audio, 7) };
        for _ in 0..20 {
            assert!(inboxes.deliver(7, Delivery::Frame(frame.clone(), Instant::now())));
        }
        assert_eq!(inboxes.dropped().early.load(Ordering::Relaxed), 15);
        for _ in 0..5 {
            inbox.next().await.expect("kept");
        }
        assert_eq!(inbox.n_bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_lost_at_the_end_is_asked_for() {
        let mut pair = Pair::new();
        pair.ends[0].send_now(Kind::Finish, payload(1));
        pair.wires[0].lock().unwrap().clear();
        let patience = Duration::from_secs(1);
        for _ in 0..3 {
            let _ = tokio::time::timeout(patience, pair.ends[0].ended()).await;
            pair.deliver(0, 0);
            if let Ok(frame) = tokio::time::timeout(patience, pair.ends[1].receive()).await {
                assert_eq!(frame.expect("it goes on").0.kind, Kind::Finish);
                return;
            }
            pair.deliver(1, 0);
        }
        panic!("it never came");
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_subscriber_ends_the_opening_only() {
        let mut pair = Pair::new();
        pair.ends[0].send_now(Kind::Open, payload(1));
        pair.inboxes[0].deliver(1, Delivery::NoResponders);
        assert_eq!(pair.ends[0].receive().await.err(), Some(ExchangeEnd::NoResponders));
        let mut pair = Pair::new();
        pair.ends[1].send_now(Kind::Accepted, payload(1));
        pair.deliver(1, 0);
        assert_eq!(pair.ends[0].receive().await.expect("accepted").0.kind, Kind::Accepted);
        pair.inboxes[0].deliver(1, Delivery::NoResponders);
        assert!(tokio::time::timeout(Duration::from_secs(5), pair.ends[0].receive()).await.is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn whatever_the_network_does_frames_arrive_once_and_in_order(
            n in 1_usize..200,
            fates in proptest::collection::vec(0_u16..0x800, 0..60),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let received = runtime.block_on(transfer(n, fates));
            prop_assert_eq!(received, (0..n).map(payload).collect::<Vec<_>>());
        }
    }
}
