//! The API of the pages and of operators: state, turns, models, language models, health and metrics.
//!
//! Its handlers read what the rooms below know. It opens no session, and nothing below it knows it.

mod gpu;
pub(super) mod health;
pub(super) mod hubs;
pub(super) mod language_models;
pub(super) mod models;
mod parts;
mod readers;
pub(super) mod state;
pub(super) mod traces;
pub(super) mod turn_audio;
pub(super) mod turns;
mod upstreams;
pub(super) mod worker_probes;

pub(super) use parts::ApiParts;
