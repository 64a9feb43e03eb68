//! What leaves for the client: a bounded, ordered log between the actor and its reader, a WebSocket's writer or the adapter of
//! another transport.
//!
//! [`super::client_side`] pushes, the reader takes: outputs ([`Egress::next`]), or the messages of a WebSocket
//! ([`Egress::next_message`]). Control and data are apart: audio that has not left yet can be held or dropped
//! while everything else goes on. Where the client may come back after its connection broke, what was sent is kept until
//! it has answered for it ([`super::retained`]), and a new connection reads on from where it is. The lock guards a queue operation only and is never held across an await.

use super::message::Message;
use super::output::Output;
use super::retained::{ResumeError, RetainedMessages};
use super::snapshot::StoredLog;
use antiphon_protocol::Dialect;
use antiphon_types::{ItemId, ResponseId, Samples};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Unsent bytes from which on no more reply audio is pulled. The protocol events of one response are a few KiB.
pub const MAX_UNSENT_BYTES: usize = 256 * 1024;

/// The same in a session that moves to another hub.
const MAX_LEAVING_BYTES: usize = 4 * 1024 * 1024;

/// Why a connection is closed: a WebSocket close code and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// RFC 6455 section 7.4.1, or one of the protocol's own.
    pub code: u16,
    /// At most 123 bytes.
    pub reason: &'static str,
}

/// Audio that has left: which item, and how much.
pub(super) type SentAudio = (ItemId, Samples);

/// The log.
pub struct Egress {
    log: Mutex<Log>,
    /// The client's JSON, for [`Egress::next_message`].
    dialect: Dialect,
    /// The writer waits here.
    ready: Notify,
    /// The actor waits here.
    moved: Notify,
    closed: CancellationToken,
    /// The connection is to be given up, the session not.
    lost: Notify,
}

struct Log {
    entries: VecDeque<Entry>,
    unsent_bytes: usize,
    held: bool,
    close: Option<Close>,
    sent: Vec<SentAudio>,
    /// Audio of the message the writer has in hand.
    in_hand: Option<SentAudio>,
    in_hand_bytes: usize,
    /// Of a session that can be resumed.
    retained: Option<RetainedMessages>,
    /// Whether there is a connection.
    attached: bool,
    /// When the writer last finished a message, or the log last became non-empty.
    progress: Instant,
}

/// What an event is about, which decides whether a hold delays it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// A response: its events keep their order with its audio, so they are held with it.
    Response(ResponseId),
    /// Items of the conversation, and their transcripts: it overtakes no event of a response, which may be about the
    /// same item.
    Items,
    /// Anything else: it is not held.
    Session,
}

struct Entry {
    output: Output,
    /// [`Output::n_bytes`], which costs as much as to encode it.
    n_bytes: usize,
    about: About,
    audio: Option<SentAudio>,
}

impl Egress {
    /// `resumable`: what was sent is kept until the client has answered for it.
    pub(super) fn new(resumable: bool, dialect: Dialect) -> Self {
        let log = Log {
            entries: VecDeque::new(),
            unsent_bytes: 0,
            held: false,
            close: None,
            sent: Vec::new(),
            in_hand: None,
            in_hand_bytes: 0,
            retained: resumable.then(RetainedMessages::default),
            attached: true,
            progress: Instant::now(),
        };
        Self {
            log: Mutex::new(log),
            dialect,
            ready: Notify::new(),
            moved: Notify::new(),
            closed: CancellationToken::new(),
            lost: Notify::new(),
        }
    }

    /// The log of a session that another hub has served so far. There is no connection yet.
    pub(super) fn resumed(stored: StoredLog, dialect: Dialect) -> Self {
        let egress = Self::new(true, dialect);
        let mut log = egress.lock();
        log.retained = Some(RetainedMessages::resumed(stored.answered, stored.messages.into()));
        log.attached = false;
        drop(log);
        egress
    }

    /// A copy for a snapshot: what waits to leave counts as sent, since the client gets it from here or from there. Its audio
    /// is reported as sent by the second value. `None`: a part of it is held, so that its order is not known.
    pub(super) fn stored(&self) -> Option<(StoredLog, Vec<SentAudio>)> {
        let log = self.lock();
        let retained = log.retained.as_ref().filter(|_| !log.held)?;
        let (answered, messages) = retained.stored();
        let unsent = log.entries.iter().map(|entry| entry.output.message(self.dialect));
        let messages = messages.cloned().chain(unsent).collect();
        let sent =
            log.sent.iter().chain(&log.in_hand).chain(log.entries.iter().filter_map(|entry| entry.audio.as_ref()));
        Some((StoredLog { answered, messages }, sent.cloned().collect()))
    }

    /// Whether everything has left.
    pub(super) fn has_left(&self) -> bool {
        let log = self.lock();
        log.entries.is_empty() && log.in_hand_bytes == 0
    }

    /// An event, in order. Gives its bytes as a message.
    pub(super) fn push(&self, output: Output, about: About) -> usize {
        self.append(output, about, None)
    }

    /// Reply audio, in order. Gives its bytes as a message.
    pub(super) fn push_audio(&self, output: Output, response: ResponseId, sent: SentAudio) -> usize {
        self.append(output, About::Response(response), Some(sent))
    }

    fn append(&self, output: Output, about: About, audio: Option<SentAudio>) -> usize {
        let n_bytes = output.n_bytes();
        let mut log = self.lock();
        if log.entries.is_empty() && log.in_hand_bytes == 0 {
            log.progress = Instant::now();
        }
        log.unsent_bytes += n_bytes;
        log.entries.push_back(Entry { output, n_bytes, about, audio });
        drop(log);
        self.ready.notify_one();
        n_bytes
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
        let is_its = |entry: &Entry| matches!(&entry.about, About::Response(of) if of == response);
        log.entries.retain(|entry| entry.audio.is_none() || !is_its(entry));
        log.unsent_bytes = log.entries.iter().map(|entry| entry.n_bytes).sum();
        drop(log);
        self.moved.notify_one();
    }

    /// Whether more reply audio may be made.
    pub(super) fn has_room(&self) -> bool {
        self.lock().unsent_bytes < MAX_UNSENT_BYTES
    }

    /// The same in a session that moves to another hub: what is left of a reply, a minute of it at most in base64.
    pub(super) fn has_room_to_leave(&self) -> bool {
        self.lock().unsent_bytes < MAX_LEAVING_BYTES
    }

    /// Whether the client may be heard: its requests make events, and those are held to a bound as well.
    pub(super) fn takes_requests(&self) -> bool {
        self.lock().unsent_bytes < 4 * MAX_UNSENT_BYTES
    }

    /// Since when the client has taken nothing although something waits for it and there is a connection.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        let log = self.lock();
        if !log.attached {
            return None;
        }
        let waits = log.in_hand_bytes > 0 || log.next().is_some();
        waits.then_some(log.progress)
    }

    /// The audio that has left since the last call.
    pub(super) fn take_sent(&self) -> Vec<SentAudio> {
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

    /// Whether there is a connection.
    pub(super) fn is_attached(&self) -> bool {
        self.lock().attached
    }

    /// Has the connection given up, where the client may come back with another; says whether it may.
    pub(super) fn lose(&self) -> bool {
        let resumable = self.lock().retained.is_some();
        if resumable {
            // No client will read it: where no connection waits here, there is none to be given up.
            self.lost.notify_waiters();
        }
        resumable
    }

    /// Resolves when the session wants its connection given up.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }

    /// The connection is gone. What it was given counts as sent, and is kept.
    pub fn detach(&self) {
        let mut log = self.lock();
        log.settle();
        log.attached = false;
        drop(log);
        self.moved.notify_one();
    }

    /// A new connection takes over; it has what was sent up to the message of number `after`, counted from 1. For the
    /// session's next writer: the one before it has ended.
    pub fn attach(&self, after: u64) -> Result<(), ResumeError> {
        let mut log = self.lock();
        log.retained.as_mut().ok_or(ResumeError::NotKept)?.rewind(after)?;
        log.attached = true;
        log.progress = Instant::now();
        drop(log);
        self.ready.notify_one();
        self.moved.notify_one();
        Ok(())
    }

    /// Whether [`Egress::attach`] would succeed now; changes nothing.
    pub fn may_attach(&self, after: u64) -> Result<(), ResumeError> {
        self.lock().retained.as_ref().ok_or(ResumeError::NotKept)?.may_rewind(after)
    }

    /// The client has got everything up to this number.
    pub fn answered(&self, number: u64) {
        if let Some(retained) = &mut self.lock().retained {
            retained.answer(number);
        }
        self.ready.notify_one();
    }

    /// The number up to which the client should be asked to answer, when it is time for that. For the writer, between
    /// two messages.
    pub fn to_ask(&self) -> Option<u64> {
        self.lock().retained.as_mut()?.ask()
    }

    /// The number of the last message that has left; 0 where they are not counted.
    pub fn n_sent(&self) -> u64 {
        self.lock().retained.as_ref().map_or(0, RetainedMessages::sent)
    }

    /// Resolves once the log is closed: the writer has its last messages to send, and not for ever.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// The next output of a session that its client cannot resume; calling again says that the last one has left. `Err` is
    /// the end. For the one reader. Cancel safe.
    pub async fn next(&self) -> Result<Output, Close> {
        self.next_of(|log| log.take().map(|entry| entry.output)).await
    }

    /// As [`Egress::next`], as a message of a WebSocket, and for sessions that can be resumed, too.
    pub async fn next_message(&self) -> Result<Message, Close> {
        self.next_of(|log| log.take_message(self.dialect)).await
    }

    async fn next_of<T>(&self, take: impl Fn(&mut Log) -> Option<T>) -> Result<T, Close> {
        loop {
            {
                let mut log = self.lock();
                if log.settle() {
                    self.moved.notify_one();
                }
                if let Some(taken) = take(&mut log) {
                    return Ok(taken);
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
    /// The place of the entry that may leave next.
    fn next(&self) -> Option<usize> {
        if !self.held {
            return (!self.entries.is_empty()).then_some(0);
        }
        let mut is_behind = false;
        self.entries.iter().position(|entry| {
            is_behind |= matches!(entry.about, About::Response(_));
            match entry.about {
                About::Response(_) => false,
                About::Items => !is_behind,
                About::Session => true,
            }
        })
    }

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

    fn take(&mut self) -> Option<Entry> {
        let at = self.next()?;
        let mut entry = self.entries.remove(at)?;
        self.in_hand_bytes = entry.n_bytes.max(1);
        self.unsent_bytes -= entry.n_bytes;
        self.in_hand = entry.audio.take();
        Some(entry)
    }

    /// A message that the client must have again, or the next output, which is kept where it may have to be sent again.
    fn take_message(&mut self, dialect: Dialect) -> Option<Message> {
        if let Some(retained) = &mut self.retained {
            if let Some(message) = retained.again() {
                self.in_hand_bytes = message.n_bytes().max(1);
                return Some(message);
            }
            if !retained.has_room() {
                return None;
            }
        }
        let message = self.take()?.output.message(dialect);
        if let Some(retained) = &mut self.retained {
            retained.keep(message.clone());
        }
        Some(message)
    }
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
