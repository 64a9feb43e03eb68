//! The scenarios: one file each, all in one binary.

mod beta;
mod cli;
mod configs;
mod dialog;
mod echo;
mod endpointing;
mod error_table;
mod framed;
mod hub;
mod layering;
mod pressure;
mod responses;
mod rfc6455;
mod semantic_vad;
mod server;
mod session;
mod tools;
mod transcription;
mod turn_settings;
