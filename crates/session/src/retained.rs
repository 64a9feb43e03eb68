//! What a resumable session has sent and its client may not have got: numbered, bounded, given again on a new connection.
//!
//! The egress log keeps one for each session that its client may take up again. Numbers count the messages of the session
//! from 1, in the order in which they left. What the client has answered for (by a pong, or by the number it comes back
//! with) is let go. It reads no clock and sends nothing.

use super::message::Message;
use std::collections::VecDeque;

/// Messages that may be on their way: more are not sent before the client has answered for some. At the round trip of a
/// telephone network, 200 ms, that is still 5 MB a second.
pub const MAX_UNANSWERED_BYTES: usize = 1024 * 1024;

/// The client is asked how far it has got after so many bytes. 16 times within the bound, so that it is never waited for
/// on a way that works.
const ASK_EVERY_BYTES: usize = 64 * 1024;

/// Why a client cannot resume from the position it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// It never got so far.
    #[error("Only {sent} events were sent; 'after' is {after}.")]
    NotSent {
        /// As it said.
        after: u64,
        /// The number of messages sent.
        sent: u64,
    },
    /// It has acknowledged more messages than it now names.
    #[error("Events up to {answered} were received and are not kept any more; 'after' is {after}.")]
    LetGo {
        /// As it said.
        after: u64,
        /// The number of messages acknowledged.
        answered: u64,
    },
    /// The session was not opened to be resumed.
    #[error("This session cannot be resumed.")]
    NotKept,
}

/// The messages.
#[derive(Debug, Default)]
pub(super) struct RetainedMessages {
    /// The oldest carries the number `answered + 1`.
    messages: VecDeque<Message>,
    bytes: usize,
    answered: u64,
    /// How many of the messages, from the oldest, this connection has had.
    given: usize,
    /// Bytes since the client was last asked.
    unasked: usize,
}

impl RetainedMessages {
    /// The messages that are kept, and the number of the message before them.
    pub(super) fn stored(&self) -> (u64, impl Iterator<Item = &Message>) {
        (self.answered, self.messages.iter())
    }

    /// Messages that another hub has sent, behind the one of the number `answered`. None of them was given here.
    pub(super) fn resumed(answered: u64, messages: VecDeque<Message>) -> Self {
        let bytes = messages.iter().map(Message::n_bytes).sum();
        Self { messages, bytes, answered, given: 0, unasked: 0 }
    }

    /// A message leaves for the first time.
    pub(super) fn keep(&mut self, message: Message) {
        self.bytes += message.n_bytes();
        self.unasked += message.n_bytes();
        self.messages.push_back(message);
        self.given = self.messages.len();
    }

    /// Whether another may leave.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < MAX_UNANSWERED_BYTES
    }

    /// The next message that this connection must have again.
    pub(super) fn again(&mut self) -> Option<Message> {
        let message = self.messages.get(self.given)?.clone();
        self.given += 1;
        self.unasked += message.n_bytes();
        Some(message)
    }

    /// The number of the last message that has left.
    pub(super) fn sent(&self) -> u64 {
        self.answered + self.messages.len() as u64
    }

    /// The number to request an acknowledgement of, when one is due.
    pub(super) fn ask(&mut self) -> Option<u64> {
        (self.unasked >= ASK_EVERY_BYTES).then(|| {
            self.unasked = 0;
            self.answered + self.given as u64
        })
    }

    /// The client has everything up to this number. A number that was never sent is ignored.
    pub(super) fn answer(&mut self, number: u64) {
        if number > self.answered + self.given as u64 {
            return;
        }
        while self.answered < number {
            let message = self.messages.pop_front().expect("what was given is kept until it is answered for");
            self.bytes -= message.n_bytes();
            self.answered += 1;
            self.given -= 1;
        }
    }

    /// Whether a connection could go on behind `after`.
    pub(super) fn may_rewind(&self, after: u64) -> Result<(), ResumeError> {
        if after > self.sent() {
            return Err(ResumeError::NotSent { after, sent: self.sent() });
        }
        if after < self.answered {
            return Err(ResumeError::LetGo { after, answered: self.answered });
        }
        Ok(())
    }

    /// A new connection has everything up to `after`; the rest is sent again.
    pub(super) fn rewind(&mut self, after: u64) -> Result<(), ResumeError> {
        self.may_rewind(after)?;
        self.given = self.messages.len();
        self.answer(after);
        self.given = 0;
        self.unasked = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(number: u64) -> Message {
        Message::Text(number.to_string())
    }

    fn sent(n: u64) -> RetainedMessages {
        let mut retained = RetainedMessages::default();
        (1..=n).for_each(|number| retained.keep(message(number)));
        retained
    }

    #[test]
    fn what_was_missed_is_given_again_and_the_rest_let_go() {
        let mut retained = sent(5);
        retained.answer(2);
        assert_eq!(retained.rewind(1), Err(ResumeError::LetGo { after: 1, answered: 2 }));
        assert_eq!(retained.rewind(6), Err(ResumeError::NotSent { after: 6, sent: 5 }));
        assert_eq!(retained.rewind(3), Ok(()));
        assert_eq!([retained.again(), retained.again(), retained.again()], [Some(message(4)), Some(message(5)), None]);
        retained.answer(99);
        assert_eq!((retained.answered, retained.sent()), (3, 5));
        retained.answer(5);
        assert_eq!((retained.bytes, retained.sent()), (0, 5));
    }

    #[test]
    fn the_client_is_asked_and_waited_for() {
        let mut retained = RetainedMessages::default();
        let big = || Message::Text("x".repeat(ASK_EVERY_BYTES / 2));
        retained.keep(big());
        assert_eq!(retained.ask(), None);
        retained.keep(big());
        assert_eq!((retained.ask(), retained.ask()), (Some(2), None));
        while retained.has_room() {
            retained.keep(big());
        }
        assert_eq!(retained.bytes, MAX_UNANSWERED_BYTES);
        retained.answer(2);
        assert!(retained.has_room());
    }

    proptest! {
        /// Whatever is cut, lost and answered for in whatever order, the client ends with each message once, in order.
        #[test]
        fn each_message_arrives_once_and_in_order(steps in prop::collection::vec((0_u8..4, 0_u64..6), 1..80)) {
            let mut retained = RetainedMessages::default();
            let mut got = 0_u64;
            let mut next = 1_u64;
            // On its way to the client: what a cut loses.
            let mut under_way: VecDeque<u64> = VecDeque::new();
            for (step, n) in steps {
                match step {
                    0 => for _ in 0..n {
                        if let Some(Message::Text(text)) = retained.again() {
                            under_way.push_back(text.parse().unwrap());
                        } else {
                            retained.keep(message(next));
                            under_way.push_back(next);
                            next += 1;
                        }
                    },
                    1 => for _ in 0..n {
                        if let Some(number) = under_way.pop_front() {
                            prop_assert_eq!(number, got + 1);
                            got = number;
                        }
                    },
                    2 => retained.answer(got),
                    _ => {
                        under_way.clear();
                        prop_assert_eq!(retained.rewind(got), Ok(()));
                    }
                }
            }
        }
    }
}
