//! A text message of a client: any text is parsed to an event, or to an error that can be sent to the client.
#![no_main]

use antiphon_protocol::{ServerEvent, UnknownFields, encode, parse_with};
use libfuzzer_sys::fuzz_target;

/// An error quotes client input, whose megabytes must not be sent back.
const MAX_ERROR_BYTES: usize = 8 * 1024;

fuzz_target!(|text: &str| {
    let strict = parse_with(text, UnknownFields::Refuse);
    let lenient = parse_with(text, UnknownFields::Ignore);
    assert!(strict.is_err() || lenient.is_ok(), "the lenient reader refuses what the strict one takes");
    if let Err(error) = strict {
        let said = encode(&ServerEvent::Error { error }, "event_1");
        assert!(said.len() < MAX_ERROR_BYTES, "an error of {} bytes to a message of {}", said.len(), text.len());
        let said: serde_json::Value = serde_json::from_str(&said).expect("an event is JSON");
        assert!(!said["error"]["message"].as_str().expect("a message").is_empty());
    }
});
