//! Regression tests for defects found by external clients and probes.

use crate::hub::{hub, quiet};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn exactly_100_ms_are_enough_to_commit() {
    let hub = hub("Hello.", "x").await;
    let mut socket = hub.connect("").await;
    let input = json!({"turn_detection": null});
    socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": input}}})).await;
    socket.until("session.updated").await;
    // The 2 ms that the resampler delays count towards the client's buffer, in the second buffer too.
    for ms in [100, 99, 100] {
        for _ in 0..ms {
            socket.append(&quiet(1)).await;
        }
        socket.send(json!({"type": "input_audio_buffer.commit"})).await;
        let expected = if ms < 100 { "error" } else { "input_audio_buffer.committed" };
        let events = socket.until(expected).await;
        if ms < 100 {
            let message = events.last().expect("one")["error"]["message"].to_string();
            assert!(message.contains("only has 99.00ms"), "{message}");
            socket.send(json!({"type": "input_audio_buffer.clear"})).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_does_not_send_a_clients_megabytes_back() {
    let hub = hub("", "x").await;
    let mut socket = hub.connect("").await;
    let long = "y".repeat(1_000_000);
    socket.send(json!({"type": "session.update", "session": {"type": "realtime", &long: 1}})).await;
    socket.send(json!({"type": "response.create", "response": {"metadata": {&long: 1}}})).await;
    socket.send(json!({"type": &long})).await;
    for _ in 0..3 {
        let error = socket.next().await;
        assert_eq!(error["type"], "error");
        assert!(error.to_string().len() < 4_000, "{} bytes", error.to_string().len());
    }
}
