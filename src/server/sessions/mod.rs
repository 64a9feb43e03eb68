//! Sessions: admission, the slot that a session has on this hub, its connections, and its moves between hubs.
//!
//! The transports open sessions here, the speech API and the pages ask here for engines and load. It uses the edge and
//! access. It makes no decision about a dialog, and knows no transport but the Realtime WebSocket.

pub(super) mod admission;
pub(super) mod client_secrets;
pub(super) mod handover;
pub(super) mod heartbeat;
pub(super) mod load;
pub(super) mod models;
pub(super) mod parts;
pub(super) mod realtime;
mod reservations;
mod resume;
mod session_slot;
pub(super) mod socket;
pub(super) mod warming;

pub(super) use parts::SessionParts;
