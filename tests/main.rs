//! The scenarios: one file each, all in one binary.

mod cli;
mod configs;
mod dialog;
mod echo;
mod endpointing;
mod framed;
mod hub;
mod layering;
mod pressure;
mod rfc6455;
mod semantic_vad;
mod server;
mod session;
mod tools;
mod turn_settings;
