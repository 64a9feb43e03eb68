//! Transports beside the Realtime WebSocket: one adapter a peer, on [`call::Call`].
//!
//! An adapter turns its peer's messages into client events and microphone frames, and server events and paced audio into its
//! peer's messages. Sessions do not know which transport they have. No adapter decides anything about the dialog.

pub(super) mod call;
pub(super) mod rtvi;
pub(super) mod telephony;
pub(super) mod webrtc;
pub(super) mod wyoming;
