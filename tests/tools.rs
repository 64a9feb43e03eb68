//! Function tools over a real socket: declared, called, answered, and rejected if invalid.

use crate::hub::{Hub, Socket, engines, types};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_types::chat::{Finish, Message, ToolChoice};
use serde_json::{Value, json};

/// A delta of a tool call, as a model streams it.
fn call(index: usize, call_id: &str, name: &str, arguments: &str) -> Result<LlmDelta, String> {
    let call_id = call_id.to_owned();
    let name = name.to_owned();
    let arguments = arguments.to_owned();
    Ok(LlmDelta::ToolCall { index, call_id, name, arguments })
}

fn end() -> Result<LlmDelta, String> {
    Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None })
}

/// A hub whose model returns these answers.
async fn hub(answers: Vec<Vec<Result<LlmDelta, String>>>) -> (Hub, FakeLlm) {
    let llm = FakeLlm::default();
    answers.into_iter().for_each(|answer| llm.then(answer));
    (Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), Config::default()).await, llm)
}

fn weather() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!({"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": parameters})
}

async fn declare(socket: &mut Socket, session: Value) -> Value {
    let mut update = json!({"type": "realtime", "output_modalities": ["text"]});
    update.as_object_mut().expect("an object").extend(session.as_object().expect("an object").clone());
    socket.send(json!({"type": "session.update", "session": update})).await;
    socket.news().await
}

async fn answer_call(socket: &mut Socket, call_id: &str, output: &str) -> Value {
    let item = json!({"type": "function_call_output", "call_id": call_id, "output": output});
    socket.send(json!({"type": "conversation.item.create", "event_id": "mine", "item": item})).await;
    socket.news().await
}

#[tokio::test(start_paused = true)]
async fn a_function_is_called_answered_and_its_result_spoken_of() {
    let (hub, llm) = hub(vec![
        vec![
            Ok(LlmDelta::Text("Let me see.".into())),
            call(0, "call_a", "weather", ""),
            call(0, "", "", "{\"city\":"),
            call(0, "", "", "\"Rome\"}"),
            call(1, "call_b", "weather", "{\"city\":\"Oslo\"}"),
            end(),
        ],
        words("Sun in Rome, snow in Oslo."),
    ])
    .await;
    let mut socket = hub.connect("").await;
    let updated = declare(&mut socket, json!({"tools": [weather()]})).await;
    assert_eq!(updated["session"]["tools"], json!([weather()]));
    assert_eq!(updated["session"]["tool_choice"], "auto");

    let events = socket.ask("Rome and Oslo?").await;
    assert_eq!(
        types(&events)[2..],
        [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.output_item.added",
            "conversation.item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.output_item.added",
            "conversation.item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>();
    let added = &of("response.output_item.added")[1];
    assert_eq!(added["output_index"], 1);
    let item = &added["item"];
    assert_eq!(
        [&item["type"], &item["status"], &item["call_id"], &item["name"], &item["arguments"]],
        ["function_call", "in_progress", "call_a", "weather", ""]
    );
    let deltas = of("response.function_call_arguments.delta");
    assert_eq!(deltas[0]["delta"], "{\"city\":\"Rome\"}");
    let done = of("response.function_call_arguments.done");
    for (index, call_id, city) in [(0, "call_a", "Rome"), (1, "call_b", "Oslo")] {
        assert_eq!(done[index]["name"], "weather");
        assert_eq!(done[index]["call_id"], call_id);
        assert_eq!(done[index]["output_index"], index + 1);
        assert_eq!(done[index]["arguments"], format!("{{\"city\":\"{city}\"}}"));
    }
    let output = &events.last().expect("done")["response"]["output"];
    assert_eq!(output[2]["arguments"], "{\"city\":\"Oslo\"}");
    assert_eq!(output[2]["status"], "completed");

    assert_eq!(answer_call(&mut socket, "call_b", "snow").await["item"]["output"], "snow");
    socket.until("conversation.item.done").await;
    answer_call(&mut socket, "call_a", "sun").await;
    socket.until("conversation.item.done").await;
    socket.send(json!({"type": "response.create"})).await;
    let events = socket.until("response.done").await;
    let item = &events.last().expect("done")["response"]["output"][0];
    assert_eq!(item["content"][0]["text"], "Sun in Rome, snow in Oslo.");

    let requests = llm.requests();
    assert_eq!(requests[0].tools.len(), 1);
    assert_eq!(requests[0].tools[0].parameters, weather()["parameters"].clone().into());
    let [.., Message::Assistant { text, tool_calls }, Message::Tool { output: first, .. }, Message::Tool { .. }] =
        &requests[1].messages[..]
    else {
        panic!("the calls and both results: {:?}", requests[1].messages)
    };
    assert_eq!((text.as_str(), tool_calls.len(), first.as_str()), ("Let me see.", 2, "sun"));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_choice_is_the_sessions_or_the_responses() {
    let (hub, llm) = hub(vec![words("One."), words("Two."), words("Three.")]).await;
    let mut socket = hub.connect("").await;
    let named = json!({"type": "function", "name": "weather"});
    let updated = declare(&mut socket, json!({"tools": [weather()], "tool_choice": named})).await;
    assert_eq!(updated["session"]["tool_choice"], named);
    for choice in [Value::Null, json!("required"), json!("none")] {
        socket.send(json!({"type": "response.create", "response": {"tool_choice": choice}})).await;
        socket.until("response.done").await;
    }
    let choices: Vec<_> = llm.requests().into_iter().map(|request| request.tool_choice).collect();
    assert_eq!(choices, [ToolChoice::Function("weather".into()), ToolChoice::Required, ToolChoice::None]);
}

#[tokio::test(start_paused = true)]
async fn a_responses_own_tools_replace_the_sessions() {
    let (hub, llm) = hub(vec![words("One."), words("Two.")]).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!({"tools": [weather()]})).await;
    let own = json!([{"type": "function", "name": "clock"}]);
    socket.send(json!({"type": "response.create", "response": {"tools": own}})).await;
    socket.until("response.done").await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.done").await;
    let names: Vec<_> = llm.requests().into_iter().map(|request| request.tools[0].name.clone()).collect();
    assert_eq!(names, ["clock", "weather"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_about_tools_is_refused_and_changes_nothing() {
    let (hub, llm) = hub(vec![words("Still here.")]).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!({"tools": [weather()]})).await;
    let clock = json!({"type": "function", "name": "clock"});
    for (session, code, param) in [
        (json!({"tools": [weather(), weather()]}), "invalid_value", "session.tools[1].name"),
        (json!({"tools": [{"type": "function"}]}), "missing_required_parameter", "session.tools[0].name"),
        (json!({"tool_choice": clock}), "invalid_value", "session.tool_choice"),
        (json!({"tool_choice": "perhaps"}), "invalid_value", "session.tool_choice"),
    ] {
        let error = declare(&mut socket, session).await;
        assert_eq!(error["error"]["code"], code, "{error}");
        assert_eq!(error["error"]["param"], param);
    }
    socket.send(json!({"type": "response.create", "response": {"tool_choice": clock}})).await;
    let error = socket.news().await;
    assert_eq!(error["error"]["param"], "response.tool_choice", "{error}");
    let error = answer_call(&mut socket, "call_nobody_made", "rain").await;
    assert_eq!(error["error"]["code"], "invalid_tool_call_id", "{error}");
    assert_eq!(error["error"]["event_id"], "mine");

    let events = socket.ask("Are you there?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    assert_eq!(llm.requests()[0].tools[0].name, "weather");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_before_it_is_whole_was_never_made() {
    let llm = FakeLlm::default().delayed(std::time::Duration::from_millis(20));
    llm.then(
        std::iter::once(call(0, "call_a", "weather", "{\"city\":"))
            .chain((0..500).map(|_| call(0, "", "", " ")))
            .chain([end()])
            .collect(),
    );
    llm.then(words("Fine."));
    let hub = Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!({"tools": [weather()]})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.created").await;
    while llm.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    socket.send(json!({"type": "response.cancel"})).await;
    let events = socket.until("response.done").await;
    let response = &events.last().expect("done")["response"];
    assert_eq!(response["status"], "cancelled");
    assert_eq!(response["output"], json!([]));
    socket.ask("And now?").await;
    assert_eq!(llm.requests()[1].messages[1..], [Message::User("And now?".into())]);
}

#[tokio::test(start_paused = true)]
async fn what_is_spoken_before_a_call_is_whole_before_it() {
    let text = |text: &str| Ok(LlmDelta::Text(text.into()));
    let spoken = vec![text("Let me see."), call(0, "call_a", "weather", "{}"), text("Let me see."), end()];
    let (hub, _) = hub(vec![words("Let me see."), spoken]).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!({"tools": [weather()], "output_modalities": ["audio"]})).await;
    let audio = |events: &[Value], item: &Value| -> usize {
        let of = |event: &&Value| event["type"] == "response.output_audio.delta" && event["item_id"] == *item;
        events.iter().filter(of).map(|event| event["delta"].as_str().expect("base64").len()).sum()
    };
    let plain = socket.ask("Rome?").await;
    let whole = audio(&plain, &plain.last().expect("done")["response"]["output"][0]["id"]);
    assert!(whole > 0);
    let events = socket.ask("And now?").await;
    let output = &events.last().expect("done")["response"]["output"];
    let kinds: Vec<_> = output.as_array().expect("items").iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["message", "function_call", "message"]);
    for index in [0, 2] {
        assert_eq!(audio(&events, &output[index]["id"]), whole, "to the last sample");
    }
    let mut open = None;
    for event in events.iter().filter(|event| event["output_index"].is_u64()) {
        let index = event["output_index"].as_u64();
        match event["type"].as_str().expect("a type") {
            "response.output_item.added" => assert_eq!(open.replace(index), None, "one after the other"),
            "response.output_item.done" => assert_eq!(open.take(), Some(index)),
            _ => assert_eq!(open, Some(index), "{event}"),
        }
    }
}
