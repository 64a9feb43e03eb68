//! What the model reads of a conversation: its items as messages, the spoken ones as far as they were heard.
//!
//! A model's server refuses a call without its result, and a result that does not stand right behind its call. Items
//! come in any order (the person goes on speaking while a tool runs), so each result is put behind its call here.

use super::remote::are_arguments;
use super::{History, Item, ItemKind, ItemStatus, RemoteCall, Role};
use antiphon_types::chat::{Message, ToolCall};
use antiphon_types::mcp::CallError;
use std::borrow::Cow;
use std::collections::HashMap;

/// What the model reads in the place of a result that is not there yet: left out, the call would be made again.
const NO_RESULT_YET: &str = "The tool has not answered yet.";

/// The same of a call that waits for the client's consent, and of one that was refused it.
const NO_CONSENT_YET: &str = "The call waits for the user's approval.";
const DENIED: &str = "The user did not approve the call.";

/// Calls that stand in a row, which are one message to the model, and the words before them.
#[derive(Default)]
struct Said {
    text: String,
    calls: Vec<ToolCall>,
}

impl History {
    /// What the model reads: `instructions`, then `items` as they were heard.
    pub(super) fn messages_of<'a>(&self, instructions: &str, items: impl Iterator<Item = &'a Item>) -> Vec<Message> {
        let items: Vec<&Item> = items.collect();
        let results = items.iter().filter_map(|item| match &item.kind {
            ItemKind::FunctionOutput { call_id, output } => Some((call_id.as_str(), output.as_str().into())),
            ItemKind::RemoteCall { call, outcome: Some(outcome), .. } => {
                Some((call.call_id.as_str(), outcome_text(outcome)))
            }
            ItemKind::RemoteRequest(call) => Some((call.call_id.as_str(), answer_to(item, &items)?)),
            _ => None,
        });
        let mut reader = Reader { messages: Vec::new(), said: None, results: results.collect() };
        if !instructions.is_empty() {
            reader.messages.push(Message::System(instructions.to_owned()));
        }
        for item in items {
            self.read(item, &mut reader);
        }
        reader.flush();
        reader.messages
    }

    fn read(&self, item: &Item, reader: &mut Reader<'_>) {
        match &item.kind {
            ItemKind::Message { role, .. } => {
                let heard = self.spoken(&item.id).map(|spoken| spoken.history().to_owned());
                let text = heard.unwrap_or_else(|| item.text());
                if text.is_empty() {
                    return;
                }
                reader.flush();
                match role {
                    Role::System => reader.messages.push(Message::System(text)),
                    Role::User => reader.messages.push(Message::User(text)),
                    Role::Assistant => reader.said = Some(Said { text, calls: Vec::new() }),
                }
            }
            // A call whose arguments were cut off was never made.
            ItemKind::FunctionCall { .. } if item.status != ItemStatus::Completed => {}
            ItemKind::FunctionCall { call_id, name, arguments } => {
                let arguments = object_text(arguments);
                let call = ToolCall { call_id: call_id.clone(), name: name.clone(), arguments };
                reader.said.get_or_insert_default().calls.push(call);
            }
            ItemKind::RemoteCall { call, outcome: Some(_), .. } => reader.call(call),
            // Once approved, the call stands for itself.
            ItemKind::RemoteRequest(call) if item.status == ItemStatus::Completed && reader.answers(call) => {
                reader.call(call);
            }
            ItemKind::RemoteCall { .. }
            | ItemKind::RemoteRequest(_)
            | ItemKind::RemoteTools { .. }
            | ItemKind::RemoteConsent { .. } => {}
            // It stands behind its call already, or its call is not there.
            ItemKind::FunctionOutput { .. } => {}
        }
    }
}

/// Messages being put together.
struct Reader<'a> {
    messages: Vec<Message>,
    /// The words and the calls of one answer are one message to the model.
    said: Option<Said>,
    results: HashMap<&'a str, Cow<'a, str>>,
}

/// The arguments of a call as a model may read them: servers refuse a conversation with arguments that are no JSON object, such as
/// those of a call that a client has made up.
fn object_text(arguments: &str) -> String {
    if are_arguments(arguments) { arguments.to_owned() } else { "{}".to_owned() }
}

/// A remote call's outcome, as the model reads it.
fn outcome_text(outcome: &Result<String, CallError>) -> Cow<'_, str> {
    match outcome {
        Ok(output) => output.as_str().into(),
        Err(error) => format!("Error: {error}").into(),
    }
}

/// What stands for the result of a call that asked for consent; `None` once it was given.
fn answer_to(asked: &Item, items: &[&Item]) -> Option<Cow<'static, str>> {
    let consent = items.iter().find_map(|item| match &item.kind {
        ItemKind::RemoteConsent { request, approve, reason } if *request == asked.id => Some((*approve, reason)),
        _ => None,
    });
    match consent {
        Some((true, _)) => None,
        Some((false, Some(reason))) => Some(format!("{DENIED} {reason}").into()),
        Some((false, None)) => Some(DENIED.into()),
        None => Some(NO_CONSENT_YET.into()),
    }
}

impl Reader<'_> {
    fn call(&mut self, call: &RemoteCall) {
        let arguments = object_text(&call.arguments);
        let call = ToolCall { call_id: call.call_id.clone(), name: call.exposed.clone(), arguments };
        self.said.get_or_insert_default().calls.push(call);
    }

    /// Whether something stands for the result of a call that asked for consent.
    fn answers(&self, call: &RemoteCall) -> bool {
        self.results.get(call.call_id.as_str()).is_some_and(|text| text.starts_with(DENIED) || text == NO_CONSENT_YET)
    }

    /// Ends the assistant's message under way, and puts the results behind it.
    fn flush(&mut self) {
        let Some(Said { text, calls }) = self.said.take() else { return };
        let results = calls.iter().map(|call| Message::Tool {
            call_id: call.call_id.clone(),
            output: self.results.get(call.call_id.as_str()).map_or(NO_RESULT_YET.into(), |result| result.to_string()),
        });
        let results: Vec<_> = results.collect();
        self.messages.push(Message::Assistant { text, tool_calls: calls });
        self.messages.extend(results);
    }
}
