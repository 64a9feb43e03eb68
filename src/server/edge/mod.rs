//! The edge: how bytes of clients come in and leave, before anybody knows whose they are.
//!
//! It accepts connections, bounds them, what they send and how long they take, and knows each client's address, TLS,
//! and the headers that every response gets. The embedded pages are here, because they need no key and no state. Every
//! other room of the server uses it. It uses none of them: it knows no key, no limit of a key, no session and no
//! engine.

pub(super) mod accepting;
mod assets;
pub(super) mod client;
pub(super) mod closing;
pub(super) mod connection_slots;
pub(super) mod cors;
mod fragments;
pub(super) mod headers;
pub(super) mod inbound_budget;
pub(super) mod inflow;
pub(super) mod open_routes;
pub(super) mod origin;
pub(super) mod pages;
pub(super) mod parts;
pub(super) mod probes;
pub(super) mod process;
pub(super) mod refusal;
pub(super) mod rejections;
pub(super) mod starting;
pub(super) mod tls;
pub(super) mod unfinished;
pub mod websocket;
mod write_deadline;

pub(super) use parts::EdgeParts;
