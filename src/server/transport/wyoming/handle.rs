//! Answers: a `transcript` in, the language model's answer out, as text. Home Assistant speaks it by a voice of its choice.
//!
//! Turns of one conversation, by the `conversation_id` of their context, are answered with the turns before them.

use super::frame::Event;
use super::{Connection, ConnectionEnd, LONGEST_REQUEST, needed_text};
use crate::server::access::limits::{Consumer, Count, Resource};
use crate::server::access::security::Act;
use crate::server::speech::live::Request;
use antiphon_engine_api::llm::{LlmDelta, LlmError};
use antiphon_telemetry::Endpoint;
use antiphon_types::chat::{ChatRequest, Message, ToolChoice, Usage, estimated_tokens};
use antiphon_types::{KeyId, Meter};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Conversations that are remembered; a new one replaces the least recently used.
const MAX_CONVERSATIONS: usize = 64;
/// Text of a conversation that is remembered, in bytes: about 4000 tokens. The oldest turns are forgotten first.
const MAX_REMEMBERED: usize = 16 * 1024;
/// How long a conversation is remembered after its last turn: as long as Home Assistant keeps its id.
const REMEMBERED: Duration = Duration::from_secs(300);
/// The longest id of a conversation, in bytes; a turn with a longer one stands alone.
const MAX_ID: usize = 128;

/// The conversations of all connections: Home Assistant opens a connection for each turn.
#[derive(Default)]
pub(super) struct Conversations(Mutex<HashMap<ConversationKey, Conversation>>);

/// Whose conversation it is, and its id.
type ConversationKey = (Option<KeyId>, IpAddr, String);

struct Conversation {
    last_used: Instant,
    /// What was asked and answered.
    turns: VecDeque<(String, String)>,
}

impl Conversations {
    /// The turns of a conversation, in order.
    fn turns(&self, key: &ConversationKey) -> Vec<(String, String)> {
        let mut conversations = self.0.lock().expect("no panic while locked");
        conversations.retain(|_, conversation| conversation.last_used.elapsed() < REMEMBERED);
        conversations.get(key).map(|known| known.turns.iter().cloned().collect()).unwrap_or_default()
    }

    fn add(&self, key: ConversationKey, turn: (String, String)) {
        let mut conversations = self.0.lock().expect("no panic while locked");
        let now = Instant::now();
        if !conversations.contains_key(&key) && conversations.len() >= MAX_CONVERSATIONS {
            let oldest = conversations.iter().min_by_key(|(_, known)| known.last_used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| conversations.remove(&oldest));
        }
        let known = conversations.entry(key).or_insert(Conversation { last_used: now, turns: VecDeque::new() });
        known.last_used = now;
        known.turns.push_back(turn);
        let n_bytes = |turns: &VecDeque<(String, String)>| turns.iter().map(|(a, b)| a.len() + b.len()).sum::<usize>();
        while n_bytes(&known.turns) > MAX_REMEMBERED {
            known.turns.pop_front();
        }
    }
}

impl Connection {
    /// Serves a `transcript`.
    pub(super) async fn handle(&mut self, event: Event) -> Result<(), ConnectionEnd> {
        let request = Request::begin(&self.speech, &self.spender, Endpoint::Handle)?;
        let handled = self.answered(&event, request.meter()).await;
        if let Some(outcome) = handled.as_ref().map_or_else(ConnectionEnd::outcome, |outcome| Some(outcome)) {
            request.end(outcome);
        }
        handled.map(drop)
    }

    /// Sends the answer, and gives the outcome of the request.
    async fn answered(&mut self, event: &Event, meter: Meter) -> Result<&'static str, ConnectionEnd> {
        let asked = needed_text(event, "text")?.trim().to_owned();
        let context = event.data.get("context").filter(|context| context.is_object()).cloned();
        let id = context.as_ref().and_then(|context| context["conversation_id"].as_str());
        let id = id.filter(|id| id.len() <= MAX_ID).map(str::to_owned);
        let key = id.map(|id| (self.spender.owner, self.spender.client.network(), id));
        if let Err(message) = self.take_response() {
            self.writer.send("not-handled", with_context(json!({"text": message}), context)).await?;
            return Ok("overloaded");
        }
        let setup = self.speech.sessions.setup();
        let mut messages = vec![Message::System(setup.instructions.clone())];
        messages.retain(|message| !matches!(message, Message::System(text) if text.is_empty()));
        for (asked, answered) in key.as_ref().map(|key| self.conversations.turns(key)).unwrap_or_default() {
            messages.push(Message::User(asked));
            messages.push(Message::Assistant { text: answered, tool_calls: Vec::new() });
        }
        let n_read = asked.len() + messages.iter().map(text_len).sum::<usize>();
        messages.push(Message::User(asked.clone()));
        let chat = ChatRequest { messages, tool_choice: ToolChoice::None, meter, ..ChatRequest::default() };
        let consumer = self.spender.consumer.clone();
        let mut charge = Charge { consumer, n_read, n_written: 0, counted: None };
        let mut stream = setup.engines.llm.stream(chat);
        let deadline = Instant::now() + LONGEST_REQUEST;
        self.writer.set_deadline(Some(deadline));
        let mut answer = String::new();
        let mut has_begun = false;
        let failed: Option<LlmError> = loop {
            let delta = tokio::select! {
                delta = stream.next() => delta,
                () = self.reader().closed() => return Err(ConnectionEnd::Gone),
                () = sleep_until(deadline) => return Err(ConnectionEnd::Late("The answer took longer than it may.")),
            };
            match delta {
                Some(Ok(LlmDelta::Text(text))) => {
                    charge.n_written += text.len();
                    if !std::mem::replace(&mut has_begun, true) {
                        self.writer.send("handled-start", with_context(Value::Null, context.clone())).await?;
                    }
                    self.writer.send("handled-chunk", json!({"text": text})).await?;
                    answer.push_str(&text);
                }
                // The chunks are gone; the whole answer, which `handled` carries, is without them.
                Some(Ok(LlmDelta::Withdrawn)) => answer.clear(),
                Some(Ok(LlmDelta::ToolCall { .. })) => {}
                Some(Ok(LlmDelta::Done { usage, .. })) => charge.counted = usage,
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        drop(charge);
        if let Some(error) = failed {
            tracing::warn!(error = &error as &dyn std::error::Error, "a Wyoming request could not be answered");
            let data = with_context(json!({"text": error.client_message()}), context);
            self.writer.send("not-handled", data).await?;
            return Ok("failed");
        }
        self.writer.send("handled", with_context(json!({"text": answer.trim()}), context)).await?;
        if has_begun {
            self.writer.send("handled-stop", Value::Null).await?;
        }
        if let Some(key) = key.filter(|_| !answer.is_empty()) {
            self.conversations.add(key, (asked, answer));
        }
        Ok("ok")
    }

    /// Takes one response of the limits; the error is a sentence for the client.
    fn take_response(&self) -> Result<(), String> {
        let consumer = &self.spender.consumer;
        let taken = consumer.check(Resource::Tokens).and_then(|()| consumer.take(Resource::Responses, 1));
        taken.map_err(|used_up| {
            let client = self.spender.client;
            let owner = self.spender.owner;
            let act = Act { client, owner, name: Some(consumer.name()), target: super::ROUTE };
            self.speech.sessions.access.security.limited(act, used_up);
            used_up.message()
        })?;
        consumer.count(Count::Responses, 1);
        Ok(())
    }
}

/// The tokens of one answer. They are charged when it is dropped, however the request ends.
struct Charge {
    consumer: Consumer,
    /// Text that the model reads, in bytes.
    n_read: usize,
    /// Text that it has written, in bytes.
    n_written: usize,
    /// What the model reports at its end; estimated without it.
    counted: Option<Usage>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Usage { input_tokens, output_tokens } = self.counted.unwrap_or_else(|| Usage {
            input_tokens: estimated_tokens(self.n_read),
            output_tokens: estimated_tokens(self.n_written),
        });
        self.consumer.spend(Resource::Tokens, input_tokens + output_tokens);
        self.consumer.count(Count::TokensIn, input_tokens);
        self.consumer.count(Count::TokensOut, output_tokens);
    }
}

fn text_len(message: &Message) -> usize {
    match message {
        Message::System(text) | Message::User(text) | Message::Assistant { text, .. } => text.len(),
        Message::UserParts(_) => message.user_text().map_or(0, |text| text.len()),
        Message::Tool { output, .. } => output.len(),
    }
}

/// The peer's context goes back to it.
fn with_context(mut data: Value, context: Option<Value>) -> Value {
    if let Some(context) = context {
        data["context"] = context;
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> ConversationKey {
        (None, IpAddr::from([127, 0, 0, 1]), id.into())
    }

    #[tokio::test(start_paused = true)]
    async fn conversations_are_bounded_and_forgotten() {
        let conversations = Conversations::default();
        for n in 0..MAX_CONVERSATIONS {
            conversations.add(key(&n.to_string()), ("q".into(), n.to_string()));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        conversations.add(key("new"), ("q".into(), "a".into()));
        assert_eq!(conversations.turns(&key("0")), [], "the least recently used is replaced");
        assert_eq!(conversations.turns(&key("1")), [("q".to_owned(), "1".to_owned())]);
        for n in 0..5 {
            conversations.add(key("1"), (n.to_string(), "x".repeat(MAX_REMEMBERED / 3)));
        }
        let turns = conversations.turns(&key("1"));
        assert_eq!(turns.iter().map(|(asked, _)| asked.as_str()).collect::<Vec<_>>(), ["3", "4"]);
        tokio::time::advance(REMEMBERED).await;
        assert_eq!(conversations.turns(&key("1")), []);
    }
}
