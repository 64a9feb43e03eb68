//! Wyoming's events from a stranger, read as a connection reads them: for the fuzz targets. No engine and no socket is used.

use super::audio::Input;
use super::frame::{MAX_JSON, MAX_PAYLOAD, Reader, Writer};
use std::time::Duration;

/// Longer than reading from memory takes.
const MOST: Duration = Duration::from_secs(60);

/// Reads events until the first error or the end of the bytes, and converts their audio.
///
/// # Panics
/// An event exceeds the bounds of its parts, is another one after it was written and read, or its audio grows beyond the ratio of
/// the rates.
pub async fn feed(bytes: &[u8]) {
    let mut reader = Reader::new(bytes, MOST);
    let mut input: Option<Input> = None;
    let mut pcm = Vec::new();
    while let Ok(Some(event)) = reader.next().await {
        assert!(event.payload.len() <= MAX_PAYLOAD && event.kind.len() <= MAX_JSON);
        let mut written = Vec::new();
        let data = serde_json::Value::Object(event.data.clone());
        Writer::new(&mut written).send_with(&event.kind, data, &event.payload).await.expect("memory takes all bytes");
        if written.len() < MAX_JSON {
            let again = Reader::new(&written[..], MOST).next().await.expect("what is written can be read");
            let again = again.expect("an event");
            assert_eq!((&again.kind, &again.payload), (&event.kind, &event.payload));
            assert!(again.data.keys().eq(event.data.keys()));
        }
        if input.is_none() {
            input = Input::of(&event).ok();
        }
        if let Some(input) = &mut input {
            pcm.clear();
            let taken = input.take(&event, &mut pcm).is_ok();
            // 8 kHz to 16 kHz, and what the last resampler held.
            assert!(pcm.len() <= 2 * event.payload.len() + 4_096, "{} samples, taken: {taken}", pcm.len());
        }
    }
}
