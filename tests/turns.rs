//! The turn records over real HTTP: each user turn, its parts and its transcripts, live and afterwards.

use crate::framed::speak;
use crate::hub::{Hub, Socket, engines, hub, loud, quiet};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use eventsource_stream::{Event, Eventsource};
use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longer than any step here takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub async fn get(hub: &Hub, path: &str) -> (u16, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let response = reqwest::get(format!("http://{}{path}", hub.address)).await.expect("an answer");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

/// The newest turn, once it satisfies `is_so`.
pub async fn turn(hub: &Hub, is_so: impl Fn(&Value) -> bool) -> Value {
    let found = async {
        loop {
            let (_, list) = get(hub, "/api/turns").await;
            if is_so(&list["turns"][0]) {
                return list["turns"][0].clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TEST_TIMEOUT, found).await.expect("the turn comes to that")
}

pub fn ms(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The parts are contiguous and end where the wait ends.
pub fn check_parts(turn: &Value) -> Vec<String> {
    let parts = turn["parts"].as_array().expect("parts");
    let mut at = 0.0;
    for part in parts {
        assert_eq!(ms(&part["from_ms"]), at, "{turn}");
        at = ms(&part["to_ms"]);
    }
    assert_eq!(at, ms(&turn["voice_to_voice_ms"]), "the parts add up: {turn}");
    parts.iter().map(|part| part["stage"].as_str().expect("a stage").to_owned()).collect()
}

/// Speaks with base64 events and receives the response.
async fn say(socket: &mut Socket) -> Vec<Value> {
    socket.append(&loud(500)).await;
    socket.append(&quiet(600)).await;
    socket.until("response.done").await
}

#[tokio::test]
async fn a_spoken_turn_adds_up_to_what_its_client_saw() {
    let stt = FakeStt::hears(["what time is it"]).delayed(Duration::from_millis(30));
    let tts = FakeTts::default().delayed(Duration::from_millis(20));
    let mut config = Config::default();
    // Without speculation, so that the stages run one after another.
    config.speculation.after_ms = 0;
    let hub = Hub::start(engines(stt, FakeLlm::says(["Ten past ten."]), tts), config).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &loud(500)).await;
    let end_sent = Instant::now();
    tokio::time::sleep(Duration::from_millis(500)).await;
    speak(&mut socket, &mut sequence, &quiet(600)).await;
    socket.until_frames(1).await;
    let seen_ms = end_sent.elapsed().as_secs_f64() * 1e3;
    let turn = turn(&hub, |turn| turn["settled"] == true).await;

    let expect = ["endpointing", "stt", "tts", "sending"];
    let stages = check_parts(&turn);
    assert!(expect.iter().all(|stage| stages.iter().any(|part| part == stage)), "{stages:?}");
    // The silence is sent in one message, so turn time exceeds wall time by at most its length.
    assert!(ms(&turn["voice_to_voice_ms"]) <= seen_ms + 600.0, "{seen_ms} {turn}");
    let marks = &turn["marks"];
    let order = ["speech_end", "end_confirmed", "stt_final", "response_started", "llm_first_token", "first_chunk"];
    let later = ["tts_first_audio", "first_audio_sent", "first_audio_heard"];
    let times: Vec<f64> = order.iter().chain(&later).map(|name| ms(&marks[*name])).collect();
    assert!(times.is_sorted() && times[0] == 0.0, "{marks}");
    assert!(ms(&marks["stt_final"]) - ms(&marks["end_confirmed"]) >= 30.0, "{marks}");
    assert!(ms(&marks["tts_first_audio"]) - ms(&marks["first_chunk"]) >= 20.0, "{marks}");

    for (key, value) in [
        ("kind", "speech"),
        ("status", "completed"),
        ("transcript", "what time is it"),
        ("reply", "Ten past ten."),
        ("heard", "Ten past ten."),
        ("heard_by", "estimate"),
    ] {
        assert_eq!(turn[key], value, "{key} of {turn}");
    }
    assert_eq!(turn["endpointing"]["wait_ms"].as_f64().map(|ms| ms.round()), Some(512.0), "32 windows of 16 ms");
    assert_eq!(turn["audio"]["generated_ms"], 650.0, "50 ms a character");
    assert_eq!((&turn["audio"]["sent_ms"], &turn["audio"]["heard_ms"]), (&json!(650.0), &json!(650.0)));
    assert_eq!(turn["engines"], json!({"vad": "fake", "stt": "fake", "llm": "fake", "tts": "fake"}));
    assert!(ms(&turn["waits"]["stt_decoder_ms"]) >= 0.0);
    assert!(turn["stages"].as_array().expect("stages").iter().all(|run| ms(&run["to_ms"]) > ms(&run["from_ms"])));
    assert!(turn["started_at"].as_str().expect("a time").ends_with('Z'));

    let (status, one) = get(&hub, &format!("/api/turns/{}", turn["id"].as_str().expect("an id"))).await;
    assert_eq!((status, &one), (200, &turn));
    let (status, none) = get(&hub, "/api/turns/turn_none").await;
    assert_eq!((status, &none["error"]["code"]), (404, &json!("not_found")));
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_turn_has_a_record() {
    let llm = FakeLlm::says(["Hi.", "Fine."]);
    let hub = Hub::start(engines(FakeStt::hears(["hello", ""]), llm, FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    say(&mut socket).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Noise without a transcript is not answered once the reply was heard; typed text is.
    socket.append(&loud(500)).await;
    socket.append(&quiet(600)).await;
    turn(&hub, |turn| turn["status"] == "unanswered").await;
    let events = socket.ask("how are you").await;
    let typed = turn(&hub, |turn| turn["status"] == "completed" && turn["kind"] == "typed").await;
    assert_eq!(typed["transcript"], "how are you");
    assert_eq!(typed["response_id"], events.last().expect("done")["response"]["id"]);
    assert_eq!(typed["marks"]["speech_end"], Value::Null);

    let (_, list) = get(&hub, "/api/turns?limit=2").await;
    assert_eq!(list["turns"].as_array().expect("a list").len(), 2);
    let (_, list) = get(&hub, "/api/turns").await;
    let told: Vec<String> = list["turns"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|turn| format!("{} {}", turn["turn"], turn["status"]))
        .collect();
    assert_eq!(told, [r#"3 "completed""#, r#"2 "unanswered""#, r#"1 "completed""#]);
    assert_eq!(list["capacity"], 1000);
    let session = typed["session_id"].as_str().expect("an id");
    assert_eq!(get(&hub, &format!("/api/turns?session={session}")).await.1["turns"].as_array().map(Vec::len), Some(3));
    assert_eq!(get(&hub, "/api/turns?session=sess_other").await.1["turns"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_tools_result_and_a_cancelled_answer_are_turns() {
    let llm = FakeLlm::says([&"long ".repeat(400)[..], "It is warm."]);
    let hub = Hub::start(engines(FakeStt::default(), llm, FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.output_audio.delta").await;
    socket.send(json!({"type": "response.cancel"})).await;
    socket.until("response.done").await;
    let cancelled = turn(&hub, |turn| turn["status"] == "cancelled").await;
    assert_eq!((&cancelled["settled"], &cancelled["barged_in"]), (&json!(false), &json!(false)), "the client plays on");

    let call = json!({"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"});
    socket.send(json!({"type": "conversation.item.create", "item": call})).await;
    let result = json!({"type": "function_call_output", "call_id": "call_1", "output": "21"});
    socket.send(json!({"type": "conversation.item.create", "item": result})).await;
    socket.send(json!({"type": "response.create"})).await;
    let tool = turn(&hub, |turn| turn["kind"] == "tool" && turn["status"] == "completed").await;
    assert_eq!(tool["reply"], "It is warm.");
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_shows_what_was_heard() {
    let llm = FakeLlm::says([&"long ".repeat(40)[..], "Fine."]);
    let hub = Hub::start(engines(FakeStt::hears(["stop that"]), llm, FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &quiet(100)).await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until_frames(30).await;
    speak(&mut socket, &mut sequence, &loud(400)).await;
    socket.until("response.done").await;
    speak(&mut socket, &mut sequence, &quiet(700)).await;
    socket.until("response.done").await;
    let (_, list) = get(&hub, "/api/turns").await;
    let answered = &list["turns"][0];
    let cut = &list["turns"][1];
    assert_eq!((&cut["status"], &cut["barged_in"]), (&json!("cancelled"), &json!(true)), "{cut}");
    let heard = ms(&cut["audio"]["heard_ms"]);
    let sent = ms(&cut["audio"]["sent_ms"]);
    assert!(heard > 0.0 && heard <= sent, "{cut}");
    let words = cut["heard"].as_str().expect("words");
    let all = cut["reply"].as_str().expect("words");
    assert!(all.starts_with(words) && words.len() < all.len(), "{cut}");
    assert_eq!((&answered["transcript"], &answered["kind"]), (&json!("stop that"), &json!("speech")));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_go_and_words_can_be_left_out() {
    let mut config = Config::default();
    config.server.turns_kept = 2;
    config.server.keep_transcripts = false;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    for word in ["one", "two", "three"] {
        socket.ask(word).await;
    }
    let last = turn(&hub, |turn| turn["turn"] == 3 && turn["status"] == "completed").await;
    assert_eq!((&last["transcript"], &last["reply"], &last["heard"]), (&Value::Null, &Value::Null, &Value::Null));
    let (_, list) = get(&hub, "/api/turns").await;
    let turns: Vec<&Value> = list["turns"].as_array().expect("a list").iter().map(|turn| &turn["turn"]).collect();
    assert_eq!((turns, &list["capacity"]), (vec![&json!(3), &json!(2)], &json!(2)));
}

type Events = Pin<Box<dyn Stream<Item = Event>>>;

/// Subscribes to the turns.
async fn listen(hub: &Hub, after: Option<&str>) -> Events {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut request = reqwest::Client::new().get(format!("http://{}/api/turns/live", hub.address));
    if let Some(id) = after {
        request = request.header("last-event-id", id);
    }
    let response = request.send().await.expect("an answer");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    Box::pin(response.bytes_stream().eventsource().map(|event| event.expect("an event")))
}

/// The next change of a turn: its sequence number and the turn.
async fn change(events: &mut Events) -> (String, Value) {
    loop {
        let event = timeout(TEST_TIMEOUT, events.next()).await.expect("something comes").expect("it goes on");
        if event.event == "turn" {
            return (event.id, serde_json::from_str(&event.data).expect("JSON"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn turns_are_told_live_and_a_listener_comes_back() {
    let hub = hub("hello", "Hi.").await;
    let mut events = listen(&hub, None).await;
    let state = events.next().await.expect("at once");
    assert_eq!(state.event, "state");
    let mut socket = hub.connect("").await;
    say(&mut socket).await;
    let (first, begun) = change(&mut events).await;
    assert_eq!(begun["status"], "listening");
    let mut seen = vec![begun["status"].clone()];
    let last = loop {
        let (_, turn) = change(&mut events).await;
        assert_eq!(turn["id"], begun["id"]);
        seen.push(turn["status"].clone());
        if turn["settled"] == true {
            break turn;
        }
    };
    seen.dedup();
    assert_eq!(seen, ["listening", "answering", "completed"]);
    check_parts(&last);
    drop(events);
    let mut again = listen(&hub, Some(&first)).await;
    assert_eq!(change(&mut again).await.1, last, "what has changed since comes first");
    // A live listener does not prevent the server from stopping.
    drop(socket);
    let rest = async { while again.next().await.is_some() {} };
    timeout(TEST_TIMEOUT, async { tokio::join!(rest, hub.stop()) }).await.expect("both end");
}

#[tokio::test(start_paused = true)]
async fn the_state_counts_and_everything_wants_the_key() {
    let hub = hub("hello", "Hi.").await;
    let mut socket = hub.connect("").await;
    say(&mut socket).await;
    let (status, state) = get(&hub, "/api/state").await;
    assert_eq!(status, 200);
    assert_eq!((&state["sessions"], &state["connections"]), (&json!(1), &json!(1)), "{state}");
    assert_eq!((&state["counters"]["turns"], &state["counters"]["responses"]), (&json!(1), &json!(1)));
    assert_eq!(state["queues"]["stt_waiting"], 0);
    assert!(state["process"]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{state}");

    let keys = Keys::of(&["a-key-of-decent-length"]);
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, Config::default(), keys).await;
    for path in ["/api/turns", "/api/turns/x", "/api/turns/live", "/api/state"] {
        assert_eq!(get(&hub, path).await.0, 401, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_leaves_half_of_the_live_streams_to_others() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, Config::default(), Keys::of(&["greedy", "modest"])).await;
    let listen = async |key: &str| {
        let url = format!("http://{}/api/turns/live", hub.address);
        reqwest::Client::new().get(url).bearer_auth(key).send().await.expect("an answer")
    };
    let mut held = Vec::new();
    let refused = loop {
        let response = listen("greedy").await;
        if response.status().as_u16() != 200 {
            break response;
        }
        held.push(response);
        assert!(held.len() < 64, "it takes them all");
    };
    assert_eq!((held.len(), refused.status().as_u16()), (32, 503));
    assert_eq!(listen("modest").await.status().as_u16(), 200);
    // A stream that ends is given back.
    held.clear();
    while listen("greedy").await.status().as_u16() != 200 {
        tokio::task::yield_now().await;
    }
}
