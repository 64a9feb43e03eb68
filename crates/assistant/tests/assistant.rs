//! The assistant against what people ask it (`questions.txt`), and against tools that it knows nothing of.

use antiphon_assistant::Assistant;
use antiphon_engine_api::llm::{Llm, LlmDelta};
use antiphon_types::chat::{ChatRequest, Finish, Message, ToolChoice};
use futures_util::{FutureExt, StreamExt};
use jiff::civil::date;
use jiff::tz::TimeZone;
use serde_json::json;

fn assistant() -> Assistant {
    let now = date(2026, 3, 11).at(15, 7, 0, 0).to_zoned(TimeZone::UTC).expect("a time that exists");
    Assistant::with_clock(move || now.clone())
}

fn user(text: &str) -> Message {
    Message::User(text.into())
}

#[test]
fn the_questions_are_answered() {
    let mut messages = Vec::new();
    let mut wrong = Vec::new();
    for line in include_str!("questions.txt").lines().filter(|line| !line.starts_with('#')) {
        let (question, expected) = line.trim_start_matches("+ ").split_once(" => ").expect("question => answer");
        if !line.starts_with('+') {
            messages.clear();
        }
        messages.push(user(question));
        let text = assistant().answer(&messages);
        if !text.contains(expected) {
            wrong.push(format!("{question}\n  answered: {text}\n  expected: {expected}"));
        }
        messages.push(Message::Assistant { text, tool_calls: vec![] });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_user_who_goes_on_speaking_is_answered_as_a_whole_and_one_who_asks_again_is_not() {
    assert_eq!(assistant().answer(&[user("what is twelve"), user("plus seven")]), "12 plus 7 is 19.");
    assert_eq!(assistant().answer(&[user("what is twelve"), user("what time is it")]), "It is 3:07 PM.");
}

fn deltas(chat: ChatRequest) -> Vec<LlmDelta> {
    let deltas = assistant().stream(chat).map(|delta| delta.expect("no error")).collect::<Vec<_>>();
    deltas.now_or_never().expect("an immediate end")
}

#[test]
fn an_answer_ends_at_the_limit_of_its_tokens() {
    let chat = ChatRequest { messages: vec![user("count")], max_tokens: Some(3), ..ChatRequest::default() };
    let deltas = deltas(chat);
    assert_eq!(deltas.len(), 4);
    assert!(matches!(deltas.last(), Some(LlmDelta::Done { finish: Finish::Length, .. })));
}

/// The answer in one line: `name {..}`, or the words.
fn answer(messages: Vec<Message>, tool_choice: ToolChoice) -> String {
    let tools = json!([
        {"name": "get_weather", "description": "Tells the weather in a city.", "parameters": {"type": "object",
            "required": ["city"], "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}}}},
        {"name": "setTimer", "description": "Starts a timer.", "parameters": {"type": "object", "required": ["minutes"],
            "properties": {"minutes": {"type": "number"}}}},
        {"name": "play_music", "description": "Plays music.", "parameters": {"type": "object", "properties": {}}},
    ]);
    let tools = serde_json::from_value(tools).expect("tools");
    let deltas = deltas(ChatRequest { messages, tools, tool_choice, ..ChatRequest::default() });
    let said = deltas.iter().map(|delta| match delta {
        LlmDelta::ToolCall { name, arguments, .. } => format!("{name} {arguments}"),
        LlmDelta::Text(text) => text.clone(),
        _ => String::new(),
    });
    said.collect()
}

#[test]
fn a_request_that_names_a_tool_becomes_its_call() {
    let named = |name: &str| ToolChoice::Function(name.into());
    for (request, choice, expected) in [
        ("What is the weather in Paris?", ToolChoice::Auto, r#"get_weather {"city":"Paris"}"#),
        ("tell me the weather for new york please", ToolChoice::Auto, r#"get_weather {"city":"New York"}"#),
        ("set a timer for ten minutes", ToolChoice::Auto, r#"setTimer {"minutes":10}"#),
        ("play some music", ToolChoice::Auto, "play_music {}"),
        ("what is two plus two", ToolChoice::Auto, "2 plus 2 is 4."),
        ("what is the weather", ToolChoice::Auto, "I cannot answer that offline"),
        ("What is the weather in Paris?", ToolChoice::None, "I cannot answer that offline"),
        ("Paris", named("get_weather"), r#"get_weather {"city":"Paris"}"#),
        ("Paris in fahrenheit", ToolChoice::Required, r#"{"city":"Fahrenheit","unit":"fahrenheit"}"#),
        ("go on", named("setTimer"), "Which minutes?"),
    ] {
        let got = answer(vec![user(request)], choice);
        assert!(got.contains(expected), "{request}: {got}");
    }
}

#[test]
fn results_are_said_in_words() {
    for (output, expected) in [
        (r#"{"degrees": 21, "weather": "sunny"}"#, "Degrees: 21, weather: sunny."),
        ("It rains.", "It rains."),
        ("42", "The answer is 42."),
        ("", "Done."),
    ] {
        let result = Message::Tool { call_id: "a".into(), output: output.into() };
        assert_eq!(answer(vec![user("what is the weather in Paris"), result], ToolChoice::Auto), expected);
    }
}
