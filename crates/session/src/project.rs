//! From the dialog's notices to the events of the Realtime protocol (GA).
//!
//! The only place that maps notices to events and their order; another protocol would be a sibling of this file. It holds
//! no state but the conversation's id.

use super::remote;
use antiphon_dialog::{
    Content, Failure, IncompleteReason, Item, ItemKind, ItemStatus, Modality, Notice, OutputChange, Refusal,
    ResponseStatus, ResponseUsage, ResponseView, Role, StopReason,
};
use antiphon_engine_api::ENGINE_UNAVAILABLE;
use antiphon_engine_api::stt::TokenLogprob;
use antiphon_protocol::{
    ItemAt, ItemUse, Logprob, NoticeCode, PartAt, ResponsePart, ServerEvent, TranscriptionUsage, WireError,
};
use antiphon_types::Format;
use antiphon_types::{ItemId, ResponseId, SampleRate, Samples};

/// Code of a transcript that failed.
pub(super) const TRANSCRIPTION_FAILED: &str = "transcription_failed";
/// Code of a response that failed because the client has used up a limit.
const LIMITED: &str = "rate_limit_exceeded";
/// Code of a response that failed.
pub(super) const RESPONSE_FAILED: &str = "response_failed";

/// The only part of the hub's messages.
const PART: u32 = 0;

const TURN_RATE: SampleRate = SampleRate::HZ_16000;

/// What the recognizer says of the tokens of a transcript.
pub(super) struct TranscriptLogprobs {
    pub(super) item: ItemId,
    pub(super) tokens: Vec<TokenLogprob>,
}

/// Maps notices to events.
pub(super) struct Projector {
    pub(super) conversation_id: String,
}

/// The events of a notice in order, with the response they belong to.
pub(super) type Projection = (Option<ResponseId>, Vec<ServerEvent>);

impl Projector {
    pub(super) fn new(conversation_id: String) -> Self {
        Self { conversation_id }
    }

    /// `session` is the whole session object, for the notices that show it; `logprobs` those of the tokens of the
    /// transcript that the event in progress brought, if the client wants them.
    pub(super) fn project(
        &self,
        notice: Notice,
        session: &antiphon_protocol::Session,
        logprobs: Option<&TranscriptLogprobs>,
    ) -> Projection {
        let events = match notice {
            Notice::ResponseCreated(view) => {
                let id = view.id.clone();
                return (Some(id), vec![ServerEvent::ResponseCreated { response: Box::new(self.response(view)) }]);
            }
            Notice::ResponseDone(view) => {
                let id = view.id.clone();
                let done = ServerEvent::ResponseDone { response: Box::new(self.response(view)) };
                // The actor fills in the figures; clients wait for the event also where there is no limit.
                return (Some(id), vec![done, ServerEvent::RateLimitsUpdated { rate_limits: Vec::new() }]);
            }
            notice @ Notice::Transcript { .. } => return (None, transcript(notice, logprobs)),
            Notice::Output { response, index, item, change } => {
                return (Some(response.clone()), output(response, index, item, change));
            }
            Notice::SettingsUpdated => ServerEvent::SessionUpdated { session: Box::new(session.clone()) },
            Notice::Refused { event_id, reason } => {
                ServerEvent::Error { error: refusal(&reason).answering(event_id.as_deref()) }
            }
            Notice::ItemAdded { item: added, previous, response } => {
                return (response, vec![ServerEvent::ItemAdded { previous_item_id: previous, item: item(added) }]);
            }
            Notice::ItemDone { item: done, previous, response } => {
                return (response, vec![ServerEvent::ItemDone { previous_item_id: previous, item: item(done) }]);
            }
            Notice::Listing { item, progress } => remote::listing(item, progress),
            Notice::RemoteProgress { item, progress } => remote::progress(item, 0, progress),
            Notice::Held { item, response } => ServerEvent::OutputHeld { response_id: response, item_id: item },
            Notice::Released { item, response } => ServerEvent::OutputResumed { response_id: response, item_id: item },
            Notice::Backchannel { text, audio_start, audio_end } => ServerEvent::Backchannel {
                transcript: text,
                audio_start_ms: audio_start.as_ms(TURN_RATE),
                audio_end_ms: audio_end.as_ms(TURN_RATE),
            },
            Notice::SpeechIgnored { similarity, quieter_db, audio_start, audio_end } => ServerEvent::SpeechIgnored {
                similarity,
                // To a tenth: it is for people.
                quieter_db: (10.0 * quieter_db).round() / 10.0,
                audio_start_ms: audio_start.as_ms(TURN_RATE),
                audio_end_ms: audio_end.as_ms(TURN_RATE),
            },
            notice @ (Notice::ToolRoundsSpent { .. }
            | Notice::CallsRefused { .. }
            | Notice::InputCut { .. }
            | Notice::ModelLoading { .. }) => return model_notice(notice),
            other => conversation(other),
        };
        (None, vec![events])
    }

    fn response(&self, view: ResponseView) -> antiphon_protocol::Response {
        let settings = view.settings;
        let conversation_id = settings.in_conversation.then(|| self.conversation_id.clone());
        let mut response = antiphon_protocol::Response::new(view.id, conversation_id);
        (response.status, response.status_details) = status(view.status);
        response.output = view.output.into_iter().map(item).collect();
        response.output_modalities = modality(settings.modality);
        response.max_output_tokens =
            settings.max_output_tokens.map_or(antiphon_protocol::MaxTokens::Inf, antiphon_protocol::MaxTokens::Limit);
        let format = audio_format(settings.output_format);
        response.audio = antiphon_protocol::ResponseAudio {
            output: Some(antiphon_protocol::ResponseAudioOutput { format, voice: settings.voice }),
        };
        response.usage = view.usage.map(usage);
        response.metadata = settings.metadata;
        response
    }
}

/// The end of a transcription. The deltas together are the transcript, as long as nothing was taken back.
fn transcript(notice: Notice, logprobs: Option<&TranscriptLogprobs>) -> Vec<ServerEvent> {
    let Notice::Transcript { item, part, text, language, rest, audio } = notice else { return Vec::new() };
    let delta = |delta| ServerEvent::TranscriptionDelta { item_id: item.clone(), content_index: part, delta };
    let mut events: Vec<ServerEvent> = rest.map(delta).into_iter().collect();
    let logprob = |TokenLogprob { token, logprob }: &TokenLogprob| Logprob {
        bytes: token.clone().into_bytes(),
        token: token.clone(),
        logprob: *logprob,
    };
    let own = logprobs.filter(|logprobs| logprobs.item == item);
    events.push(ServerEvent::TranscriptionCompleted {
        item_id: item,
        content_index: part,
        transcript: text,
        language,
        usage: TranscriptionUsage::Duration { seconds: seconds(audio) },
        logprobs: own.map(|logprobs| logprobs.tokens.iter().map(logprob).collect()),
    });
    events
}

/// News of the conversation itself.
fn conversation(notice: Notice) -> ServerEvent {
    match notice {
        Notice::SpeechStarted { item, audio_start } => {
            ServerEvent::SpeechStarted { audio_start_ms: audio_start.as_ms(TURN_RATE), item_id: item }
        }
        Notice::SpeechStopped { item, audio_end } => {
            ServerEvent::SpeechStopped { audio_end_ms: audio_end.as_ms(TURN_RATE), item_id: item }
        }
        Notice::IdleTimeout { item, audio_start, audio_end } => ServerEvent::IdleTimeout {
            audio_start_ms: audio_start.as_ms(TURN_RATE),
            audio_end_ms: audio_end.as_ms(TURN_RATE),
            item_id: item,
        },
        Notice::Committed { item, previous } => {
            ServerEvent::InputAudioCommitted { previous_item_id: previous, item_id: item }
        }
        Notice::InputCleared => ServerEvent::InputAudioCleared {},
        Notice::ItemDeleted(item_id) => ServerEvent::ItemDeleted { item_id },
        Notice::ItemRetrieved(asked) => ServerEvent::ItemRetrieved { item: item(asked) },
        Notice::ItemTruncated { item, content_index, audio_end_ms } => {
            ServerEvent::ItemTruncated { item_id: item, content_index, audio_end_ms }
        }
        Notice::TranscriptDelta { item, part, delta } => {
            ServerEvent::TranscriptionDelta { item_id: item, content_index: part, delta }
        }
        Notice::TranscriptDraft { item, part, text } => {
            ServerEvent::TranscriptionDraft { item_id: item, content_index: part, transcript: text }
        }
        Notice::TranscriptFailed { item, part, failure } => ServerEvent::TranscriptionFailed {
            item_id: item,
            content_index: part,
            error: WireError::server(code_of(&failure, TRANSCRIPTION_FAILED), failure.message()),
        },
        Notice::SettingsUpdated
        | Notice::ItemAdded { .. }
        | Notice::ItemDone { .. }
        | Notice::ResponseCreated(_)
        | Notice::ResponseDone(_)
        | Notice::Transcript { .. }
        | Notice::Output { .. }
        | Notice::Listing { .. }
        | Notice::RemoteProgress { .. }
        | Notice::Held { .. }
        | Notice::Backchannel { .. }
        | Notice::SpeechIgnored { .. }
        | Notice::ToolRoundsSpent { .. }
        | Notice::CallsRefused { .. }
        | Notice::InputCut { .. }
        | Notice::ModelLoading { .. }
        | Notice::Released { .. }
        | Notice::Refused { .. } => unreachable!("projected by the caller"),
    }
}

/// What the hub did about a request to the model, in words for a page.
fn model_notice(notice: Notice) -> (Option<ResponseId>, Vec<ServerEvent>) {
    let mut limit_s = None;
    let (response_id, code, message) = match notice {
        Notice::ToolRoundsSpent { response, rounds } => {
            let message = format!("The model called tools {rounds} times in this turn. It answers without them now.");
            (response, NoticeCode::ToolRoundsSpent, message)
        }
        Notice::CallsRefused { response, .. } => {
            let message =
                "The model called a function that may not be called, or with arguments that are no JSON object.";
            (response, NoticeCode::CallsRefused, message.to_owned())
        }
        Notice::InputCut { response, tokens } => {
            let message =
                format!("The last turn is too long for the model: about {tokens} tokens of it were left out.");
            (response, NoticeCode::InputCut, message)
        }
        Notice::ModelLoading { response, limit } => {
            let seconds = limit.as_secs().max(1);
            limit_s = Some(seconds);
            let message = format!("The language model is loading. Its first words may take up to {seconds} s.");
            (response, NoticeCode::ModelLoading, message)
        }
        _ => unreachable!("the caller passes no other notice"),
    };
    let event = ServerEvent::Notice { response_id: response_id.clone(), code, limit_s, message };
    (Some(response_id), vec![event])
}

/// How an output of a response moves, in the protocol's words.
fn output(response: ResponseId, index: u32, item_id: ItemId, change: OutputChange) -> Vec<ServerEvent> {
    let at = || PartAt::new(response.clone(), item_id.clone(), index, PART);
    let call = || ItemAt { response_id: response.clone(), item_id: item_id.clone(), output_index: index };
    let part = |audio: bool, text: String| {
        if audio { ResponsePart::Audio { transcript: text } } else { ResponsePart::Text { text } }
    };
    vec![match change {
        OutputChange::Added(added) => {
            ServerEvent::OutputItemAdded { response_id: response, output_index: index, item: item(added) }
        }
        OutputChange::PartAdded { audio } => {
            ServerEvent::ContentPartAdded { at: at(), part: part(audio, String::new()) }
        }
        OutputChange::TextDelta(delta) => ServerEvent::OutputTextDelta { at: at(), delta },
        OutputChange::TranscriptDelta(delta) => ServerEvent::OutputTranscriptDelta { at: at(), delta },
        OutputChange::ArgumentsDelta { call_id, delta } => {
            ServerEvent::FunctionArgumentsDelta { at: call(), call_id, delta }
        }
        OutputChange::PartDone { audio: true, text } => {
            return vec![
                ServerEvent::OutputAudioDone { at: at() },
                ServerEvent::OutputTranscriptDone { at: at(), transcript: text.clone() },
                ServerEvent::ContentPartDone { at: at(), part: part(true, text) },
            ];
        }
        OutputChange::PartDone { audio: false, text } => {
            return vec![
                ServerEvent::OutputTextDone { at: at(), text: text.clone() },
                ServerEvent::ContentPartDone { at: at(), part: part(false, text) },
            ];
        }
        OutputChange::ArgumentsDone { call_id, name, arguments } => {
            ServerEvent::FunctionArgumentsDone { at: call(), call_id, name, arguments }
        }
        OutputChange::RemoteDelta(delta) => ServerEvent::McpArgumentsDelta { at: call(), delta },
        OutputChange::RemoteArguments(arguments) => ServerEvent::McpArgumentsDone { at: call(), arguments },
        OutputChange::RemoteProgress(progress) => remote::progress(item_id, index, progress),
        OutputChange::Done(done) => {
            ServerEvent::OutputItemDone { response_id: response, output_index: index, item: item(done) }
        }
    }]
}

fn item(item: Item) -> antiphon_protocol::Item {
    let status = match item.status {
        ItemStatus::InProgress => antiphon_protocol::ItemStatus::InProgress,
        ItemStatus::Completed => antiphon_protocol::ItemStatus::Completed,
        ItemStatus::Incomplete => antiphon_protocol::ItemStatus::Incomplete,
    };
    let body = match item.kind {
        ItemKind::Message { role, content } => {
            let role = match role {
                Role::System => antiphon_protocol::Role::System,
                Role::User => antiphon_protocol::Role::User,
                Role::Assistant => antiphon_protocol::Role::Assistant,
            };
            antiphon_protocol::ItemBody::Message { role, content: content.into_iter().map(part).collect() }
        }
        ItemKind::FunctionCall { call_id, name, arguments } => {
            // The arguments come as deltas; a call under way shows none.
            let arguments = if status == antiphon_protocol::ItemStatus::InProgress { String::new() } else { arguments };
            antiphon_protocol::ItemBody::FunctionCall { call_id, name, arguments }
        }
        ItemKind::FunctionOutput { call_id, output } => {
            antiphon_protocol::ItemBody::FunctionCallOutput { call_id, output }
        }
        other => remote::body(other, status == antiphon_protocol::ItemStatus::InProgress),
    };
    antiphon_protocol::Item::new(item.id, status, body)
}

fn part(content: Content) -> antiphon_protocol::Content {
    match content {
        Content::InputText(text) => antiphon_protocol::Content::InputText { text },
        Content::InputAudio { transcript } => antiphon_protocol::Content::InputAudio { audio: None, transcript },
        Content::InputImage(image) => antiphon_protocol::Content::InputImage { detail: image.detail, image },
        Content::OutputText(text) => antiphon_protocol::Content::OutputText { text },
        Content::OutputAudio { transcript } => antiphon_protocol::Content::OutputAudio { transcript },
    }
}

fn status(status: ResponseStatus) -> (antiphon_protocol::ResponseStatus, Option<antiphon_protocol::StatusDetails>) {
    use antiphon_protocol::{ResponseStatus as Wire, StatusDetails, StatusReason};
    match status {
        ResponseStatus::InProgress => (Wire::InProgress, None),
        ResponseStatus::Completed => (Wire::Completed, None),
        ResponseStatus::Cancelled(reason) => {
            let reason = match reason {
                StopReason::TurnDetected => StatusReason::TurnDetected,
                StopReason::ClientCancelled => StatusReason::ClientCancelled,
            };
            (Wire::Cancelled, Some(StatusDetails::cancelled(reason)))
        }
        ResponseStatus::Incomplete(reason) => {
            let reason = match reason {
                IncompleteReason::MaxOutputTokens => StatusReason::MaxOutputTokens,
                IncompleteReason::ContentFilter => StatusReason::ContentFilter,
            };
            (Wire::Incomplete, Some(StatusDetails::incomplete(reason)))
        }
        ResponseStatus::Failed(failure) => {
            let details = StatusDetails::failed(code_of(&failure, RESPONSE_FAILED), failure.message());
            (Wire::Failed, Some(details))
        }
    }
}

/// The code of a failed stage; `usual` where its engines were there.
pub(super) fn code_of(failure: &Failure, usual: &'static str) -> &'static str {
    match failure {
        Failure::Failed(_) => usual,
        Failure::Away { .. } => ENGINE_UNAVAILABLE,
        Failure::Limited { .. } => LIMITED,
    }
}

fn refusal(reason: &Refusal) -> WireError {
    match reason {
        Refusal::BufferTooSmall { buffered } => WireError::commit_too_small(seconds(*buffered) * 1e3),
        Refusal::NoActiveResponse => WireError::nothing_to_cancel(),
        Refusal::ResponseActive(id) => WireError::already_responding(id),
        Refusal::TooManyResponses(limit) => WireError::too_many_responses(*limit),
        Refusal::ItemTooLarge { bytes, limit } => WireError::item_too_large(*bytes, *limit),
        Refusal::VoiceFixed => WireError::cannot_update_voice(),
        Refusal::NoItemToDelete(id) => WireError::unknown_item(ItemUse::Delete, id),
        Refusal::NoItemToRetrieve(id) => WireError::unknown_item(ItemUse::Retrieve, id),
        Refusal::NoItemToTruncate(id) => WireError::unknown_item(ItemUse::Truncate, id),
        Refusal::NoItemBefore(id) => WireError::unknown_item(ItemUse::CreateAfter, id),
        Refusal::NoItemToRead(id) => WireError::unknown_item(ItemUse::Reference, id),
        Refusal::DuplicateItem(id) => WireError::duplicate_item(id),
        Refusal::NoSuchCall(call_id) => WireError::unknown_call(call_id),
        Refusal::NoSuchApproval(id) => WireError::unknown_approval(id),
        Refusal::NotTruncatable => WireError::not_truncatable(),
        Refusal::TruncateBeyondEnd { length_ms, asked_ms } => WireError::truncate_beyond(*length_ms, *asked_ms),
    }
}

/// Audio counts as the protocol counts it: a token for each 100 ms heard and each 50 ms spoken.
fn usage(used: ResponseUsage) -> antiphon_protocol::Usage {
    let input = antiphon_protocol::InputTokens {
        text_tokens: used.text.input_tokens,
        audio_tokens: used.input_audio.as_ms_ceil(TURN_RATE).div_ceil(100),
        ..Default::default()
    };
    let audio_tokens = antiphon_types::chat::spoken_tokens(used.output_audio_ms);
    antiphon_protocol::Usage::new(
        input,
        antiphon_protocol::OutputTokens { text_tokens: used.text.output_tokens, audio_tokens },
    )
}

fn seconds(samples: Samples) -> f64 {
    samples.duration(TURN_RATE).as_secs_f64()
}

fn modality(modality: Modality) -> antiphon_protocol::Modality {
    match modality {
        Modality::Audio => antiphon_protocol::Modality::Audio,
        Modality::Text => antiphon_protocol::Modality::Text,
    }
}

fn audio_format(format: Format) -> antiphon_protocol::AudioFormat {
    match format {
        Format::Pcm16 => antiphon_protocol::AudioFormat::Pcm,
        Format::Ulaw => antiphon_protocol::AudioFormat::Pcmu,
        Format::Alaw => antiphon_protocol::AudioFormat::Pcma,
    }
}
