//! The messages that a client sent to a resumable session, kept to be sent again, and the checkpoints to which the
//! session may go back.
//!
//! [`super::link`] holds one for each connection that was opened to be resumed. It counts and stores; it reads no clock
//! and sends nothing.

use serde_json::Value;
use std::collections::VecDeque;
use tokio_tungstenite::tungstenite::Message;

/// Bytes of messages that are kept; beyond, the oldest are dropped. 170 s of PCM16 at 24 kHz, half an hour of Opus.
const MAX_KEPT_BYTES: usize = 8 << 20;
/// Checkpoints that a hub may go back to: one is announced once the one before is stored.
const MAX_CHECKPOINTS: usize = 2;

/// The sent messages after the older of the last two checkpoints, numbered from 1 over the session.
#[derive(Default)]
pub(super) struct Outbox {
    kept: VecDeque<RetainedMessage>,
    n_kept_bytes: usize,
    /// Number of messages before the first kept one.
    n_before: u64,
    /// Number of messages that need not be written on the current connection: written, or included before it.
    n_written: u64,
    checkpoints: VecDeque<Checkpoint>,
}

struct RetainedMessage {
    message: Message,
    about_output: bool,
}

/// The state of both sides at a checkpoint, in counts.
#[derive(Clone, Copy)]
struct Checkpoint {
    /// Number of the message that announced it.
    number: u64,
    /// Number of the client's messages that it includes.
    n_included: u64,
    /// Number of reply frames received before it.
    next_frame: Option<u32>,
}

/// How a session continues on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Continuation {
    /// Where messages received by the client are void: the number of the checkpoint that it goes back to, and the
    /// sequence number of the next reply frame.
    pub(super) back_to: Option<(u64, Option<u32>)>,
    /// Number of messages that the session does not include and that are no longer kept.
    pub(super) n_dropped: u64,
}

/// The server's counts contradict the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Contradiction {
    /// The session continues after a message that the client has not received, or at no checkpoint.
    #[error("the session continues after message {after}, which is neither the last one received nor a checkpoint")]
    After { after: u64 },
    /// The session includes more messages than were sent.
    #[error("the session includes {received} messages of this client, which sent {n_sent}")]
    Received { received: u64, n_sent: u64 },
}

impl Outbox {
    /// Adds the next message. `about_output`: see [`is_about_output`].
    pub(super) fn push(&mut self, message: Message, about_output: bool) {
        self.n_kept_bytes += message.len();
        self.kept.push_back(RetainedMessage { message, about_output });
        while self.n_kept_bytes > MAX_KEPT_BYTES && self.kept.len() > 1 {
            self.drop_first();
        }
    }

    /// Number of messages sent in the session.
    pub(super) fn n_sent(&self) -> u64 {
        self.n_before + self.kept.len() as u64
    }

    /// The next message that is to be written on the current connection; it then counts as written.
    pub(super) fn next_to_write(&mut self) -> Option<Message> {
        self.n_written = self.n_written.max(self.n_before);
        let index = usize::try_from(self.n_written - self.n_before).ok()?;
        let message = self.kept.get(index)?.message.clone();
        self.n_written += 1;
        Some(message)
    }

    /// All messages so far need not be written on the current connection.
    pub(super) fn all_written(&mut self) {
        self.n_written = self.n_sent();
    }

    /// The server announced a checkpoint with message `number`; it includes `received` messages of this client.
    pub(super) fn checkpoint(&mut self, number: u64, received: u64, next_frame: Option<u32>) {
        self.checkpoints.push_back(Checkpoint { number, n_included: received, next_frame });
        if self.checkpoints.len() > MAX_CHECKPOINTS {
            self.checkpoints.pop_front();
        }
        let n_needless = self.checkpoints.front().map_or(0, |oldest| oldest.n_included);
        while self.n_before < n_needless && !self.kept.is_empty() {
            self.drop_first();
        }
    }

    /// The session continues on a new connection after message `after` and includes `received` messages of this client,
    /// which named `named`. The messages to be written are those that the session does not include; if it goes back,
    /// without those that are about void output. On an error nothing has changed.
    pub(super) fn resume(&mut self, named: u64, after: u64, received: u64) -> Result<Continuation, Contradiction> {
        let back_to = match self.checkpoints.iter().find(|checkpoint| checkpoint.number == after) {
            _ if after == named => None,
            Some(checkpoint) if after < named => Some((checkpoint.number, checkpoint.next_frame)),
            _ => return Err(Contradiction::After { after }),
        };
        let n_sent = self.n_sent();
        if received > n_sent {
            return Err(Contradiction::Received { received, n_sent });
        }
        let n_dropped = self.n_before.saturating_sub(received);
        self.n_before -= n_dropped;
        self.n_written = received;
        if back_to.is_some() {
            // This checkpoint is stored, so that the session will never go back further.
            self.checkpoints.retain(|checkpoint| checkpoint.number == after);
            while self.n_before < received {
                self.drop_first();
            }
            self.kept.retain(|kept| !kept.about_output);
            self.n_kept_bytes = self.kept.iter().map(|kept| kept.message.len()).sum();
        }
        Ok(Continuation { back_to, n_dropped })
    }

    fn drop_first(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            self.n_kept_bytes -= kept.message.len();
            self.n_before += 1;
        }
    }
}

/// Whether an event speaks about output of the server. If that output is void after going back to a checkpoint, the
/// event is not sent again: an identifier in it may name other output by then.
pub(super) fn is_about_output(event: &Value) -> bool {
    match event["type"].as_str().unwrap_or_default() {
        "output_audio_buffer.played"
        | "output_audio_buffer.clear"
        | "antiphon.clock.ping"
        | "conversation.item.truncate"
        | "conversation.item.delete"
        | "response.cancel" => true,
        "conversation.item.create" => {
            matches!(event["item"]["type"].as_str(), Some("function_call_output" | "mcp_approval_response"))
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
