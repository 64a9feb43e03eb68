//! Messages of phone peers: the JSON and binary messages of each provider, and AudioSocket's frames.
//!
//! The first byte of the input chooses the peer; `telephony/testing.rs` says how the rest is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| antiphon::server::testing::telephony(data));
