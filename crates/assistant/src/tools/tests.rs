//! Declared tools of many kinds, none of which the assistant knows, against what people say.

use crate::testing;
use antiphon_engine_api::llm::{Llm, LlmDelta};
use antiphon_types::chat::{ChatRequest, Finish, Message, Tool, ToolCall, ToolChoice};
use futures_util::StreamExt;
use serde_json::{Value, json};

fn tool(name: &str, description: &str, properties: Value, required: &[&str]) -> Tool {
    let parameters = json!({"type": "object", "properties": properties, "required": required});
    Tool { name: name.into(), description: description.into(), parameters: parameters.into() }
}

fn tools() -> Vec<Tool> {
    vec![
        tool(
            "get_weather",
            "Tells the weather in a city.",
            json!({"city": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}),
            &["city"],
        ),
        tool("set_timer", "Starts a timer.", json!({"minutes": {"type": "number"}}), &["minutes"]),
        tool("turn_on_light", "Switches a light on.", json!({"room": {"type": "string"}}), &["room"]),
        tool("turn_off_light", "Switches a light off.", json!({"room": {"type": "string"}}), &["room"]),
        tool(
            "setThermostat",
            "Sets the temperature.",
            json!({"degrees": {"type": "integer", "minimum": 5, "maximum": 30},
            "mode": {"type": "string", "enum": ["heat", "cool", "auto"]}}),
            &["degrees"],
        ),
        tool(
            "send_message",
            "Sends a text message.",
            json!({"recipient": {"type": "string"},
            "message": {"type": "string"}}),
            &["recipient", "message"],
        ),
        tool("search_web", "Searches the web.", json!({"query": {"type": "string"}}), &["query"]),
        tool(
            "lookup_order",
            "Looks up an order by its number.",
            json!({"order_number": {"type": "integer"}}),
            &["order_number"],
        ),
        tool(
            "add_calendar_event",
            "Adds an event.",
            json!({"title": {"type": "string"}, "day": {"type": "string"}}),
            &["title"],
        ),
        tool(
            "set_alarm",
            "Sets an alarm.",
            json!({"time": {"type": "string"}, "repeat": {"type": "boolean"}}),
            &["time"],
        ),
        tool("play_music", "Plays music.", json!({"genre": {"type": "string"}}), &[]),
    ]
}

fn request(text: &str) -> ChatRequest {
    ChatRequest { messages: vec![Message::User(text.into())], tools: tools(), ..Default::default() }
}

/// The answer in one line: `name {..}; name {..}`, or the words.
fn answer(request: ChatRequest) -> String {
    let deltas: Vec<LlmDelta> = futures_util::future::FutureExt::now_or_never(
        testing::assistant().stream(request).map(|delta| delta.expect("it never fails")).collect::<Vec<_>>(),
    )
    .expect("it answers at once");
    let Some(LlmDelta::Done { finish, .. }) = deltas.last() else { panic!("no end: {deltas:?}") };
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut words = String::new();
    for delta in &deltas {
        match delta {
            LlmDelta::Text(text) => words.push_str(text),
            LlmDelta::ToolCall { index, call_id, name, arguments } => {
                if *index == calls.len() {
                    assert!(!call_id.is_empty() && !name.is_empty());
                    calls.push((name.clone(), String::new()));
                }
                calls[*index].1.push_str(arguments);
            }
            LlmDelta::Done { .. } => {}
        }
    }
    assert_eq!(*finish == Finish::ToolCalls, !calls.is_empty());
    if calls.is_empty() {
        return words;
    }
    calls.into_iter().map(|(name, arguments)| format!("{name} {arguments}")).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_plainly_fits_is_called() {
    let table = [
        ("What's the weather in Paris?", r#"get_weather {"city":"Paris"}"#),
        ("what is the weather like in new york", r#"get_weather {"city":"New York"}"#),
        ("tell me the weather in berlin in celsius please", r#"get_weather {"city":"Berlin","unit":"celsius"}"#),
        ("weather Oslo", r#"get_weather {"city":"Oslo"}"#),
        ("what is the forecast for Rome", r#"get_weather {"city":"Rome"}"#),
        ("set a timer for five minutes", r#"set_timer {"minutes":5}"#),
        ("Set a timer for 2 and a half hours", r#"set_timer {"minutes":150}"#),
        ("start a timer for an hour and thirty minutes", r#"set_timer {"minutes":90}"#),
        ("set a ten minute timer", r#"set_timer {"minutes":10}"#),
        ("turn on the light in the kitchen", r#"turn_on_light {"room":"kitchen"}"#),
        ("turn on the living room light", r#"turn_on_light {"room":"living room"}"#),
        ("please switch the lights off in the bedroom", r#"turn_off_light {"room":"bedroom"}"#),
        ("set the thermostat to twenty one degrees", r#"setThermostat {"degrees":21}"#),
        ("set the thermostat to 19 degrees and cool", r#"setThermostat {"degrees":19,"mode":"cool"}"#),
        (
            "send a message to anna saying I will be late in Paris",
            r#"send_message {"message":"I will be late in Paris","recipient":"Anna"}"#,
        ),
        ("search the web for cheap flights to rome", r#"search_web {"query":"cheap flights to rome"}"#),
        ("where is my order 4711", r#"lookup_order {"order_number":4711}"#),
        ("add a calendar event called lunch tomorrow", r#"add_calendar_event {"day":"tomorrow","title":"lunch"}"#),
        ("set an alarm for 7 am", r#"set_alarm {"time":"7 am"}"#),
        ("play some music", "play_music {}"),
        ("what is the weather in Paris and London", r#"get_weather {"city":"Paris"}; get_weather {"city":"London"}"#),
        (
            "turn on the light in the kitchen and set a timer for ten minutes",
            r#"turn_on_light {"room":"kitchen"}; set_timer {"minutes":10}"#,
        ),
    ];
    let wrong: Vec<_> = table.into_iter().map(|(text, call)| (text, answer(request(text)), call)).collect();
    let wrong: Vec<_> = wrong.into_iter().filter(|(_, got, call)| got != call).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_does_not_fit_is_answered_as_ever() {
    for (text, part) in [
        ("what is twelve times seven", "84"),
        ("how many minutes are in an hour", "60"),
        ("do not turn on the light in the kitchen", ""),
        ("I turned on the light in the kitchen", ""),
        ("close the light in the kitchen", ""),
        ("hello", "Hello"),
        ("spell weather", "W"),
    ] {
        let got = answer(request(text));
        assert!(got.contains(part) && !got.contains('{'), "{text}: {got}");
    }
}

#[test]
fn what_is_missing_is_asked_for_and_then_called() {
    for (dialogue, call) in [
        (&["what is the weather", "Which city?", "in Paris please"][..], r#"get_weather {"city":"Paris"}"#),
        (&["set a timer", "How many minutes?", "for ten"], r#"set_timer {"minutes":10}"#),
        (&["set the thermostat", "What should the degrees be?", "twenty two"], r#"setThermostat {"degrees":22}"#),
        (
            &["send a message", "Which recipient?", "to bob", "What should the message be?", "see you at noon"],
            r#"send_message {"message":"see you at noon","recipient":"Bob"}"#,
        ),
    ] {
        let mut messages = Vec::new();
        for (n, text) in dialogue.iter().enumerate() {
            if n % 2 == 0 {
                messages.push(Message::User((*text).into()));
                continue;
            }
            let asked = answer(ChatRequest { messages: messages.clone(), tools: tools(), ..Default::default() });
            assert_eq!(asked, *text, "{dialogue:?}");
            messages.push(Message::Assistant { text: asked, tool_calls: vec![] });
        }
        assert_eq!(answer(ChatRequest { messages, tools: tools(), ..Default::default() }), call, "{dialogue:?}");
    }
    // Another question instead of an answer is answered.
    let messages = vec![
        Message::User("what is the weather".into()),
        Message::Assistant { text: "Which city?".into(), tool_calls: vec![] },
        Message::User("what is two plus two".into()),
    ];
    let got = answer(ChatRequest { messages, tools: tools(), ..Default::default() });
    assert!(got.contains("is 4"), "{got}");
}

#[test]
fn the_choice_is_kept_as_far_as_it_honestly_can_be() {
    let with = |text: &str, tool_choice| answer(ChatRequest { tool_choice, ..request(text) });
    let named = |name: &str| ToolChoice::Function(name.into());
    assert!(!with("what is the weather in Paris", ToolChoice::None).contains('{'));
    assert_eq!(with("Paris", named("get_weather")), r#"get_weather {"city":"Paris"}"#);
    assert_eq!(with("hello there", named("play_music")), "play_music {}");
    assert_eq!(with("make it ten", named("set_timer")), r#"set_timer {"minutes":10}"#);
    assert_eq!(with("go on", named("set_timer")), "How many minutes?", "nothing is made up");
    assert_eq!(with("what is the weather in Paris", ToolChoice::Required), r#"get_weather {"city":"Paris"}"#);
    assert_eq!(with("something nice", ToolChoice::Required), "play_music {}", "the one that needs nothing");
}

#[test]
fn a_further_place_is_asked_of_the_same_tool() {
    let call = ToolCall { call_id: "c".into(), name: "get_weather".into(), arguments: r#"{"city":"Paris"}"#.into() };
    let messages = vec![
        Message::User("what is the weather in Paris".into()),
        Message::Assistant { text: String::new(), tool_calls: vec![call] },
        Message::Tool { call_id: "c".into(), output: "rain".into() },
        Message::Assistant { text: "Rain.".into(), tool_calls: vec![] },
        Message::User("and in london?".into()),
    ];
    let got = answer(ChatRequest { messages, tools: tools(), ..Default::default() });
    assert_eq!(got, r#"get_weather {"city":"London"}"#);
}

#[test]
fn results_are_spoken_in_plain_words() {
    for (output, words) in [
        (r#"{"temperature": 21, "sky": "clear"}"#, "The sky is clear and the temperature is 21."),
        (r#"{"temperature_c": 21.5}"#, "The temperature is 21.5 degrees Celsius."),
        (r#"{"windSpeed": {"gusts": 5}}"#, "The wind speed gusts are 5."),
        (r#"{"success": true}"#, "Done."),
        (r#"{"ok": true, "message": "The timer runs."}"#, "Done. The timer runs."),
        (r#"{"success": false, "message": "no such room"}"#, "That did not work. No such room."),
        (r#"{"error": "no such city"}"#, "That did not work: No such city."),
        (r#"["a", "b", "c"]"#, "A, b and c."),
        (r#"[{"name": "Bob"}]"#, "There is 1 results and the first results name is Bob."),
        ("[]", "Nothing was found."),
        ("42", "The answer is 42."),
        ("true", "Yes."),
        ("", "Done."),
        ("null", "Nothing came back."),
        ("it rains all day", "It rains all day."),
        ("\"sunny\"", "Sunny."),
    ] {
        let call = ToolCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() };
        let messages = vec![
            Message::User("do it".into()),
            Message::Assistant { text: String::new(), tool_calls: vec![call] },
            Message::Tool { call_id: "c".into(), output: output.into() },
        ];
        assert_eq!(answer(ChatRequest { messages, tools: tools(), ..Default::default() }), words, "{output}");
    }
    let calls = ["Rome", "Oslo"].map(|city| ToolCall {
        call_id: city.into(),
        name: "get_weather".into(),
        arguments: json!({"city": city}).to_string(),
    });
    let results = ["Rome", "Oslo"].map(|city| Message::Tool { call_id: city.into(), output: "sun".into() });
    let mut messages = vec![Message::Assistant { text: String::new(), tool_calls: calls.to_vec() }];
    messages.extend(results);
    assert_eq!(answer(ChatRequest { messages, ..Default::default() }), "For Rome: Sun. For Oslo: Sun.");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    /// Whatever is heard and whatever schema is declared, nothing panics, and a call has all it needs.
    #[test]
    fn any_words_and_any_schema_are_borne(
        picks in proptest::collection::vec(0usize..4_000, 0..14),
        kinds in proptest::collection::vec(0usize..6, 0..4),
        tail in "\\PC{0,12}",
    ) {
        let words: Vec<&str> = "turn on off the light in kitchen and set a timer for five minutes at 7 am saying weather \
            paris to anna please not half an hour tomorrow \"quoted\" 3,5 . ? search web order 12 with of my number two"
            .split_whitespace().collect();
        let said: Vec<&str> = picks.iter().map(|pick| words[pick % words.len()]).collect();
        let schemas = [json!({"type": "string"}), json!({"type": "number"}), json!({"type": "boolean"}),
            json!({"enum": ["five", 7, null]}), json!({"type": ["integer", "null"]}), json!(true)];
        let names = ["city", "minutes", "message", "time", "room", "x"];
        let properties: serde_json::Map<_, _> =
            kinds.iter().enumerate().map(|(n, kind)| (names[(n + kind) % names.len()].to_owned(), schemas[*kind].clone())).collect();
        let required: Vec<&str> = properties.keys().map(String::as_str).collect();
        let odd = tool("set_odd_timer", "Sets the light.", Value::Object(properties.clone()), &required);
        let chat = ChatRequest {
            messages: vec![Message::User(format!("{} {tail}", said.join(" ")))],
            tools: [tools(), vec![odd]].concat(),
            ..Default::default()
        };
        for tool_choice in [ToolChoice::Auto, ToolChoice::Required, ToolChoice::Function("set_odd_timer".into())] {
            let got = answer(ChatRequest { tool_choice, ..chat.clone() });
            if let Some(arguments) = got.strip_prefix("set_odd_timer ").and_then(|rest| rest.split("; ").next()) {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                proptest::prop_assert!(required.iter().all(|name| !arguments[name].is_null()), "{got}");
            }
        }
    }
}
