//! A client of the Realtime protocol, used by `antiphon ask`, the load benchmark and tests.
//!
//! [`connect`] opens a connection to this hub or to any GA server; [`ask`] speaks one recording in real time and
//! collects the response; [`Microphone`] and [`Reply`] are its two halves, for callers that run many turns. A
//! connection that was opened to be resumed ([`ConnectOptions::resume`]) connects again by itself, see
//! [`Receiver::next`]. This crate never spawns a task and never prints. Every wait for the server has a timeout, except
//! [`Receiver::next`], which the caller bounds.

mod ask;
mod connection;
mod error;
mod event;
mod link;
mod microphone;
mod outbox;
pub mod playout;
mod reply;
mod resume;
#[cfg(test)]
mod scripted;
mod trust;

pub use ask::{Answer, AskError, AskOptions, ask};
pub use connection::{AudioMode, ConnectOptions, Connection, Receiver, Sender, connect};
pub use error::ClientError;
pub use event::{Event, Problem, ReceivedMessage, ResponseInfo, StatusInfo};
pub use microphone::{FRAME, Microphone};
pub use reply::{Gaps, Reply};
pub use resume::{Checkpoints, Resumption};
pub use trust::Trust;

use antiphon_types::SampleRate;

/// Sampling rate of all audio in both directions, as defined by the protocol.
pub const RATE: SampleRate = SampleRate::HZ_24000;
