//! Tool calls: declared tools that the assistant knows nothing of, against what people say.

use antiphon_assistant::Assistant;
use antiphon_engine_api::llm::{Llm, LlmDelta};
use antiphon_types::chat::{ChatRequest, Finish, Message, ToolCall, ToolChoice};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

/// The answer in one line: `name {..}; name {..}`, or the words.
fn answer(messages: Vec<Message>, tool_choice: ToolChoice) -> String {
    let chat = ChatRequest {
        messages,
        tools: serde_json::from_str(include_str!("tools.json")).expect("valid JSON"),
        tool_choice,
        ..Default::default()
    };
    let deltas: Vec<LlmDelta> = Assistant::new()
        .stream(chat)
        .map(|delta| delta.expect("no error"))
        .collect::<Vec<_>>()
        .now_or_never()
        .expect("an immediate end");
    let calls = deltas.iter().filter_map(|delta| match delta {
        LlmDelta::ToolCall { name, arguments, .. } => Some(format!("{name} {arguments}")),
        _ => None,
    });
    let calls: Vec<_> = calls.collect();
    let is_call = matches!(deltas.last(), Some(LlmDelta::Done { finish: Finish::ToolCalls, .. }));
    assert_eq!(is_call, !calls.is_empty());
    let words =
        deltas.iter().filter_map(|delta| if let LlmDelta::Text(text) = delta { Some(text.as_str()) } else { None });
    if is_call { calls.join("; ") } else { words.collect() }
}

fn user(text: &str) -> Message {
    Message::User(text.into())
}

fn called(id: &str, arguments: &Value) -> ToolCall {
    ToolCall { call_id: id.into(), name: "get_weather".into(), arguments: arguments.to_string() }
}

#[test]
fn requests_become_calls() {
    for line in include_str!("tools.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (turns, call) = line.split_once(" => ").unwrap();
        let mut messages = Vec::new();
        for (n, turn) in turns.split(" | ").enumerate() {
            if n % 2 == 1 {
                assert_eq!(answer(messages.clone(), ToolChoice::Auto), turn, "{line}");
                messages.push(Message::Assistant { text: turn.into(), tool_calls: vec![] });
            } else {
                messages.push(user(turn));
            }
        }
        let got = answer(messages, ToolChoice::Auto);
        let fits = if call.contains('{') { got == call } else { got.contains(call) && !got.contains('{') };
        assert!(fits, "{line}: {got}");
    }
}

#[test]
fn the_tool_choice_is_respected() {
    let with = |text: &str, tool_choice| answer(vec![user(text)], tool_choice);
    let named = |name: &str| ToolChoice::Function(name.into());
    assert!(!with("what is the weather in Paris", ToolChoice::None).contains('{'));
    assert_eq!(with("Paris", named("get_weather")), r#"get_weather {"city":"Paris"}"#);
    assert_eq!(with("hello there", named("play_music")), "play_music {}");
    assert_eq!(with("make it ten", named("set_timer")), r#"set_timer {"minutes":10}"#);
    assert_eq!(with("go on", named("set_timer")), "How many minutes?", "no value is invented");
    assert_eq!(with("what is the weather in Paris", ToolChoice::Required), r#"get_weather {"city":"Paris"}"#);
    assert_eq!(with("something nice", ToolChoice::Required), "play_music {}", "the one that needs nothing");
}

#[test]
fn results_are_said_in_plain_words() {
    let results = |outputs: &[(&str, &str)]| {
        let tool_calls = outputs.iter().map(|(city, _)| called(city, &json!({"city": city}))).collect();
        let results = outputs.iter().map(|(id, text)| Message::Tool { call_id: (*id).into(), output: (*text).into() });
        let called = Message::Assistant { text: String::new(), tool_calls };
        [user("what is the weather in Paris"), called].into_iter().chain(results).collect::<Vec<_>>()
    };
    for line in include_str!("results.txt").lines().filter(|line| !line.starts_with('#')) {
        let (output, words) = line.split_once("=> ").unwrap();
        assert_eq!(answer(results(&[("Oslo", output)]), ToolChoice::Auto), words, "{output}");
    }
    assert_eq!(answer(results(&[("Rome", "sun"), ("Oslo", "sun")]), ToolChoice::Auto), "For Rome: Sun. For Oslo: Sun.");
    let mut messages = results(&[("Paris", "rain")]);
    messages.extend([Message::Assistant { text: "Rain.".into(), tool_calls: vec![] }, user("and in london?")]);
    assert_eq!(answer(messages, ToolChoice::Auto), r#"get_weather {"city":"London"}"#, "a further place");
}
