//! The scenarios: one file each, all in one binary.

mod beta;
mod cli;
mod configs;
mod dialog;
mod echo;
mod error_table;
mod framed;
mod given_audio;
mod hub;
mod keys;
mod layering;
mod life;
mod pressure;
mod responses;
mod resume;
mod rfc6455;
mod server;
mod session;
mod tls;
mod transcription;
