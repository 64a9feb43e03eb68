//! Protobuf frames of RTVI clients: audio, and messages that become events.
//!
//! The input is a sequence of frames, each preceded by its length in two bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| antiphon::server::testing::rtvi(data));
