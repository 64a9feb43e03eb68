//! What the model reads of a conversation: its items as messages, the spoken ones as far as they were heard.
//!
//! A model's server refuses a call without its result, and a result that does not stand right behind its call. Items
//! come in any order (the person goes on speaking while a tool runs), so each result is put behind its call here. A late
//! result, one that came when the model had answered something else since the call, stands at the end of what the model
//! had read: behind its call it would be passed over. The call then stands twice, first without its result.

use super::remote::are_arguments;
use super::{History, Item, ItemKind, ItemStatus, RemoteCall, Role};
use antiphon_types::ItemId;
use antiphon_types::chat::{Message, ToolCall};
use antiphon_types::mcp::CallError;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::iter;

/// What the model reads in the place of a result that is not there yet: left out, the call would be made again.
const NO_RESULT_YET: &str = "The tool has not answered yet.";

/// The same of a call that waits for the client's consent, and of one that was refused it.
const NO_CONSENT_YET: &str = "The call waits for the user's approval.";
const DENIED: &str = "The user did not approve the call.";

/// Characters of what was not heard in a note: two sentences say where the reply was going.
const MAX_NOTED: usize = 300;

/// Calls that stand in a row, which are one message to the model, and the words beside them.
#[derive(Default)]
struct AssistantMessage {
    text: String,
    calls: Vec<ToolCall>,
    /// Whether the results of all calls are items that follow: words before those belong to the same message.
    is_answered: bool,
}

impl History {
    /// What the model reads: `instructions`, then `items` as they were heard; with a note about the last one that was cut
    /// off, if `notes_interruptions`.
    pub(super) fn messages_of<'a>(
        &'a self,
        instructions: &str,
        items: impl Iterator<Item = &'a Item>,
        notes_interruptions: bool,
    ) -> Vec<Message> {
        let items: Vec<&Item> = items.collect();
        let noted = if notes_interruptions { self.last_cut(&items) } else { None };
        let late = self.late_results(&items);
        let is_late = |id: &str| late.iter().any(|result| result.call.call_id == id);
        let results = items.iter().filter_map(|item| match &item.kind {
            ItemKind::FunctionOutput { call_id, output } => Some((call_id.as_str(), output.as_str().into())),
            ItemKind::RemoteCall { call, outcome: Some(outcome), .. } => {
                Some((call.call_id.as_str(), outcome_text(outcome)))
            }
            ItemKind::RemoteRequest(call) => Some((call.call_id.as_str(), answer_to(item, &items)?)),
            _ => None,
        });
        let results = results.filter(|(id, _)| !is_late(id)).map(|(id, text)| (id.into(), text)).collect();
        let mut reader = Reader { messages: Vec::new(), said: None, results };
        if !instructions.is_empty() {
            reader.messages.push(Message::System(instructions.to_owned()));
        }
        for (at, item) in items.iter().enumerate() {
            let here: Vec<_> = late.iter().filter(|result| result.at == at).collect();
            if here.is_empty() || !matches!(item.kind, ItemKind::FunctionOutput { .. }) {
                self.read(item, &mut reader);
            }
            if let Some((id, not_heard)) = noted
                && *id == item.id
            {
                reader.push(Message::System(interruption_note(not_heard)));
            }
            reader.late(&here);
        }
        reader.flush();
        reader.messages
    }

    /// The last reply if it was cut off, and what of it was not heard.
    fn last_cut<'a>(&'a self, items: &[&'a Item]) -> Option<(&'a ItemId, &'a str)> {
        let spoken = items.iter().rev().find_map(|item| Some((&item.id, self.spoken(&item.id)?)));
        let (id, spoken) = spoken.filter(|(_, spoken)| spoken.is_cut())?;
        let not_heard = spoken.not_heard();
        (!not_heard.is_empty()).then_some((id, not_heard))
    }

    /// The results among `items` that the model reads later than their calls, in order.
    fn late_results<'a>(&'a self, items: &[&'a Item]) -> Vec<LateResult<'a>> {
        let calls = items.iter().filter_map(|item| match &item.kind {
            ItemKind::RemoteCall { call, .. } | ItemKind::RemoteRequest(call) => Some(call.call_id.as_str()),
            _ => item.call(),
        });
        let mut ids: HashSet<Cow<'_, str>> = calls.map(Cow::Borrowed).collect();
        let mut late: Vec<LateResult<'_>> = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let result = match &item.kind {
                ItemKind::FunctionOutput { call_id, output } => {
                    self.late_output(items, at, call_id).map(|call| (at, call, output.as_str().into()))
                }
                ItemKind::RemoteCall { call, outcome: Some(outcome), behind: Some(behind), .. } => {
                    let behind = items.iter().position(|item| item.id == *behind);
                    let behind = behind.filter(|behind| self.has_words_between(items, at, *behind));
                    behind.map(|behind| (behind, CallRef::of(call), outcome_text(outcome)))
                }
                _ => None,
            };
            let Some((at, call, output)) = result else { continue };
            let other_id = other_id(call.call_id, &ids);
            ids.insert(Cow::Owned(other_id.clone()));
            late.push(LateResult { at, call, other_id, output });
        }
        late
    }

    /// The call of the output at `at`, if the output is late or the call is not among the items.
    fn late_output<'a>(&'a self, items: &[&'a Item], at: usize, call_id: &str) -> Option<CallRef<'a>> {
        let calls = |item: &&Item| item.status == ItemStatus::Completed && item.call() == Some(call_id);
        let Some(called) = items.iter().position(calls) else {
            // The turn of the call was omitted.
            return self.items().iter().find(calls).and_then(CallRef::of_function);
        };
        // What the assistant said beside the call is no answer to something else.
        let ends = |item: &&Item| match &item.kind {
            ItemKind::Message { role: Role::Assistant, .. } => false,
            ItemKind::Message { .. } | ItemKind::FunctionOutput { .. } => true,
            _ => false,
        };
        let end = items.iter().take(at).skip(called).position(ends)? + called;
        self.has_words_between(items, end, at).then(|| CallRef::of_function(items[called])).flatten()
    }

    /// Whether the assistant was heard between two places, the later one included.
    fn has_words_between(&self, items: &[&Item], from: usize, to: usize) -> bool {
        let speaks = |item: &&Item| {
            matches!(&item.kind, ItemKind::Message { role: Role::Assistant, .. }) && !self.text_of(item).is_empty()
        };
        items.iter().take(to + 1).skip(from + 1).any(speaks)
    }

    /// A message's text, as far as it was heard.
    fn text_of(&self, item: &Item) -> String {
        let heard = self.spoken(&item.id).map(|spoken| spoken.history().to_owned());
        heard.unwrap_or_else(|| item.text())
    }

    fn read(&self, item: &Item, reader: &mut Reader<'_>) {
        match &item.kind {
            ItemKind::Message { role, .. } => {
                let text = self.text_of(item);
                let has_images = item.images().next().is_some();
                if text.is_empty() && !has_images {
                    return;
                }
                match role {
                    Role::User if has_images => reader.push(Message::UserParts(item.parts())),
                    Role::System => reader.push(Message::System(text)),
                    Role::User => reader.push(Message::User(text)),
                    Role::Assistant => reader.say(text),
                }
            }
            // A call whose arguments were cut off was never made.
            ItemKind::FunctionCall { .. } if item.status != ItemStatus::Completed => {}
            ItemKind::FunctionCall { call_id, name, arguments } => {
                let call = CallRef { call_id, name, arguments };
                let is_answered = reader.results.contains_key(call_id.as_str());
                reader.call(call.under(call_id), is_answered);
            }
            ItemKind::RemoteCall { call, request, outcome, .. } if request.is_some() || outcome.is_some() => {
                reader.call(CallRef::of(call).under(&call.call_id), false);
            }
            // Once approved, the call stands for itself.
            ItemKind::RemoteRequest(call) if item.status == ItemStatus::Completed && reader.answers(call) => {
                reader.call(CallRef::of(call).under(&call.call_id), false);
            }
            ItemKind::RemoteCall { .. }
            | ItemKind::RemoteRequest(_)
            | ItemKind::RemoteTools { .. }
            | ItemKind::RemoteConsent { .. } => {}
            // It stands behind its call already, or its call is not there.
            ItemKind::FunctionOutput { .. } => reader.flush(),
        }
    }
}

/// What the model reads behind a reply that was cut off.
fn interruption_note(not_heard: &str) -> String {
    let end = not_heard.char_indices().nth(MAX_NOTED).map_or(not_heard.len(), |(at, _)| at);
    let dots = if end < not_heard.len() { " ..." } else { "" };
    format!("Your reply was cut off here. The user has not heard: \"{}{dots}\"", not_heard[..end].trim_end())
}

/// A result that the model reads later than its call.
struct LateResult<'a> {
    /// Behind which item.
    at: usize,
    call: CallRef<'a>,
    /// The identifier under which the call stands the second time.
    other_id: String,
    output: Cow<'a, str>,
}

/// A call of a function, or of a server's tool.
struct CallRef<'a> {
    call_id: &'a str,
    name: &'a str,
    arguments: &'a str,
}

impl<'a> CallRef<'a> {
    fn of(call: &'a RemoteCall) -> Self {
        Self { call_id: &call.call_id, name: &call.exposed, arguments: &call.arguments }
    }

    fn of_function(item: &'a Item) -> Option<Self> {
        let ItemKind::FunctionCall { call_id, name, arguments } = &item.kind else { return None };
        Some(Self { call_id, name, arguments })
    }

    /// The call as the model reads it, under this identifier.
    fn under(&self, call_id: &str) -> ToolCall {
        ToolCall { call_id: call_id.to_owned(), name: self.name.to_owned(), arguments: object_text(self.arguments) }
    }
}

/// An identifier that is not among `ids`, of the length and alphabet of `id`, which some servers prescribe.
fn other_id(id: &str, ids: &HashSet<Cow<'_, str>>) -> String {
    let is_free = |candidate: &String| !ids.contains(candidate.as_str());
    let own = id.to_owned();
    let stem: String = id.chars().take(id.chars().count().saturating_sub(1)).collect();
    let variants = ('A'..='Z').chain('0'..='9').map(|last| format!("{stem}{last}"));
    let numbered = (0u32..).map(|n| format!("{id}{n}"));
    iter::once(own).chain(variants).chain(numbered).find(is_free).expect("there are more numbers than identifiers")
}

/// Messages being put together.
struct Reader<'a> {
    messages: Vec<Message>,
    /// The words and the calls of one answer are one message to the model.
    said: Option<AssistantMessage>,
    results: HashMap<Cow<'a, str>, Cow<'a, str>>,
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

impl<'a> Reader<'a> {
    fn push(&mut self, message: Message) {
        self.flush();
        self.messages.push(message);
    }

    /// Words of the assistant. Those between calls and their results belong to the message of the calls.
    fn say(&mut self, text: String) {
        if let Some(said) = self.said.as_mut().filter(|said| said.is_answered) {
            let text_before = std::mem::take(&mut said.text);
            said.text = format!("{} {}", text_before.trim_end(), text.trim_start()).trim().to_owned();
            return;
        }
        self.flush();
        self.said = Some(AssistantMessage { text, ..AssistantMessage::default() });
    }

    fn call(&mut self, call: ToolCall, is_answered: bool) {
        let said = self.said.get_or_insert_default();
        said.is_answered = is_answered && (said.is_answered || said.calls.is_empty());
        said.calls.push(call);
    }

    /// Calls that stand here once more, and their results.
    fn late(&mut self, results: &[&LateResult<'a>]) {
        for LateResult { call, other_id, output, .. } in results {
            self.results.insert(other_id.clone().into(), output.clone());
            self.call(call.under(other_id), false);
        }
    }

    /// Whether something stands for the result of a call that asked for consent.
    fn answers(&self, call: &RemoteCall) -> bool {
        self.results.get(call.call_id.as_str()).is_some_and(|text| text.starts_with(DENIED) || text == NO_CONSENT_YET)
    }

    /// Ends the assistant's message under way, and puts the results behind it.
    fn flush(&mut self) {
        let Some(AssistantMessage { text, calls, .. }) = self.said.take() else { return };
        let results = calls.iter().map(|call| Message::Tool {
            call_id: call.call_id.clone(),
            output: self.results.get(call.call_id.as_str()).map_or(NO_RESULT_YET.into(), |result| result.to_string()),
        });
        let results: Vec<_> = results.collect();
        self.messages.push(Message::Assistant { text, tool_calls: calls });
        self.messages.extend(results);
    }
}
