//! The request's body, and what was learnt of a server that takes only a part of it.

use super::settings::Settings;
use antiphon_types::chat::{ChatRequest, Message, Tool, ToolChoice};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// Fields the server refused once; they are left out from then on. Each costs one refused request per process.
#[derive(Default)]
pub(super) struct Quirks {
    no_stream_options: AtomicBool,
    no_temperature: AtomicBool,
    completion_tokens: AtomicBool,
}

impl Quirks {
    /// Whether a refusal with this message is about a field that can be left out or renamed, and was not yet.
    pub fn learn(&self, message: &str) -> bool {
        let fields = [
            ("stream_options", &self.no_stream_options),
            // Reasoning models take `max_completion_tokens`, and only their own temperature.
            ("max_completion_tokens", &self.completion_tokens),
            ("temperature", &self.no_temperature),
        ];
        let known = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        match fields.into_iter().find(|(field, flag)| message.contains(field) && !known(flag)) {
            Some((_, flag)) => !flag.swap(true, Ordering::Relaxed),
            None => false,
        }
    }
}

/// The body of a streaming chat completion.
pub(super) fn body(settings: &Settings, quirks: &Quirks, request: &ChatRequest) -> Value {
    let mut body = json!({
        "model": settings.model,
        "messages": request.messages.iter().map(message).collect::<Vec<_>>(),
        "stream": true,
    });
    let fields = body.as_object_mut().expect("it was made as an object");
    let limit = match quirks.completion_tokens.load(Ordering::Relaxed) {
        true => "max_completion_tokens",
        false => "max_tokens",
    };
    fields.insert(limit.into(), request.max_tokens.unwrap_or(settings.max_tokens).into());
    if !quirks.no_temperature.load(Ordering::Relaxed) {
        // Rounded, for 0.7 as f32 is not 0.7 as f64 and some servers show it.
        fields.insert("temperature".into(), ((f64::from(settings.temperature) * 1e4).round() / 1e4).into());
    }
    if !quirks.no_stream_options.load(Ordering::Relaxed) {
        fields.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if let Some(user) = &request.user {
        fields.insert("user".into(), user.as_str().into());
    }
    // A choice without tools is refused by several servers.
    if !request.tools.is_empty() {
        fields.insert("tools".into(), request.tools.iter().map(tool).collect());
        fields.insert("tool_choice".into(), tool_choice(&request.tool_choice));
    }
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({"role": "system", "content": text}),
        Message::User(text) => json!({"role": "user", "content": text}),
        Message::Assistant { text, tool_calls } if tool_calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        Message::Assistant { text, tool_calls } => {
            let calls = tool_calls.iter().map(|call| {
                json!({"id": call.call_id, "type": "function",
                       "function": {"name": call.name, "arguments": call.arguments}})
            });
            let content = if text.is_empty() { Value::Null } else { text.as_str().into() };
            json!({"role": "assistant", "content": content, "tool_calls": calls.collect::<Vec<_>>()})
        }
        Message::Tool { call_id, output } => json!({"role": "tool", "tool_call_id": call_id, "content": output}),
    }
}

fn tool(tool: &Tool) -> Value {
    json!({"type": "function",
           "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}})
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Function(name) => json!({"type": "function", "function": {"name": name}}),
    }
}
