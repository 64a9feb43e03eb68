//! From the client's events of the Realtime protocol to the dialog's commands and settings. The way back is `project`.

use crate::audio::codec::Format;
use crate::dialog::{
    Command, Content, InputEntry, Item, ItemKind, ItemStatus, Modality, Place, ResponseRequest, Role, Settings,
    TurnDetection,
};
use crate::llm::{Tool, ToolChoice};
use crate::wire::{self, ClientEvent, SessionKind};
use serde_json::json;

/// The command of an event that is neither audio nor a session update.
pub(super) fn command(event: ClientEvent) -> Option<Command> {
    Some(match event {
        ClientEvent::InputAudioClear => Command::ClearInput,
        ClientEvent::OutputAudioClear => Command::ClearOutput,
        ClientEvent::OutputAudioPlayed { item_id, audio_end_ms } => {
            Command::Played { item: item_id, audio_end_ms: u64::from(audio_end_ms) }
        }
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
        ClientEvent::SessionUpdate(_) | ClientEvent::InputAudioAppend { .. } | ClientEvent::InputAudioCommit => {
            return None;
        }
    })
}

/// The dialog's settings of a session object.
pub(super) fn settings(session: &wire::Session) -> Settings {
    let input = &session.audio.input;
    Settings {
        instructions: session.instructions.clone(),
        modality: modality(session.output_modalities),
        voice: session.audio.output.voice.clone(),
        speed: session.audio.output.speed as f32,
        output_format: format(session.audio.output.format),
        max_output_tokens: max_tokens(session.max_output_tokens),
        tools: session.tools.iter().map(tool).collect(),
        tool_choice: tool_choice(&session.tool_choice),
        turn_detection: input.turn_detection.as_ref().map(|detection| TurnDetection {
            // A transcription session says nothing.
            create_response: detection.create_response() && session.kind == SessionKind::Realtime,
            interrupt_response: detection.interrupt_response(),
        }),
        transcripts: input.transcription.is_some(),
    }
}

/// The codec's name of a wire format.
pub(super) fn format(format: wire::AudioFormat) -> Format {
    match format {
        wire::AudioFormat::Pcm => Format::Pcm16,
        wire::AudioFormat::Pcmu => Format::Ulaw,
        wire::AudioFormat::Pcma => Format::Alaw,
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
        tools: params.tools.map(|tools| tools.iter().map(tool).collect()),
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
        wire::ItemStatus::InProgress | wire::ItemStatus::Completed => ItemStatus::Completed,
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

fn tool(tool: &wire::Tool) -> Tool {
    let wire::Tool::Function { name, description, parameters } = tool;
    Tool {
        name: name.clone(),
        description: description.clone().unwrap_or_default(),
        parameters: parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}})),
    }
}

fn tool_choice(choice: &wire::ToolChoice) -> ToolChoice {
    match choice {
        wire::ToolChoice::Auto => ToolChoice::Auto,
        wire::ToolChoice::None => ToolChoice::None,
        wire::ToolChoice::Required => ToolChoice::Required,
        wire::ToolChoice::Function(name) => ToolChoice::Function(name.clone()),
    }
}
