//! The scenarios: one file each, all in one binary.

mod cli;
mod configs;
mod dialog;
mod echo;
mod framed;
mod hub;
mod judged;
mod layering;
mod pressure;
mod rfc6455;
mod server;
mod session;
