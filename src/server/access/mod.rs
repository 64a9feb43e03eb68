//! Access: who a client is, what its key grants, how much it may use, and what is written down about it.
//!
//! The rooms above ask it for each request, session and phone call. It uses the edge and nothing else of the server: it
//! knows no session, no engine and no transport.

pub(super) mod admin;
pub(super) mod attempts;
pub(super) mod audit;
pub(super) mod audit_http;
pub(super) mod auth;
pub(super) mod caller;
pub(super) mod ephemeral_keys;
pub(super) mod guard;
pub(super) mod holder_counts;
pub(super) mod key_file;
pub(super) mod keys;
pub(super) mod limits;
pub(super) mod limits_http;
pub(super) mod live_keys;
pub(super) mod parts;
pub(super) mod reload;
pub(super) mod scopes;
pub(super) mod security;
pub(super) mod usage;

pub(super) use parts::AccessParts;
