//! Frames of the cluster from a stranger: header, order, credit, and payloads of JSON.
//!
//! The input is a sequence of messages, each preceded by its length in two bytes.
#![no_main]

use antiphon_cluster::testing::feed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| feed(data));
