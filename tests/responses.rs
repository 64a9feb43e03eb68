//! Per-response settings, the properties of a response, and the limits of a session.

use crate::hub::{Hub, engines, hub, loud, n_audio_samples, quiet, types};
use crate::pressure::{say, setup, until};
use antiphon::config::Config;
use antiphon_assistant::Assistant;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::{FakeTts, MS_PER_CHAR};
use antiphon_engine_api::llm::LlmDelta;
use antiphon_session::{AudioMode, Opening};
use antiphon_types::chat::{Finish, Message, Usage};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

fn text_item(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

#[tokio::test(start_paused = true)]
async fn a_response_out_of_band_runs_beside_the_conversation() {
    let llm = FakeLlm::says(["A long answer to the person.", "An aside."]).delayed(Duration::from_millis(20));
    let hub = Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    socket.send(json!({"type": "conversation.item.create", "item": text_item("first", "Hello")})).await;
    socket.send(json!({"type": "response.create"})).await;
    let input = json!([text_item("own", "Is this rude?"), {"type": "item_reference", "id": "first"}]);
    let aside = json!({"conversation": "none", "input": input, "metadata": {"topic": "mood"}, "instructions": "Judge.",
        "output_modalities": ["text"]});
    socket.send(json!({"type": "response.create", "response": aside})).await;
    let mut events = Vec::new();
    for _ in 0..2 {
        events.extend(socket.until("response.done").await);
    }
    let aside = events.iter().find(|e| e["type"] == "response.created" && e["response"]["metadata"]["topic"] == "mood");
    let aside = &aside.expect("metadata comes back at once")["response"];
    assert_eq!((&aside["conversation_id"], &aside["output_modalities"]), (&Value::Null, &json!(["text"])));
    let id = aside["id"].as_str().expect("an id");
    let of_aside: Vec<Value> =
        events.iter().filter(|e| e["response_id"] == id || e["response"]["id"] == id).cloned().collect();
    assert_eq!(
        types(&of_aside),
        [
            "response.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    let done = &of_aside.last().expect("done")["response"];
    assert_eq!((&done["status"], &done["metadata"]), (&json!("completed"), &json!({"topic": "mood"})));
    let item = &done["output"][0]["id"];
    assert!(
        !events.iter().any(|e| e["item"]["id"] == *item && e["type"].as_str().unwrap().starts_with("conversation"))
    );
    let read = &llm.requests()[1].messages;
    assert_eq!(read.len(), 3);
    assert_eq!((&read[0], &read[2]), (&Message::System("Judge.".into()), &Message::User("Hello".into())));
    // The other response is unaffected, and the out-of-band one does not enter the history.
    let other = events.iter().find(|e| e["type"] == "response.done" && e["response"]["id"] != id).expect("both end");
    assert_eq!(other["response"]["status"], "completed");
    socket.ask("Go on").await;
    assert!(!format!("{:?}", llm.requests()[2]).contains("aside"));
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_responses_own_input_is_read_as_the_client_sends_it() {
    let llm = FakeLlm::says(["My number is secret.", "Noted."]);
    let hub = Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    let done = socket.ask("Hello").await.pop().expect("done");
    let spoken = &done["response"]["output"][0];
    assert_eq!(spoken["content"][0]["transcript"], "My number is secret.");
    // The conversation's item with other words.
    let content = json!([{"type": "output_audio", "transcript": "My number is hidden."}]);
    let input = json!([{"id": spoken["id"], "type": "message", "role": "assistant", "content": content}]);
    let aside = json!({"conversation": "none", "input": input, "output_modalities": ["text"]});
    socket.send(json!({"type": "response.create", "response": aside})).await;
    socket.until("response.done").await;
    let read = format!("{:?}", llm.requests()[1].messages);
    assert!(read.contains("hidden") && !read.contains("secret"), "{read}");
}

#[tokio::test(start_paused = true)]
async fn speech_out_of_band_is_paced_in_frames_and_stops_at_a_clear() {
    let llm = FakeLlm::says([&"long ".repeat(40)[..]]);
    let setup = setup(engines(FakeStt::default(), llm, FakeTts::default()));
    let session = setup.open(Opening { mode: AudioMode::Pcm16, ..Opening::default() });
    let begun = Instant::now();
    say(&session, json!({"type": "response.create", "response": {"conversation": "none", "input": []}})).await;
    let frames = async |n: usize| {
        let mut n_frames = 0;
        while n_frames < n {
            let message = session.egress.next_message().await.expect("it lives");
            n_frames += usize::from(matches!(message, antiphon_session::Message::Binary(_)));
        }
    };
    frames(100).await;
    // 2 s of speech, all but the lead of 300 ms in real time.
    assert!(begun.elapsed() >= Duration::from_millis(1_600), "{:?}", begun.elapsed());
    say(&session, json!({"type": "output_audio_buffer.clear"})).await;
    let events = until(&session, "output_audio_buffer.cleared").await;
    let done = events.iter().find(|event| event["type"] == "response.done").expect("it is stopped");
    assert_eq!(done["response"]["status_details"]["reason"], "client_cancelled");
    assert!(timeout(Duration::from_secs(5), frames(1)).await.is_err(), "nothing of it sounds any more");
}

#[tokio::test(start_paused = true)]
async fn an_out_of_band_response_is_cancelled_by_its_id() {
    let llm = FakeLlm::default().delayed(Duration::from_secs(60));
    let mut config = Config::default();
    config.server.drain_seconds = 0;
    let hub = Hub::start(engines(FakeStt::default(), llm, FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    let create = json!({"type": "response.create", "response": {"conversation": "none", "input": []}});
    let mut ids = Vec::new();
    for _ in 0..16 {
        socket.send(create.clone()).await;
        ids.push(socket.next().await["response"]["id"].clone());
    }
    socket.send(create.clone()).await;
    assert_eq!(socket.next().await["error"]["code"], "too_many_active_responses");
    socket.send(json!({"type": "response.cancel"})).await;
    assert_eq!(socket.next().await["error"]["code"], "response_cancel_not_active", "none is the conversation's");
    socket.send(json!({"type": "response.cancel", "response_id": ids[3]})).await;
    let done = socket.next().await;
    assert_eq!(done["response"]["id"], ids[3]);
    assert_eq!(done["response"]["status_details"], json!({"type": "cancelled", "reason": "client_cancelled"}));
    assert_eq!(socket.next().await["type"], "rate_limits.updated");
    socket.send(create).await;
    assert_eq!(socket.next().await["type"], "response.created", "there is room again");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_response_may_differ_from_its_session() {
    let llm = FakeLlm::says(["One.", "Two."]);
    let hub = Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    let instructions = json!({"type": "realtime", "instructions": "The session's."});
    socket.send(json!({"type": "session.update", "session": instructions})).await;
    let output = json!({"format": {"type": "audio/pcmu"}, "voice": "marin", "speed": 1.5});
    let own = json!({"instructions": "Its own.", "max_output_tokens": 7, "audio": {"output": output},
        "tool_choice": "none", "prompt": null, "parallel_tool_calls": true});
    socket.send(json!({"type": "response.create", "response": own})).await;
    let events = socket.until("response.done").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["max_output_tokens"], 7);
    assert_eq!(done["audio"]["output"]["format"], json!({"type": "audio/pcmu"}));
    assert_eq!(done["audio"]["output"]["voice"], "marin");
    socket.send(json!({"type": "response.create", "response": {"instructions": null}})).await;
    socket.until("response.done").await;
    let requests = llm.requests();
    assert_eq!(requests[0].messages[0], Message::System("Its own.".into()));
    assert_eq!(requests[0].max_tokens, Some(7));
    assert_eq!(requests[1].messages[0], Message::System("The session's.".into()), "null is the session's");
    assert_eq!(requests[1].max_tokens, None);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_tokens_leaves_the_response_incomplete() {
    let engines = Engines {
        llm: Arc::new(Assistant::new()),
        ..engines(FakeStt::default(), FakeLlm::default(), FakeTts::default())
    };
    let hub = Hub::start(engines, Config::default()).await;
    let mut socket = hub.connect("").await;
    socket.send(json!({"type": "conversation.item.create", "item": text_item("q", "What is two plus two?")})).await;
    let params = json!({"max_output_tokens": 2, "output_modalities": ["text"]});
    socket.send(json!({"type": "response.create", "response": params})).await;
    let done = socket.until("response.done").await.pop().expect("done")["response"].clone();
    assert_eq!(done["status"], "incomplete");
    assert_eq!(done["status_details"], json!({"type": "incomplete", "reason": "max_output_tokens"}));
    assert_eq!(done["output"][0]["status"], "incomplete");
    assert_eq!(done["output"][0]["content"][0]["text"], "2 plus ");
}

#[tokio::test(start_paused = true)]
async fn usage_is_the_models_own_or_an_estimate() {
    let llm = FakeLlm::default();
    let counted = Usage { input_tokens: 31, output_tokens: 4 };
    llm.then(vec![
        Ok(LlmDelta::Text("Hi there.".into())),
        Ok(LlmDelta::Done { finish: Finish::Stop, usage: Some(counted) }),
    ]);
    llm.then(antiphon_engine_api::fakes::llm::words("Twelve chars"));
    let mut config = Config::default();
    config.llm.system_prompt = "Be brief.".into();
    let hub = Hub::start(engines(FakeStt::hears(["a question"]), llm, FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    socket.append(&loud(1_000)).await;
    socket.append(&quiet(600)).await;
    let events = socket.until("response.done").await;
    let usage = &events.last().expect("done")["response"]["usage"];
    assert_eq!(
        (&usage["input_token_details"]["text_tokens"], &usage["output_token_details"]["text_tokens"]),
        (&json!(31), &json!(4))
    );
    assert_eq!(
        usage["output_token_details"]["audio_tokens"],
        (9 * MS_PER_CHAR).div_ceil(50),
        "one for 50 ms of speech"
    );
    let heard = usage["input_token_details"]["audio_tokens"].as_u64().expect("a count");
    assert!((10..=14).contains(&heard), "one for 100 ms of speech: {heard}");
    assert_eq!(usage["input_tokens"], 31 + heard);
    let sum = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);

    let own = json!({"conversation": "none", "output_modalities": ["text"], "input": [text_item("q", "Seven!!")]});
    socket.send(json!({"type": "response.create", "response": own})).await;
    let usage = socket.until("response.done").await.pop().expect("done")["response"]["usage"].clone();
    assert_eq!(usage["input_tokens"], 4, "9 characters of instructions and 7 of input");
    assert_eq!(usage["output_tokens"], 3);
    assert_eq!(usage["input_token_details"]["audio_tokens"], 0);
}

#[tokio::test(start_paused = true)]
async fn items_stand_where_the_client_puts_them() {
    let hub = hub("", "Yes.").await;
    let mut socket = hub.connect("").await;
    let mut create = async |id: &str, after: Option<&str>| {
        let event = json!({"type": "conversation.item.create", "item": text_item(id, id), "previous_item_id": after});
        socket.send(event).await;
        let events = socket.until("conversation.item.done").await;
        assert_eq!(events[0]["type"], "conversation.item.added");
        assert_eq!(events[0]["previous_item_id"], events[1]["previous_item_id"]);
        events[0]["previous_item_id"].clone()
    };
    assert_eq!(create("b", None).await, Value::Null);
    assert_eq!(create("a", Some("root")).await, Value::Null);
    assert_eq!(create("d", None).await, "b");
    assert_eq!(create("c", Some("b")).await, "b");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_items_make_room_and_the_client_is_told() {
    let hub = hub("", "Yes.").await;
    let mut socket = hub.connect("").await;
    let mut create = async |id: String, text: &str| {
        socket.send(json!({"type": "conversation.item.create", "item": text_item(&id, text)})).await;
        socket.send(json!({"type": "session.update", "session": {"type": "realtime"}})).await;
        let mut events = socket.until("session.updated").await;
        events.pop();
        events
    };
    // A part counts 64 bytes in addition to its text.
    let mib = "x".repeat(1024 * 1024 - 64);
    for n in 0..4 {
        assert_eq!(types(&create(format!("i{n}"), &mib).await), ["conversation.item.added", "conversation.item.done"]);
    }
    let events = create("i4".into(), "y").await;
    assert_eq!(
        events[2],
        json!({"type": "conversation.item.deleted", "item_id": "i0", "event_id": events[2]["event_id"]})
    );
    let refused = create("i5".into(), &mib.repeat(5)).await;
    assert_eq!(refused[0]["error"]["code"], "event_too_large");
    assert_eq!(refused.len(), 1, "nothing was dropped for it");
}

#[tokio::test(start_paused = true)]
async fn speech_without_an_end_is_cut_into_turns() {
    let mut config = Config::default();
    config.session.max_utterance_seconds = 10;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), config).await;
    let mut socket = hub.connect("?intent=transcription").await;
    socket.append(&loud(25_000)).await;
    socket.append(&quiet(600)).await;
    let mut ends = Vec::new();
    for _ in 0..3 {
        let events = socket.until("input_audio_buffer.speech_stopped").await;
        ends.push(events.last().expect("there")["audio_end_ms"].as_u64().expect("an integer"));
    }
    assert!((9_000..=10_100).contains(&ends[0]), "{ends:?}");
    assert!((18_000..=20_200).contains(&ends[1]), "{ends:?}");
    assert!((24_900..=25_100).contains(&ends[2]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_buffer_that_is_never_committed_is_bounded() {
    let mut config = Config::default();
    config.session.max_utterance_seconds = 10;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    let manual = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    socket.send(json!({"type": "session.update", "session": manual})).await;
    socket.until("session.updated").await;
    socket.append(&loud(10_500)).await;
    socket.append(&loud(1_000)).await;
    let error = socket.next().await;
    assert_eq!(error["error"]["code"], "input_audio_buffer_full");
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    let events = socket.until("conversation.item.input_audio_transcription.completed").await;
    let text = events.last().expect("there")["transcript"].as_str().expect("text");
    let n: u32 = text.split(' ').nth(2).expect("a count").parse().expect("a number");
    assert!((167_900..=168_000).contains(&n), "what was refused is not in it: {text}");
    socket.append(&loud(1_000)).await;
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    socket.until("conversation.item.input_audio_transcription.completed").await;
    let events = socket.ask("Still there?").await;
    assert!(n_audio_samples(&events) > 0);
}
