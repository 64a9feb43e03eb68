//! The request's body, and what was learnt of a server that takes only a part of it.

use super::settings::Settings;
use antiphon_types::chat::{ChatRequest, Message, Tool, ToolChoice, UserPart};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// Fields the server refused once; they are left out from then on. Each costs one refused request per process.
#[derive(Default)]
pub(super) struct Quirks {
    no_stream_options: AtomicBool,
    no_temperature: AtomicBool,
    completion_tokens: AtomicBool,
    no_images: AtomicBool,
}

/// What was known of the server when a request was written. Several requests may be under way with the same field.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownQuirks {
    no_stream_options: bool,
    no_temperature: bool,
    completion_tokens: bool,
    no_images: bool,
}

/// What servers say when the model takes no images: OpenAI, vLLM, llama.cpp, Ollama, LM Studio, DeepSeek and Groq. A refusal of
/// one image, because it is broken or too large, says none of it.
const TAKES_NO_IMAGES: [&str; 8] = [
    "only supported by certain models",
    "is not a multimodal model",
    "mmproj",
    "not support image",
    "image input is not supported",
    "missing data required for image input",
    "unknown variant `image_url`",
    "content must be a string",
];

/// What the model reads in the place of an image that it cannot see.
const UNSEEN_IMAGE: &str = "[The user shows an image, which you cannot see.]";

impl Quirks {
    /// Whether the model takes images, as far as is known.
    pub fn takes_images(&self) -> bool {
        !self.no_images.load(Ordering::Relaxed)
    }

    /// What is known now.
    pub fn known(&self) -> KnownQuirks {
        KnownQuirks {
            no_stream_options: self.no_stream_options.load(Ordering::Relaxed),
            no_temperature: self.no_temperature.load(Ordering::Relaxed),
            completion_tokens: self.completion_tokens.load(Ordering::Relaxed),
            no_images: self.no_images.load(Ordering::Relaxed),
        }
    }

    /// Whether a refusal with this message says that the model takes no images, which was not known when the request
    /// was written.
    pub fn learn_images(&self, message: &str, known: KnownQuirks) -> bool {
        let message = message.to_lowercase();
        let is_new = !known.no_images && TAKES_NO_IMAGES.iter().any(|words| message.contains(words));
        if is_new {
            self.no_images.store(true, Ordering::Relaxed);
        }
        is_new
    }

    /// Whether a refusal with this message is about a field that can be left out or renamed, and was not when the
    /// request was written.
    pub fn learn(&self, message: &str, known: KnownQuirks) -> bool {
        let fields = [
            ("stream_options", &self.no_stream_options, known.no_stream_options),
            // Reasoning models take `max_completion_tokens`, and only their own temperature.
            ("max_completion_tokens", &self.completion_tokens, known.completion_tokens),
            ("temperature", &self.no_temperature, known.no_temperature),
        ];
        match fields.into_iter().find(|(field, _, is_known)| message.contains(field) && !is_known) {
            Some((_, flag, _)) => {
                flag.store(true, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }
}

/// The body of a streaming chat completion.
pub(super) fn body(settings: &Settings, known: KnownQuirks, request: &ChatRequest) -> Value {
    let sees = settings.images && !known.no_images;
    let mut body = json!({
        "model": settings.model,
        "messages": request.messages.iter().map(|said| message(said, sees)).collect::<Vec<_>>(),
        "stream": true,
    });
    let fields = body.as_object_mut().expect("it was made as an object");
    let limit = match known.completion_tokens {
        true => "max_completion_tokens",
        false => "max_tokens",
    };
    fields.insert(limit.into(), request.max_tokens.unwrap_or(settings.max_tokens).into());
    if !known.no_temperature {
        // Rounded, for 0.7 as f32 is not 0.7 as f64 and some servers show it.
        fields.insert("temperature".into(), ((f64::from(settings.temperature) * 1e4).round() / 1e4).into());
    }
    if !known.no_stream_options {
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

fn message(message: &Message, sees: bool) -> Value {
    match message {
        Message::System(text) => json!({"role": "system", "content": text}),
        Message::User(text) => json!({"role": "user", "content": text}),
        Message::UserParts(parts) if sees => {
            json!({"role": "user", "content": parts.iter().map(part).collect::<Vec<_>>()})
        }
        Message::UserParts(parts) => {
            let texts: Vec<_> = parts.iter().map(|part| part.text().unwrap_or(UNSEEN_IMAGE)).collect();
            json!({"role": "user", "content": texts.join(" ")})
        }
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

fn part(part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({"type": "text", "text": text}),
        UserPart::Image(image) => {
            json!({"type": "image_url", "image_url": {"url": image.url(), "detail": image.detail}})
        }
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
