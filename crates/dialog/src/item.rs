//! Items of the conversation.

use antiphon_types::ItemId;
use antiphon_types::mcp::{CallError, RemoteTool};
use serde::{Deserialize, Serialize};

/// What a part or a tool takes beside its text: about its own size in memory.
const PER_PART: usize = 64;

/// One item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Unique in the conversation.
    pub id: ItemId,
    /// How far it is.
    pub status: ItemStatus,
    /// What it is.
    pub kind: ItemKind,
}

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemStatus {
    /// Being made.
    InProgress,
    /// Whole.
    Completed,
    /// Stopped before its end.
    Incomplete,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ItemKind {
    /// Something said or written.
    Message {
        /// By whom.
        role: Role,
        /// Its parts, in order.
        content: Vec<Content>,
    },
    /// A call the model made.
    FunctionCall {
        /// The call's identifier.
        call_id: String,
        /// The function.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// A tool's result.
    FunctionOutput {
        /// The call it answers.
        call_id: String,
        /// The result, any text.
        output: String,
    },
    /// The tools of a remote server, once they are known.
    RemoteTools {
        /// Which server.
        label: String,
        /// Those the model may call.
        tools: Vec<RemoteTool>,
    },
    /// A call of a remote server's tool.
    RemoteCall {
        /// The call.
        call: RemoteCall,
        /// The request for consent it comes of.
        request: Option<ItemId>,
        /// The result, once it is there.
        outcome: Option<Result<String, CallError>>,
    },
    /// A call that waits for the client's consent.
    RemoteRequest(RemoteCall),
    /// The client's consent, or that there is none.
    RemoteConsent {
        /// To which request.
        request: ItemId,
        /// Yes or no.
        approve: bool,
        /// Why.
        reason: Option<String>,
    },
}

/// A call of a remote server's tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCall {
    /// The model's identifier of the call.
    pub call_id: String,
    /// The name the model knows the tool by.
    pub exposed: String,
    /// Which server.
    pub label: String,
    /// The tool, as its server calls it.
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Whoever runs the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// Written by the client.
    InputText(String),
    /// Spoken by the person; the transcript once there is one.
    InputAudio {
        /// The words.
        transcript: Option<String>,
    },
    /// Written by the model.
    OutputText(String),
    /// Spoken by the model.
    OutputAudio {
        /// The words; `None` once the item was truncated by the client.
        transcript: Option<String>,
    },
}

impl Item {
    /// A spoken message of the person, not transcribed yet.
    pub(super) fn spoken_by_user(id: ItemId) -> Self {
        let content = vec![Content::InputAudio { transcript: None }];
        Self { id, status: ItemStatus::Completed, kind: ItemKind::Message { role: Role::User, content } }
    }

    /// The call this item is, if it is one.
    pub(super) fn call(&self) -> Option<&str> {
        match &self.kind {
            ItemKind::FunctionCall { call_id, .. } => Some(call_id),
            _ => None,
        }
    }

    /// Bytes of its text, and what holds them: parts without a word take room too.
    pub(super) fn n_bytes(&self) -> usize {
        match &self.kind {
            ItemKind::Message { content, .. } => {
                content.iter().map(|part| PER_PART + part.text().map_or(0, str::len)).sum()
            }
            ItemKind::FunctionCall { call_id, name, arguments } => call_id.len() + name.len() + arguments.len(),
            ItemKind::FunctionOutput { call_id, output } => call_id.len() + output.len(),
            ItemKind::RemoteTools { tools, .. } => tools.iter().map(|tool| PER_PART + tool.n_bytes()).sum(),
            ItemKind::RemoteCall { call, outcome, .. } => {
                call.arguments.len() + outcome.iter().flatten().map(String::len).sum::<usize>()
            }
            ItemKind::RemoteRequest(call) => call.arguments.len(),
            ItemKind::RemoteConsent { reason, .. } => reason.as_ref().map_or(0, String::len),
        }
    }

    /// Its spoken part whose words are not known yet.
    pub(super) fn untranscribed(&self) -> Option<u32> {
        let ItemKind::Message { role: Role::User, content } = &self.kind else { return None };
        let unknown = |part: &Content| matches!(part, Content::InputAudio { transcript: None });
        content.iter().position(unknown).map(|part| part as u32)
    }

    /// Gives a spoken part its words.
    pub(super) fn transcribe(&mut self, part: u32, text: &str) {
        let ItemKind::Message { content, .. } = &mut self.kind else { return };
        if let Some(Content::InputAudio { transcript }) = content.get_mut(part as usize) {
            *transcript = Some(text.to_owned());
        }
    }

    /// Drops the transcript of what the model spoke.
    pub(super) fn drop_transcript(&mut self) {
        let ItemKind::Message { content, .. } = &mut self.kind else { return };
        for part in content {
            if let Content::OutputAudio { transcript } = part {
                *transcript = None;
            }
        }
    }

    /// All the words of a message's parts.
    pub fn text(&self) -> String {
        let ItemKind::Message { content, .. } = &self.kind else { return String::new() };
        let parts = content.iter().filter_map(Content::text);
        parts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

impl Content {
    /// The words, as far as they are known.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::InputText(text) | Self::OutputText(text) => Some(text),
            Self::InputAudio { transcript } | Self::OutputAudio { transcript } => transcript.as_deref(),
        }
    }
}
