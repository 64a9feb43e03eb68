//! Items of the conversation.

use antiphon_types::ItemId;
use antiphon_types::chat::{Image, UserPart};
use antiphon_types::mcp::{CallError, RemoteTool};
use serde::{Deserialize, Serialize};

/// Bytes counted for a part or a tool beside its text: about its size in memory.
const PER_PART: usize = 64;

/// One item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Unique in the conversation.
    pub id: ItemId,
    /// Its state.
    pub status: ItemStatus,
    /// Its content.
    pub kind: ItemKind,
}

/// State of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemStatus {
    /// It is being generated.
    InProgress,
    /// It is complete.
    Completed,
    /// It was stopped before its end.
    Incomplete,
}

/// Content of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ItemKind {
    /// A message, spoken or written.
    Message {
        /// Its author.
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
        /// The request for consent that led to it.
        request: Option<ItemId>,
        /// The result, once it is there.
        outcome: Option<Result<String, CallError>>,
        /// The last item when the result came, if that was not the call itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<ItemId>,
    },
    /// A call that waits for the client's consent.
    RemoteRequest(RemoteCall),
    /// The client's consent, or that there is none.
    RemoteConsent {
        /// To which request.
        request: ItemId,
        /// Whether the call may run.
        approve: bool,
        /// The client's reason.
        reason: Option<String>,
    },
}

/// A call of a remote server's tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCall {
    /// The model's identifier of the call.
    pub call_id: String,
    /// The tool's name in requests to the model.
    pub exposed: String,
    /// Which server.
    pub label: String,
    /// The tool, as its server calls it.
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The operator of the conversation.
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
    /// Shown by the client.
    InputImage(Image),
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

    /// Whether it is a message of the user.
    pub(super) fn is_users_message(&self) -> bool {
        matches!(self.kind, ItemKind::Message { role: Role::User, .. })
    }

    /// The call this item is, if it is one.
    pub(super) fn call(&self) -> Option<&str> {
        match &self.kind {
            ItemKind::FunctionCall { call_id, .. } => Some(call_id),
            _ => None,
        }
    }

    /// Bytes of its text, plus a fixed amount for each part: empty parts take memory too.
    pub(super) fn n_bytes(&self) -> usize {
        match &self.kind {
            ItemKind::Message { content, .. } => content.iter().map(|part| PER_PART + part.n_bytes()).sum(),
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

    /// Index of its spoken part without a transcript.
    pub(super) fn untranscribed(&self) -> Option<u32> {
        let ItemKind::Message { role: Role::User, content } = &self.kind else { return None };
        let unknown = |part: &Content| matches!(part, Content::InputAudio { transcript: None });
        content.iter().position(unknown).map(|part| part as u32)
    }

    /// Sets the transcript of a spoken part.
    pub(super) fn transcribe(&mut self, part: u32, text: &str) {
        let ItemKind::Message { content, .. } = &mut self.kind else { return };
        if let Some(Content::InputAudio { transcript }) = content.get_mut(part as usize) {
            *transcript = Some(text.to_owned());
        }
    }

    /// Removes the transcript of the model's speech.
    pub(super) fn drop_transcript(&mut self) {
        let ItemKind::Message { content, .. } = &mut self.kind else { return };
        for part in content {
            if let Content::OutputAudio { transcript } = part {
                *transcript = None;
            }
        }
    }

    /// The text of all parts of a message.
    pub fn text(&self) -> String {
        let ItemKind::Message { content, .. } = &self.kind else { return String::new() };
        let parts = content.iter().filter_map(Content::text);
        parts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

impl Item {
    /// The images of a message.
    pub(super) fn images(&self) -> impl Iterator<Item = &Image> {
        let content = match &self.kind {
            ItemKind::Message { content, .. } => &content[..],
            _ => &[],
        };
        content.iter().filter_map(|part| match part {
            Content::InputImage(image) => Some(image),
            _ => None,
        })
    }

    /// The parts of a message with images, as the model reads them: texts in a row are one.
    pub(super) fn parts(&self) -> Vec<UserPart> {
        let ItemKind::Message { content, .. } = &self.kind else { return Vec::new() };
        let mut parts: Vec<UserPart> = Vec::new();
        for part in content {
            let text = part.text().unwrap_or_default();
            match (part, parts.last_mut()) {
                (Content::InputImage(image), _) => parts.push(UserPart::Image(image.clone())),
                _ if text.is_empty() => {}
                (_, Some(UserPart::Text(before))) => {
                    before.push(' ');
                    before.push_str(text);
                }
                _ => parts.push(UserPart::Text(text.to_owned())),
            }
        }
        parts
    }
}

impl Content {
    /// The text, where it is known.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::InputText(text) | Self::OutputText(text) => Some(text),
            Self::InputAudio { transcript } | Self::OutputAudio { transcript } => transcript.as_deref(),
            Self::InputImage(_) => None,
        }
    }

    fn n_bytes(&self) -> usize {
        match self {
            Self::InputImage(image) => image.url().len(),
            other => other.text().map_or(0, str::len),
        }
    }
}
