//! What hostile clients may cost: JSON that weighs more than its bytes, messages and uploads that never end.

use crate::hub::{Hub, Socket, hub};
use antiphon::wire::{Dialect, parse};
use serde_json::{Value, json};

/// The memory of this process that is in RAM, in MiB.
fn rss_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    kib.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}

fn update(session: &Value) -> Value {
    json!({"type": "session.update", "event_id": "mine", "session": session})
}

/// A tool whose schema holds this.
fn tool(schema: Value) -> Value {
    json!({"type": "function", "name": "f", "parameters": {"type": "object", "x": schema}})
}

/// How an event is refused: code and parameter.
fn refused(event: &Value) -> (String, String) {
    let error = parse(&event.to_string()).expect_err("refused");
    assert_eq!(error.event_id, event["event_id"].as_str().map(str::to_owned), "it answers the event");
    assert!(error.message.chars().any(|c| c.is_ascii_digit()), "it names the limit: {}", error.message);
    (error.code.unwrap_or_default().to_owned(), error.param.unwrap_or_default())
}

async fn still_works(socket: &mut Socket) {
    let events = socket.ask("Are you there?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
}

/// 12 MiB of zeros in a list: 200 MiB as a tree, which a session kept twice.
fn heavy() -> String {
    let zeros = "0,".repeat(6 << 20);
    let schema = format!(r#"{{"type":"object","x":[{zeros}0]}}"#);
    let tool = format!(r#"{{"type":"function","name":"f","parameters":{schema}}}"#);
    format!(r#"{{"type":"session.update","event_id":"mine","session":{{"type":"realtime","tools":[{tool}]}}}}"#)
}

#[tokio::test]
async fn hostile_updates_are_refused_and_cost_nothing_that_stays() {
    const MAX_GROWTH_MIB: f64 = 192.0;
    let hub = hub("", "Here.").await;
    let before = rss_mib();
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let mut socket = hub.connect("").await;
        for _ in 0..2 {
            socket.send_raw(tokio_tungstenite::tungstenite::Message::text(heavy())).await;
            let error = socket.until("error").await.pop().expect("an error");
            assert_eq!(error["error"]["code"], "event_too_large", "{error}");
            assert_eq!((&error["error"]["param"], &error["error"]["event_id"]), (&json!("session"), &json!("mine")));
        }
        // The most that is taken.
        let most = update(&json!({"type": "realtime", "tools": [tool(json!(vec![0; 15_000]))]}));
        socket.send(most).await;
        socket.until("session.updated").await;
        still_works(&mut socket).await;
        sockets.push(socket);
    }
    let grown = rss_mib() - before;
    assert!(grown < MAX_GROWTH_MIB, "{} sessions keep {grown:.0} MiB", sockets.len());
}

#[test]
fn the_same_update_in_the_names_before_ga_is_refused_before_it_is_mapped() {
    let dialect = Dialect { beta: true, ..Dialect::default() };
    let error = dialect.parse(&heavy()).expect_err("refused");
    assert_eq!((error.code, error.event_id.as_deref()), (Some("event_too_large"), Some("mine")));
}

#[test]
fn everything_a_session_keeps_has_its_bound() {
    let long = |n: usize| "a".repeat(n);
    let names = |n: usize| (0..n).map(|i| format!("n{i}")).collect::<Vec<_>>();
    let tools = |n: usize| (0..n).map(|i| json!({"type": "function", "name": format!("f{i}")})).collect::<Vec<_>>();
    let mcp = |more: Value| {
        let mut server = json!({"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1/"});
        server.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"tools": [server]})
    };
    let hears = |more: Value| json!({"audio": {"input": {"transcription": more}}});
    for (session, code, param) in [
        (json!({"instructions": long(262_145)}), "string_above_max_length", "instructions"),
        (json!({"tools": [tool(json!(long(262_145)))]}), "value_above_max_bytes", "tools"),
        (json!({"tools": [tool(json!([]))], "x": vec![0; 33_000]}), "event_too_large", ""),
        (json!({"tools": tools(257)}), "array_above_max_length", "tools"),
        (json!({"prompt": {"id": long(16_400)}}), "value_above_max_bytes", "prompt"),
        (json!({"tracing": vec![0; 10_000]}), "value_above_max_bytes", "tracing"),
        (json!({"reasoning": vec![0; 10_000]}), "value_above_max_bytes", "reasoning"),
        (hears(json!({"prompt": long(16_385)})), "string_above_max_length", "audio.input.transcription.prompt"),
        (hears(json!({"keywords": names(257)})), "array_above_max_length", "audio.input.transcription.keywords"),
        (hears(json!({"languages": names(65)})), "array_above_max_length", "audio.input.transcription.languages"),
        (hears(json!({"language": long(200)})), "string_above_max_length", "audio.input.transcription.language"),
        (mcp(json!({"allowed_tools": names(129)})), "array_above_max_length", "tools[0].allowed_tools"),
        (mcp(json!({"server_description": long(5_000)})), "string_above_max_length", "tools[0].server_description"),
    ] {
        let mut all = json!({"type": "realtime"});
        all.as_object_mut().expect("an object").extend(session.as_object().expect("an object").clone());
        let param = format!("session.{param}").trim_end_matches('.').to_owned();
        assert_eq!(refused(&update(&all)), (code.to_owned(), param));
    }
    for (response, code, param) in [
        (json!({"instructions": long(262_145)}), "string_above_max_length", "instructions"),
        (json!({"tools": [tool(json!(long(262_145)))]}), "value_above_max_bytes", "tools"),
        (json!({"metadata": {"a": long(513)}}), "string_above_max_length", "metadata.a"),
        (json!({"metadata": {long(65): "a"}}), "string_above_max_length", "metadata"),
    ] {
        let event = json!({"type": "response.create", "event_id": "mine", "response": response});
        assert_eq!(refused(&event), (code.to_owned(), format!("response.{param}")));
    }
    let say =
        |text: String| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
    for item in [
        say(long(1 << 20)),
        json!({"type": "function_call_output", "call_id": "c", "output": long(1 << 20)}),
        json!({"type": "message", "role": "user", "content": vec![json!({"type": "input_text", "text": ""}); 9_000]}),
    ] {
        let event = json!({"type": "conversation.item.create", "event_id": "mine", "item": item});
        assert_eq!(refused(&event), ("event_too_large".to_owned(), "item".to_owned()));
    }
    let event = json!({"type": "conversation.item.create", "item": say(long(1_000_000))});
    parse(&event.to_string()).expect("a long text");
}

#[test]
fn audio_may_be_as_long_as_a_message() {
    // Slashes escaped, as some encoders do.
    let audio = "AAAA\\/\\/\\/\\/".repeat(1 << 20);
    let part = format!(r#"{{"type":"input_audio","audio":"{audio}"}}"#);
    let item = format!(r#"{{"type":"message","role":"user","content":[{part}]}}"#);
    parse(&format!(r#"{{"type":"conversation.item.create","item":{item}}}"#)).expect_err("half of it is backslashes");
    let audio = "AAAA".repeat(3 << 20);
    let part = format!(r#"{{"type":"input_audio","audio":"{audio}"}}"#);
    let item = format!(r#"{{"type":"message","role":"user","content":[{part}]}}"#);
    parse(&format!(r#"{{"type":"conversation.item.create","item":{item}}}"#)).expect("12 MiB of audio");
    parse(&format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#)).expect("12 MiB of audio");
    // What is no audio is not let in by its name.
    let event = format!(r#"{{"type":"session.update","session":{{"type":"realtime","audio":"{audio}"}}}}"#);
    assert_eq!(parse(&event).expect_err("refused").code, Some("event_too_large"));
}

#[tokio::test]
async fn keys_of_browsers_are_bound_to_settings_of_the_same_bounds() {
    let hub: Hub = hub("", "Here.").await;
    let url = format!("http://{}/v1/realtime/client_secrets", hub.address);
    let names: Vec<String> = (0..20_000).map(|i| i.to_string()).collect();
    let keywords = json!({"input": {"transcription": {"keywords": names}}});
    for session in [
        json!({"type": "realtime", "tools": [tool(json!(vec![0; 40_000]))]}),
        json!({"type": "transcription", "audio": keywords}),
    ] {
        let request = reqwest::Client::new().post(&url).body(json!({"session": session}).to_string());
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 400);
        let body: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
        assert!(body["error"]["param"].as_str().expect("a field").starts_with("session"), "{body}");
    }
}
