//! Transports beside the Realtime WebSocket: one adapter a peer, on [`call::Call`].
//!
//! An adapter turns its peer's messages into client events and microphone frames, and server events and paced audio into its
//! peer's messages. Sessions do not know which transport they have. No adapter decides anything about the dialog.

mod call;
pub(super) mod call_control;
mod calls;
mod hub_tools;
mod keypad;
mod parts;
mod queue;
pub(super) mod realtime;
mod recording;
pub(super) mod rtvi;
mod sideband;
pub(super) mod telephony;
mod transfers;
pub(in crate::server) mod webhooks;
pub(super) mod webrtc;
pub(super) mod wyoming;

pub(super) use parts::TransportParts;

/// What strangers send, as each adapter reads it: for the fuzz targets.
#[cfg(feature = "testing")]
pub mod testing {
    pub use super::rtvi::testing::feed as rtvi;
    pub use super::telephony::testing::feed as telephony;
    pub use super::webrtc::testing::Peers;
    pub use super::wyoming::testing::feed as wyoming;
}
