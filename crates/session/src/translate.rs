//! From the client's events of the Realtime protocol to the dialog's commands and settings. The way back is `project`.

use super::config::SessionConfig;
use super::remote;
use antiphon_audio::NoiseReduction;
use antiphon_dialog::turn::Eagerness;
use antiphon_dialog::{
    Command, Content, InputEntry, Item, ItemKind, ItemPosition, ItemStatus, Memory, Modality, ResponseRequest, Role,
    Settings, Truncation, TurnDetection,
};
use antiphon_protocol::{ClientEvent, SessionKind};
use antiphon_types::Format;
use antiphon_types::chat::{Tool, ToolChoice};
use serde_json::json;
use std::time::Duration;

/// The command of an event that is neither audio nor a session update nor news of the client's playback.
pub(super) fn command(event: ClientEvent) -> Option<Command> {
    Some(match event {
        ClientEvent::InputAudioClear => Command::ClearInput,
        ClientEvent::OutputAudioClear => Command::ClearOutput,
        ClientEvent::ItemCreate { position, item: new } => {
            let place = match position {
                antiphon_protocol::Position::End => ItemPosition::Last,
                antiphon_protocol::Position::Root => ItemPosition::First,
                antiphon_protocol::Position::After(id) => ItemPosition::After(id),
            };
            Command::CreateItem { item: item(*new), place }
        }
        ClientEvent::ItemDelete { item_id } => Command::DeleteItem(item_id),
        ClientEvent::ItemRetrieve { item_id } => Command::RetrieveItem(item_id),
        ClientEvent::ItemTruncate { item_id, content_index, audio_end_ms } => {
            Command::TruncateItem { item: item_id, content_index, audio_end_ms: u64::from(audio_end_ms) }
        }
        ClientEvent::ResponseCreate(params) => Command::CreateResponse(Box::new(request(*params))),
        ClientEvent::ResponseCancel { response_id } => Command::CancelResponse(response_id),
        ClientEvent::SessionUpdate(_)
        | ClientEvent::InputAudioAppend { .. }
        | ClientEvent::InputAudioCommit
        | ClientEvent::OutputAudioPlayed(_)
        | ClientEvent::ClockPing(_) => return None,
    })
}

/// The dialog's settings of a session object, and of the hub where the client has none; without the voices by language, which
/// the engines determine.
pub(super) fn settings(session: &antiphon_protocol::Session, configured: &SessionConfig) -> Settings {
    let input = &session.audio.input;
    Settings {
        instructions: session.instructions.clone(),
        modality: modality(session.output_modalities),
        voice: session.audio.output.voice.clone(),
        speed: session.audio.output.speed as f32,
        voice_instructions: session.audio.output.instructions.clone(),
        output_format: format(session.audio.output.format),
        max_output_tokens: max_tokens(session.max_output_tokens),
        max_answer: match configured.max_answer_seconds {
            0 => None,
            seconds => Some(Duration::from_secs(seconds.into())),
        },
        tools: session.tools.iter().filter_map(tool).collect(),
        tool_choice: tool_choice(&session.tool_choice),
        servers: remote::declared(&session.tools),
        server_choice: remote::choice(&session.tool_choice),
        turn_detection: input.turn_detection.as_ref().map(|detection| TurnDetection {
            // A transcription session says nothing.
            create_response: detection.create_response() && session.kind == SessionKind::Realtime,
            interrupt_response: detection.interrupt_response(),
            ignore_backchannels: detection.ignore_backchannels().unwrap_or(configured.ignore_backchannels),
            speaker_lock: detection.speaker_lock().unwrap_or(configured.speaker_lock),
            idle_timeout: match detection {
                antiphon_protocol::TurnDetection::ServerVad(vad) => {
                    vad.idle_timeout_ms.map(|ms| Duration::from_millis(ms.into()))
                }
                antiphon_protocol::TurnDetection::SemanticVad(_) => None,
            },
        }),
        language_voices: None,
        filler_after: match configured.filler_after_ms {
            0 => None,
            ms => Some(Duration::from_millis(ms.into())),
        },
        transcripts: input.transcription.is_some(),
        // In a conversation the protocol reports an item's words once there is the item.
        live_transcripts: session.kind == SessionKind::Transcription,
        memory: memory(session.truncation, configured),
    }
}

fn memory(truncation: antiphon_protocol::Truncation, configured: &SessionConfig) -> Memory {
    let (truncation, conversation) = match truncation {
        antiphon_protocol::Truncation::Auto => (Truncation::Oldest { keep: 1.0 }, None),
        antiphon_protocol::Truncation::Disabled => (Truncation::Disabled, None),
        antiphon_protocol::Truncation::RetentionRatio { ratio, post_instructions } => {
            (Truncation::Oldest { keep: ratio }, post_instructions.map(u64::from))
        }
    };
    Memory {
        budget: u64::from(configured.history_tokens),
        conversation,
        truncation,
        notes_interruptions: configured.interruption_notes,
    }
}

/// The codec's name of a wire format.
pub(super) fn format(format: antiphon_protocol::AudioFormat) -> Format {
    match format {
        antiphon_protocol::AudioFormat::Pcm => Format::Pcm16,
        antiphon_protocol::AudioFormat::Pcmu => Format::Ulaw,
        antiphon_protocol::AudioFormat::Pcma => Format::Alaw,
    }
}

/// The protocol's `auto` is its `medium`.
pub(super) fn eagerness(eagerness: antiphon_protocol::Eagerness) -> Eagerness {
    match eagerness {
        antiphon_protocol::Eagerness::Low => Eagerness::Low,
        antiphon_protocol::Eagerness::Medium | antiphon_protocol::Eagerness::Auto => Eagerness::Medium,
        antiphon_protocol::Eagerness::High => Eagerness::High,
    }
}

/// Which noise reduction a session asks for.
pub(super) fn noise_reduction(session: &antiphon_protocol::Session) -> Option<NoiseReduction> {
    match session.audio.input.noise_reduction.as_ref()?.kind.as_deref() {
        Some("near_field") => Some(NoiseReduction::Near),
        Some("far_field") => Some(NoiseReduction::Far),
        _ => None,
    }
}

fn request(params: antiphon_protocol::ResponseParams) -> ResponseRequest {
    let entry = |entry| match entry {
        antiphon_protocol::InputItem::Item(new) => InputEntry::Item(item(new)),
        antiphon_protocol::InputItem::Reference(id) => InputEntry::Reference(id),
    };
    ResponseRequest {
        instructions: params.instructions,
        modality: params.output_modalities.map(modality),
        voice: params.voice,
        speed: params.speed.map(|speed| speed as f32),
        voice_instructions: params.voice_instructions,
        output_format: params.format.map(format),
        max_output_tokens: params.max_output_tokens.map(max_tokens),
        servers: params.tools.as_ref().map(|tools| remote::uses(tools)),
        server_choice: params.tool_choice.as_ref().and_then(remote::choice),
        tools: params.tools.map(|tools| tools.iter().filter_map(tool).collect()),
        tool_choice: params.tool_choice.as_ref().map(tool_choice),
        out_of_band: params.out_of_band,
        spoken_input: Vec::new(),
        input: params.input.map(|entries| entries.into_iter().map(entry).collect()),
        metadata: params.metadata,
    }
}

fn item(item: antiphon_protocol::Item) -> Item {
    let status = match item.status {
        // An item a client hands over does not grow any more.
        antiphon_protocol::ItemStatus::InProgress
        | antiphon_protocol::ItemStatus::Completed
        | antiphon_protocol::ItemStatus::Unsaid => ItemStatus::Completed,
        antiphon_protocol::ItemStatus::Incomplete => ItemStatus::Incomplete,
    };
    let kind = match item.body {
        antiphon_protocol::ItemBody::Message { role, content } => {
            let role = match role {
                antiphon_protocol::Role::System => Role::System,
                antiphon_protocol::Role::User => Role::User,
                antiphon_protocol::Role::Assistant => Role::Assistant,
            };
            ItemKind::Message { role, content: content.into_iter().map(part).collect() }
        }
        antiphon_protocol::ItemBody::FunctionCall { call_id, name, arguments } => {
            ItemKind::FunctionCall { call_id, name, arguments }
        }
        antiphon_protocol::ItemBody::FunctionCallOutput { call_id, output } => {
            ItemKind::FunctionOutput { call_id, output }
        }
        antiphon_protocol::ItemBody::McpApprovalResponse(antiphon_protocol::McpApproval {
            approval_request_id,
            approve,
            reason,
        }) => ItemKind::RemoteConsent { request: approval_request_id, approve, reason },
        antiphon_protocol::ItemBody::McpListTools { .. }
        | antiphon_protocol::ItemBody::McpCall { .. }
        | antiphon_protocol::ItemBody::McpApprovalRequest { .. } => unreachable!("a client's item is none of these"),
    };
    Item { id: item.id.unwrap_or_else(|| "".into()), status, kind }
}

fn part(content: antiphon_protocol::Content) -> Content {
    match content {
        antiphon_protocol::Content::InputText { text } => Content::InputText(text),
        antiphon_protocol::Content::InputAudio { transcript, .. } => Content::InputAudio { transcript },
        antiphon_protocol::Content::InputImage { image, .. } => Content::InputImage(image),
        antiphon_protocol::Content::OutputText { text } => Content::OutputText(text),
        antiphon_protocol::Content::OutputAudio { transcript } => Content::OutputAudio { transcript },
    }
}

fn modality(modality: antiphon_protocol::Modality) -> Modality {
    match modality {
        antiphon_protocol::Modality::Audio => Modality::Audio,
        antiphon_protocol::Modality::Text => Modality::Text,
    }
}

fn max_tokens(max: antiphon_protocol::MaxTokens) -> Option<u32> {
    match max {
        antiphon_protocol::MaxTokens::Limit(n) => Some(n),
        antiphon_protocol::MaxTokens::Inf => None,
    }
}

fn tool(tool: &antiphon_protocol::Tool) -> Option<Tool> {
    let antiphon_protocol::Tool::Function { name, description, parameters } = tool else { return None };
    Some(Tool {
        name: name.clone(),
        description: description.clone().unwrap_or_default(),
        parameters: parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}).into()),
    })
}

fn tool_choice(choice: &antiphon_protocol::ToolChoice) -> ToolChoice {
    match choice {
        antiphon_protocol::ToolChoice::Auto => ToolChoice::Auto,
        antiphon_protocol::ToolChoice::None => ToolChoice::None,
        antiphon_protocol::ToolChoice::Required => ToolChoice::Required,
        antiphon_protocol::ToolChoice::Mcp { .. } => ToolChoice::Required,
        antiphon_protocol::ToolChoice::Function(name) => ToolChoice::Function(name.clone()),
    }
}
