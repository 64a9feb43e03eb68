//! A client of the Realtime protocol: for `antiphon ask`, for the load benchmark, and for tests.
//!
//! [`connect`] opens a socket to this hub or to any server of the GA protocol; [`ask`] speaks one recording at real
//! time and gathers the answer; [`Microphone`] and [`Reply`] are its two halves, for those who need many turns. Nothing
//! here spawns a task or prints, and every wait has a deadline.

mod ask;
mod connection;
mod error;
mod event;
mod microphone;
mod reply;
mod resume;
mod trust;

pub use ask::{Answer, AskOptions, ask};
pub use connection::{AudioMode, ConnectOptions, Connection, Receiver, Sender, connect};
pub use error::ClientError;
pub use event::{Event, Problem, Received, ResponseInfo, StatusInfo};
pub use microphone::{FRAME, Microphone};
pub use reply::{Gaps, Reply};
pub use resume::Ticket;
pub use trust::Trust;

use antiphon_types::SampleRate;

/// The rate of all audio here, both ways: the protocol's.
pub const RATE: SampleRate = SampleRate::HZ_24000;
