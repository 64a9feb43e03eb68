//! SIP (RFC 3261) for a program that answers and makes calls: messages, transactions, dialogs, digest, SDP, RTP, RTCP.
//!
//! The server's SIP adapter owns sockets and clocks and drives an [`Endpoint`] with what arrives and with the time.
//! Nothing here performs IO, reads a clock, spawns a task or sees a sample. Every table has a bound, and what an
//! unauthenticated peer sends leaves nothing behind.

mod digest;
mod endpoint;
mod header;
mod message;
pub mod rtcp;
pub mod rtp;
pub mod sdp;
mod uri;

pub use digest::Credentials;
pub use endpoint::{
    CallId, Config, EndCause, Endpoint, Event, IncomingCall, InviteError, MAX_CALLS, MAX_CALLS_PER_ADDRESS,
    OutgoingCall, Output, Peer, RegistrarId, Registration, RequestRefused, TransferProgress, Transport, Trunk, TrunkId,
    WRONG_PASSWORD, is_transfer_target,
};
pub use header::{NameAddr, Via};
pub use message::{Fault, MAX_HEAD_BYTES, MAX_HEADERS, MAX_MESSAGE_BYTES, Message, Method, StartLine, stream_message};
pub use uri::Uri;
