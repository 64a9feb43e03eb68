//! How much of the conversation the model reads: the latest turns that fit a budget of tokens.
//!
//! Older turns are omitted whole, so that no call is separated from its result. An omitted turn stays omitted: the beginning
//! of the request is the same from turn to turn, which keeps the model server's prefix cache valid. The items themselves
//! stay in the conversation. A last turn that alone is too large is cut: see `cutting`. Token counts are estimates: see `tokens`.

use super::{History, Item, ItemKind, RemoteCall, Role};
use antiphon_types::chat::{Image, Tool, estimated_tokens};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The limits of a request, and what happens when the conversation exceeds them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Tokens of instructions, tools and conversation together.
    pub budget: u64,
    /// Tokens of the conversation alone, where the client has set them.
    pub conversation: Option<u64>,
    /// How a longer conversation is truncated.
    pub truncation: Truncation,
    /// Behind the last reply that was cut off, the model reads what of it was not heard. Absent in replay logs that are older.
    #[serde(default, skip_serializing_if = "is_off")]
    pub notes_interruptions: bool,
}

fn is_off(switch: &bool) -> bool {
    !switch
}

/// How a conversation that is too long is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Truncation {
    /// The response fails.
    Disabled,
    /// The oldest turns are omitted until at most this share of the limit is used, 0 to 1.
    Oldest {
        /// The share that is kept.
        keep: f64,
    },
}

/// The conversation does not fit and may not be truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The conversation has about {tokens} tokens, more than the {room} there is room for, and truncation is disabled."
)]
pub(super) struct TooLong {
    pub(super) tokens: u64,
    pub(super) room: u64,
}

/// The estimate for a text.
pub(super) fn tokens(text: &str) -> u64 {
    estimated_tokens(text.len())
}

/// Tokens of a message beside its text: role and separators.
pub(super) const PER_MESSAGE: u64 = 4;

/// Tokens of the tools.
pub(super) fn tool_tokens(tools: &[Tool]) -> u64 {
    let of =
        |tool: &Tool| PER_MESSAGE + tokens(&tool.name) + tokens(&tool.description) + tokens(tool.parameters.as_str());
    tools.iter().map(of).sum()
}

impl History {
    /// Omits the oldest turns that do not fit beside `fixed` tokens of instructions and tools. The last turn stays even if
    /// it alone does not fit.
    pub(super) fn forget(&mut self, fixed: u64, memory: &Memory) -> Result<(), TooLong> {
        let room = memory.budget.saturating_sub(fixed);
        let room = memory.conversation.map_or(room, |limit| room.min(limit));
        let mut total: u64 = self.recalled().map(|item| self.cost(item)).sum();
        if total <= room {
            return Ok(());
        }
        let Truncation::Oldest { keep } = memory.truncation else { return Err(TooLong { tokens: total, room }) };
        let goal = (room as f64 * keep) as u64;
        let mut from = self.told_at();
        let mut turns = turns(self.items(), self.told_at());
        turns.pop();
        for turn in turns {
            if total <= goal {
                break;
            }
            from = turn.end;
            let dropped = self.items()[turn].iter().filter(|item| !is_system(item));
            total -= dropped.map(|item| self.cost(item)).sum::<u64>();
        }
        self.told_from = self.items().get(from).map(|item| item.id.clone());
        Ok(())
    }

    /// The items the model reads: system messages, and the turns that were not omitted.
    pub(super) fn recalled(&self) -> impl Iterator<Item = &Item> {
        let from = self.told_at();
        let recalled = move |(at, item): &(usize, &Item)| *at >= from || is_system(item);
        self.items().iter().enumerate().filter(recalled).map(|(_, item)| item)
    }

    fn told_at(&self) -> usize {
        let at = self.told_from.as_ref().and_then(|id| self.items().iter().position(|item| item.id == *id));
        at.unwrap_or(0)
    }

    fn cost(&self, item: &Item) -> u64 {
        PER_MESSAGE
            + match &item.kind {
                ItemKind::Message { .. } => match self.spoken(&item.id) {
                    Some(spoken) => tokens(spoken.history()),
                    None => tokens(&item.text()) + item.images().map(Image::estimated_tokens).sum::<u64>(),
                },
                ItemKind::FunctionCall { call_id, name, arguments } => {
                    tokens(call_id) + tokens(name) + tokens(arguments)
                }
                ItemKind::FunctionOutput { call_id, output } => tokens(call_id) + tokens(output),
                ItemKind::RemoteCall { call, outcome, .. } => {
                    let result = outcome.iter().flatten().map(|output| tokens(output)).sum::<u64>();
                    called(call) + result
                }
                ItemKind::RemoteRequest(call) => called(call),
                // The request has the tools elsewhere, and of a consent only the call's result.
                ItemKind::RemoteTools { .. } | ItemKind::RemoteConsent { .. } => 0,
            }
    }
}

/// A remote call without its result.
fn called(call: &RemoteCall) -> u64 {
    tokens(&call.call_id) + tokens(&call.exposed) + tokens(&call.arguments)
}

fn is_system(item: &Item) -> bool {
    matches!(item.kind, ItemKind::Message { role: Role::System, .. })
}

/// The turns from `from` on: each begins with the user's first message after something else than the user's.
fn turns(items: &[Item], from: usize) -> Vec<Range<usize>> {
    let begins =
        |at: &usize| items[*at].is_users_message() && !items[from..*at].last().is_some_and(Item::is_users_message);
    let mut starts: Vec<usize> = (from + 1..items.len()).filter(begins).collect();
    if from < items.len() {
        starts.insert(0, from);
    }
    let ends = starts.iter().skip(1).copied().chain([items.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
