//! The event stream of a language model server: it is parsed to deltas or an error, however it is split.
//!
//! The first byte of the input is the size of the blocks.
#![no_main]

use antiphon_engine_api::llm::LlmDelta;
use antiphon_engines::llm::LlmConfig;
use antiphon_engines::llm::openai::OpenAi;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::cell::LazyCell;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static PARTS: LazyCell<(OpenAi, Runtime)> = LazyCell::new(|| {
        let config = LlmConfig { base_url: "http://127.0.0.1:9/v1".into(), model: "any".into(), ..LlmConfig::default() };
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        (OpenAi::new(&config).expect("a client"), runtime)
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, body)) = data.split_first() else { return };
    let pieces: Vec<_> = body.chunks(usize::from(size).max(1)).map(Bytes::copy_from_slice).collect();
    let read = PARTS.with(|parts| parts.1.block_on(parts.0.read(pieces)));
    let Ok(deltas) = read else { return };
    assert!(matches!(deltas.last(), Some(LlmDelta::Done { .. })), "an answer ends with Done");
    let n_done = deltas.iter().filter(|delta| matches!(delta, LlmDelta::Done { .. })).count();
    assert_eq!(n_done, 1, "and only there");
    let mut begun = Vec::new();
    for delta in &deltas {
        if let LlmDelta::ToolCall { index, call_id, name, .. } = delta
            && !begun.contains(index)
        {
            assert!(!call_id.is_empty() && !name.is_empty(), "a call begins with its id and name");
            begun.push(*index);
        }
    }
});
