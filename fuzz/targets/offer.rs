//! SDP offers for calls by WebRTC: any text is answered, or refused with a reason.
#![no_main]

use antiphon::server::testing::Peers;
use libfuzzer_sys::fuzz_target;
use std::cell::LazyCell;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static HUB: LazyCell<(Runtime, Peers)> = LazyCell::new(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let peers = runtime.block_on(Peers::bind()).expect("a free port");
        (runtime, peers)
    });
}

fuzz_target!(|sdp: &str| HUB.with(|hub| hub.1.offer(sdp)));
