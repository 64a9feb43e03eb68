//! Datagrams of strangers at the port of WebRTC: which call they belong to, STUN and what looks like it, frames over TCP, the
//! numbers and times of RTP packets.
//!
//! The input is a sequence of datagrams, each preceded by its length in two bytes.
#![no_main]

use antiphon::server::testing::Peers;
use libfuzzer_sys::fuzz_target;
use std::cell::LazyCell;
use tokio::runtime::{Builder, Runtime};

const OFFER: &str = include_str!("../../tests/fixtures/chromium_offer.sdp");

thread_local! {
    static HUB: LazyCell<(Runtime, Peers)> = LazyCell::new(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let peers = runtime.block_on(Peers::bind()).expect("a free port");
        (runtime, peers)
    });
}

fuzz_target!(|data: &[u8]| HUB.with(|hub| hub.0.block_on(hub.1.datagrams(OFFER, data))));
