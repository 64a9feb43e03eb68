//! What leaves for the client: a bounded, ordered log between the actor and the connection's writer.
//!
//! The actor pushes, the writer takes. Control and data are apart: audio that has not left yet can be held or dropped
//! while everything else goes on. The lock guards a queue operation only and is never held across an await.

use crate::units::{ItemId, ResponseId, Samples};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Unsent bytes from which on no more reply audio is pulled. The protocol events of one response are a few KiB.
pub const MAX_UNSENT_BYTES: usize = 256 * 1024;

/// One message for the client.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A JSON event.
    Text(String),
    /// A binary audio frame.
    Binary(Bytes),
}

/// Why a connection is closed: a WebSocket close code and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// RFC 6455 section 7.4.1, or one of the protocol's own.
    pub code: u16,
    /// At most 123 bytes.
    pub reason: &'static str,
}

/// Audio that has left: which item, and how much.
pub(super) type Sent = (ItemId, Samples);

/// The log.
pub struct Egress {
    log: Mutex<Log>,
    /// The writer waits here.
    ready: Notify,
    /// The actor waits here.
    moved: Notify,
    closed: CancellationToken,
}

struct Log {
    entries: VecDeque<Entry>,
    unsent_bytes: usize,
    held: bool,
    close: Option<Close>,
    sent: Vec<Sent>,
    /// Audio of the message the writer has in hand.
    in_hand: Option<Sent>,
    in_hand_bytes: usize,
    /// When the writer last finished a message, or the log last became non-empty.
    progress: Instant,
}

struct Entry {
    message: Message,
    /// Events of a response keep their order with its audio, so they are held with it.
    response: Option<ResponseId>,
    audio: Option<Sent>,
}

impl Entry {
    fn bytes(&self) -> usize {
        match &self.message {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) => bytes.len(),
        }
    }
}

impl Egress {
    pub(super) fn new() -> Self {
        let log = Log {
            entries: VecDeque::new(),
            unsent_bytes: 0,
            held: false,
            close: None,
            sent: Vec::new(),
            in_hand: None,
            in_hand_bytes: 0,
            progress: Instant::now(),
        };
        Self { log: Mutex::new(log), ready: Notify::new(), moved: Notify::new(), closed: CancellationToken::new() }
    }

    /// An event, in order; `response` when it belongs to one.
    pub(super) fn push(&self, message: Message, response: Option<ResponseId>) {
        self.append(Entry { message, response, audio: None });
    }

    /// Reply audio, in order.
    pub(super) fn push_audio(&self, message: Message, response: ResponseId, sent: Sent) {
        self.append(Entry { message, response: Some(response), audio: Some(sent) });
    }

    fn append(&self, entry: Entry) {
        let mut log = self.lock();
        if log.entries.is_empty() && log.in_hand_bytes == 0 {
            log.progress = Instant::now();
        }
        log.unsent_bytes += entry.bytes();
        log.entries.push_back(entry);
        drop(log);
        self.ready.notify_one();
    }

    /// Lets nothing of any response out until [`Egress::release`].
    pub(super) fn hold(&self) {
        self.lock().held = true;
    }

    pub(super) fn release(&self) {
        let mut log = self.lock();
        log.held = false;
        log.progress = Instant::now();
        drop(log);
        self.ready.notify_one();
    }

    /// Drops the audio of `response` that has not left; its events stay.
    pub(super) fn drop_audio(&self, response: &ResponseId) {
        let mut log = self.lock();
        log.entries.retain(|entry| entry.audio.is_none() || entry.response.as_ref() != Some(response));
        log.unsent_bytes = log.entries.iter().map(Entry::bytes).sum();
        drop(log);
        self.moved.notify_one();
    }

    /// Whether more reply audio may be made.
    pub(super) fn has_room(&self) -> bool {
        self.lock().unsent_bytes < MAX_UNSENT_BYTES
    }

    /// Whether the client may be heard: its requests make events, and those are held to a bound as well.
    pub(super) fn takes_requests(&self) -> bool {
        self.lock().unsent_bytes < 4 * MAX_UNSENT_BYTES
    }

    /// Since when the client has taken nothing although something waits for it.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        let log = self.lock();
        let waits = log.in_hand_bytes > 0 || log.entries.iter().any(|entry| !log.held || entry.response.is_none());
        waits.then_some(log.progress)
    }

    /// The audio that has left since the last call.
    pub(super) fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.lock().sent)
    }

    /// Resolves when the writer has finished a message since the last call.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Ends the log: what is in it may still leave, then the writer gets the close.
    pub fn close(&self, close: Close) {
        let mut log = self.lock();
        log.close.get_or_insert(close);
        log.held = false;
        drop(log);
        self.closed.cancel();
        self.ready.notify_one();
        self.moved.notify_one();
    }

    /// Resolves once the log is closed: the writer has its last messages to send, and not for ever.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// The next message; calling again says that the last one has left. `Err` is the end. For the one writer.
    /// Cancel safe.
    pub async fn next(&self) -> Result<Message, Close> {
        loop {
            {
                let mut log = self.lock();
                if log.settle() {
                    self.moved.notify_one();
                }
                if let Some(message) = log.take() {
                    return Ok(message);
                }
                if let Some(close) = log.close.clone() {
                    return Err(close);
                }
            }
            self.ready.notified().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().expect("no panic while locked")
    }
}

impl Log {
    /// Counts the message in the writer's hand as sent; says whether there was one.
    fn settle(&mut self) -> bool {
        if self.in_hand_bytes == 0 {
            return false;
        }
        self.in_hand_bytes = 0;
        self.progress = Instant::now();
        self.sent.extend(self.in_hand.take());
        true
    }

    fn take(&mut self) -> Option<Message> {
        let held = self.held;
        let at = self.entries.iter().position(|entry| !held || entry.response.is_none())?;
        let entry = self.entries.remove(at)?;
        self.in_hand_bytes = entry.bytes().max(1);
        self.unsent_bytes -= entry.bytes();
        self.in_hand = entry.audio;
        Some(entry.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn text(text: &str) -> Message {
        Message::Text(text.into())
    }

    /// What the writer gets without waiting.
    fn drain(egress: &Egress) -> Vec<String> {
        let mut taken = Vec::new();
        while let Some(Ok(Message::Text(text))) = egress.next().now_or_never() {
            taken.push(text);
        }
        taken
    }

    fn filled() -> Egress {
        let egress = Egress::new();
        egress.push(text("created"), Some("r1".into()));
        egress.push_audio(text("audio 1"), "r1".into(), ("i1".into(), Samples(480)));
        egress.push_audio(text("audio 2"), "r1".into(), ("i1".into(), Samples(480)));
        egress.push(text("done"), Some("r1".into()));
        egress.push(text("error"), None);
        egress
    }

    #[tokio::test]
    async fn order_is_kept_and_what_left_is_told() {
        let egress = filled();
        assert_eq!(drain(&egress), ["created", "audio 1", "audio 2", "done", "error"]);
        assert_eq!(egress.take_sent(), [("i1".into(), Samples(480)), ("i1".into(), Samples(480))]);
        assert!(egress.stuck_since().is_none());
    }

    #[tokio::test]
    async fn a_hold_lets_other_events_pass_and_keeps_the_responses_order() {
        let egress = filled();
        egress.hold();
        assert_eq!(drain(&egress), ["error"]);
        egress.drop_audio(&"r1".into());
        egress.release();
        assert_eq!(drain(&egress), ["created", "done"]);
        assert_eq!(egress.take_sent(), []);
    }

    #[tokio::test]
    async fn a_message_counts_as_sent_only_when_the_next_is_asked_for() {
        let egress = Egress::new();
        egress.push_audio(text("audio"), "r1".into(), ("i1".into(), Samples(480)));
        assert!(egress.next().now_or_never().is_some());
        assert_eq!(egress.take_sent(), []);
        assert!(egress.stuck_since().is_some());
        assert!(egress.next().now_or_never().is_none());
        assert_eq!(egress.take_sent(), [("i1".into(), Samples(480))]);
    }

    #[tokio::test]
    async fn the_close_comes_after_what_was_there() {
        let egress = filled();
        egress.hold();
        egress.close(Close { code: 1001, reason: "going away" });
        assert_eq!(drain(&egress).len(), 5);
        assert_eq!(egress.next().now_or_never(), Some(Err(Close { code: 1001, reason: "going away" })));
    }
}
