//! The fault suite: parties that misbehave in every way the hub is open to, each beside a healthy conversation.
//!
//! One module an area; a fault is its name, what the faulty party must see, and one function. [`harness`] does the rest.
//! `make test` runs a short cut, `make faults` all of it: docs/developing/adding-a-test.md.

mod access;
mod audio;
mod cluster;
mod engines;
mod harness;
#[path = "../hub.rs"]
#[allow(dead_code)]
mod hub;
mod jobs;
mod lifecycle;
mod local;
mod models;
mod process;
mod protocol;
#[path = "../rfc6455/raw.rs"]
#[allow(dead_code)]
mod raw;
mod rest;
mod rtc_peer;
mod transports;
mod upstream;
