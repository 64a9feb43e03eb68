//! From the client's events of the Realtime protocol to the dialog's commands and settings. The way back is `project`.

use super::remote;
use crate::audio::NoiseReduction;
use crate::audio::codec::Format;
use crate::dialog::{
    Command, Content, InputEntry, Item, ItemKind, ItemStatus, Memory, Modality, Place, ResponseRequest, Role, Settings,
    Truncation, TurnDetection,
};
use crate::llm::{Tool, ToolChoice};
use crate::turn::Eagerness;
use crate::wire::{self, ClientEvent, SessionKind};
use serde_json::json;
use std::time::Duration;

/// The command of an event that is neither audio nor a session update nor news of the client's playback.
pub(super) fn command(event: ClientEvent) -> Option<Command> {
    Some(match event {
        ClientEvent::InputAudioClear => Command::ClearInput,
        ClientEvent::OutputAudioClear => Command::ClearOutput,
        ClientEvent::ItemCreate { position, item: new } => {
            let place = match position {
                wire::Position::End => Place::Last,
                wire::Position::Root => Place::First,
                wire::Position::After(id) => Place::After(id),
            };
            Command::CreateItem { item: item(*new), place }
        }
        ClientEvent::ItemDelete { item_id } => Command::DeleteItem(item_id),
        ClientEvent::ItemRetrieve { item_id } => Command::RetrieveItem(item_id),
        ClientEvent::ItemTruncate { item_id, content_index, audio_end_ms } => {
            Command::Truncate { item: item_id, content_index, audio_end_ms: u64::from(audio_end_ms) }
        }
        ClientEvent::ResponseCreate(params) => Command::Respond(Box::new(request(*params))),
        ClientEvent::ResponseCancel { response_id } => Command::Cancel(response_id),
        ClientEvent::SessionUpdate(_)
        | ClientEvent::InputAudioAppend { .. }
        | ClientEvent::InputAudioCommit
        | ClientEvent::OutputAudioPlayed(_)
        | ClientEvent::ClockPing(_) => return None,
    })
}

/// The dialog's settings of a session object; `history_tokens` is the configured budget.
pub(super) fn settings(session: &wire::Session, history_tokens: u32) -> Settings {
    let input = &session.audio.input;
    Settings {
        instructions: session.instructions.clone(),
        modality: modality(session.output_modalities),
        voice: session.audio.output.voice.clone(),
        speed: session.audio.output.speed as f32,
        output_format: format(session.audio.output.format),
        max_output_tokens: max_tokens(session.max_output_tokens),
        tools: session.tools.iter().filter_map(tool).collect(),
        tool_choice: tool_choice(&session.tool_choice),
        servers: remote::declared(&session.tools),
        server_choice: remote::choice(&session.tool_choice),
        turn_detection: input.turn_detection.as_ref().map(|detection| TurnDetection {
            // A transcription session says nothing.
            create_response: detection.create_response() && session.kind == SessionKind::Realtime,
            interrupt_response: detection.interrupt_response(),
            idle_timeout: match detection {
                wire::TurnDetection::ServerVad(vad) => vad.idle_timeout_ms.map(|ms| Duration::from_millis(ms.into())),
                wire::TurnDetection::SemanticVad(_) => None,
            },
        }),
        transcripts: input.transcription.is_some(),
        // In a conversation the protocol tells of an item's words once there is the item.
        live_transcripts: session.kind == SessionKind::Transcription,
        memory: memory(session.truncation, history_tokens),
    }
}

fn memory(truncation: wire::Truncation, history_tokens: u32) -> Memory {
    let (truncation, conversation) = match truncation {
        wire::Truncation::Auto => (Truncation::Oldest { keep: 1.0 }, None),
        wire::Truncation::Disabled => (Truncation::Disabled, None),
        wire::Truncation::RetentionRatio { ratio, post_instructions } => {
            (Truncation::Oldest { keep: ratio }, post_instructions.map(u64::from))
        }
    };
    Memory { budget: u64::from(history_tokens), conversation, truncation }
}

/// The codec's name of a wire format.
pub(super) fn format(format: wire::AudioFormat) -> Format {
    match format {
        wire::AudioFormat::Pcm => Format::Pcm16,
        wire::AudioFormat::Pcmu => Format::Ulaw,
        wire::AudioFormat::Pcma => Format::Alaw,
    }
}

/// The protocol's `auto` is its `medium`.
pub(super) fn eagerness(eagerness: wire::Eagerness) -> Eagerness {
    match eagerness {
        wire::Eagerness::Low => Eagerness::Low,
        wire::Eagerness::Medium | wire::Eagerness::Auto => Eagerness::Medium,
        wire::Eagerness::High => Eagerness::High,
    }
}

/// Which noise reduction a session asks for.
pub(super) fn noise_reduction(asked: &wire::NoiseReduction) -> Option<NoiseReduction> {
    match asked.kind.as_deref() {
        Some("near_field") => Some(NoiseReduction::Near),
        Some("far_field") => Some(NoiseReduction::Far),
        _ => None,
    }
}

fn request(params: wire::ResponseParams) -> ResponseRequest {
    let entry = |entry| match entry {
        wire::InputItem::Item(new) => InputEntry::Item(item(new)),
        wire::InputItem::Reference(id) => InputEntry::Reference(id),
    };
    ResponseRequest {
        instructions: params.instructions,
        modality: params.output_modalities.map(modality),
        voice: params.voice,
        speed: params.speed.map(|speed| speed as f32),
        output_format: params.format.map(format),
        max_output_tokens: params.max_output_tokens.map(max_tokens),
        servers: params.tools.as_ref().map(|tools| remote::uses(tools)),
        server_choice: params.tool_choice.as_ref().and_then(remote::choice),
        tools: params.tools.map(|tools| tools.iter().filter_map(tool).collect()),
        tool_choice: params.tool_choice.as_ref().map(tool_choice),
        out_of_band: params.out_of_band,
        spoken: Vec::new(),
        input: params.input.map(|entries| entries.into_iter().map(entry).collect()),
        metadata: params.metadata,
    }
}

fn item(item: wire::Item) -> Item {
    let status = match item.status {
        // An item a client hands over does not grow any more.
        wire::ItemStatus::InProgress | wire::ItemStatus::Completed | wire::ItemStatus::Unsaid => ItemStatus::Completed,
        wire::ItemStatus::Incomplete => ItemStatus::Incomplete,
    };
    let kind = match item.body {
        wire::ItemBody::Message { role, content } => {
            let role = match role {
                wire::Role::System => Role::System,
                wire::Role::User => Role::User,
                wire::Role::Assistant => Role::Assistant,
            };
            ItemKind::Message { role, content: content.into_iter().map(part).collect() }
        }
        wire::ItemBody::FunctionCall { call_id, name, arguments } => {
            ItemKind::FunctionCall { call_id, name, arguments }
        }
        wire::ItemBody::FunctionCallOutput { call_id, output } => ItemKind::FunctionOutput { call_id, output },
        wire::ItemBody::McpApprovalResponse(wire::McpApproval { approval_request_id, approve, reason }) => {
            ItemKind::RemoteConsent { request: approval_request_id, approve, reason }
        }
        wire::ItemBody::McpListTools { .. }
        | wire::ItemBody::McpCall { .. }
        | wire::ItemBody::McpApprovalRequest { .. } => unreachable!("a client's item is none of these"),
    };
    Item { id: item.id.unwrap_or_else(|| "".into()), status, kind }
}

fn part(content: wire::Content) -> Content {
    match content {
        wire::Content::InputText { text } => Content::InputText(text),
        wire::Content::InputAudio { transcript, .. } => Content::InputAudio { transcript },
        wire::Content::OutputText { text } => Content::OutputText(text),
        wire::Content::OutputAudio { transcript } => Content::OutputAudio { transcript },
    }
}

fn modality(modality: wire::Modality) -> Modality {
    match modality {
        wire::Modality::Audio => Modality::Audio,
        wire::Modality::Text => Modality::Text,
    }
}

fn max_tokens(max: wire::MaxTokens) -> Option<u32> {
    match max {
        wire::MaxTokens::Limit(n) => Some(n),
        wire::MaxTokens::Inf => None,
    }
}

fn tool(tool: &wire::Tool) -> Option<Tool> {
    let wire::Tool::Function { name, description, parameters } = tool else { return None };
    Some(Tool {
        name: name.clone(),
        description: description.clone().unwrap_or_default(),
        parameters: parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}).into()),
    })
}

fn tool_choice(choice: &wire::ToolChoice) -> ToolChoice {
    match choice {
        wire::ToolChoice::Auto => ToolChoice::Auto,
        wire::ToolChoice::None => ToolChoice::None,
        wire::ToolChoice::Required => ToolChoice::Required,
        wire::ToolChoice::Mcp { .. } => ToolChoice::Required,
        wire::ToolChoice::Function(name) => ToolChoice::Function(name.clone()),
    }
}
