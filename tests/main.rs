//! The scenarios: one file each, all in one binary.

mod beta;
mod cli;
mod configs;
mod dialog;
mod echo;
mod endpointing;
mod error_table;
mod framed;
mod given_audio;
mod hub;
mod judged;
mod keys;
mod layering;
mod life;
mod mcp;
mod pressure;
mod responses;
mod resume;
mod rfc6455;
mod semantic_vad;
mod server;
mod session;
mod tls;
mod tools;
mod transcription;
mod turn_settings;
