//! Events of Wyoming clients: header lines, data, payloads, and the audio in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::LazyCell;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: LazyCell<Runtime> =
        LazyCell::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));
}

fuzz_target!(|data: &[u8]| RUNTIME.with(|runtime| runtime.block_on(antiphon::server::testing::wyoming(data))));
