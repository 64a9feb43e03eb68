//! The exact text of each event is in `golden/server_events.jsonl`; `tests/clients` parses the same lines with an SDK's
//! types. After an intended change, copy the line from the left side of the failing assertion.

use super::*;
use crate::{
    AudioFormat, Content, InputTokens, ItemBody, ItemStatus, ItemUse, McpApproval, McpCallError, McpTool, OutputTokens,
    ResponseAudio, ResponseAudioOutput, ResponseStatus, Role, ServerVad, StatusDetails, StatusReason, Usage,
};
use antiphon_types::SessionId;
use serde_json::Value;
use std::collections::BTreeSet;

const GOLDEN: &str = include_str!("golden/server_events.jsonl");

fn item_id() -> ItemId {
    ItemId::from("item_1")
}

fn response_id() -> ResponseId {
    ResponseId::from("resp_1")
}

fn part_at() -> PartAt {
    PartAt::new(response_id(), item_id(), 0, 1)
}

fn spoken(status: ItemStatus, content: Vec<Content>) -> Item {
    Item::message(item_id(), status, Role::Assistant, content)
}

fn session_events() -> Vec<ServerEvent> {
    let mut session = Session::new(SessionId::from("sess_1"), "antiphon", "slt", ServerVad::default());
    session.expires_at = 1_790_000_000;
    let mut manual = session.clone();
    manual.audio.input.turn_detection = None;
    manual.audio.input.transcription = None;
    manual.audio.input.format = AudioFormat::Pcmu;
    let error = WireError::unknown_item(ItemUse::Delete, &item_id()).answering(Some("e1"));
    let no_code = WireError::not_truncatable();
    vec![
        ServerEvent::Error { error },
        ServerEvent::Error { error: no_code },
        ServerEvent::SessionCreated { session: Box::new(session) },
        ServerEvent::SessionUpdated { session: Box::new(manual) },
        ServerEvent::RateLimitsUpdated {
            rate_limits: vec![RateLimit { name: "requests", limit: 100, remaining: 99, reset_seconds: 0.5 }],
        },
    ]
}

fn input_events() -> Vec<ServerEvent> {
    vec![
        ServerEvent::InputAudioCommitted { previous_item_id: None, item_id: item_id() },
        ServerEvent::InputAudioCleared {},
        ServerEvent::SpeechStarted { audio_start_ms: 640, item_id: item_id() },
        ServerEvent::SpeechStopped { audio_end_ms: 1900, item_id: item_id() },
        ServerEvent::IdleTimeout { audio_start_ms: 0, audio_end_ms: 5000, item_id: item_id() },
        ServerEvent::TranscriptionDelta { item_id: item_id(), content_index: 0, delta: "what".into() },
        ServerEvent::TranscriptionDraft { item_id: item_id(), content_index: 0, transcript: " time".into() },
        ServerEvent::TranscriptionSegment {
            item_id: item_id(),
            content_index: 0,
            id: "seg_1".into(),
            text: "what time".into(),
            speaker: "A".into(),
            start: 0.25,
            end: 1.5,
        },
        ServerEvent::TranscriptionCompleted {
            item_id: item_id(),
            content_index: 0,
            transcript: "what time is it".into(),
            language: None,
            usage: TranscriptionUsage::Duration { seconds: 1.25 },
            logprobs: None,
        },
        ServerEvent::TranscriptionFailed {
            item_id: item_id(),
            content_index: 0,
            error: WireError::server("stt_failed", "The transcriber did not answer in time."),
        },
    ]
}

fn item_events() -> Vec<ServerEvent> {
    let previous_item_id = Some(ItemId::from("item_0"));
    let heard = Content::InputAudio { audio: None, transcript: None };
    let user = Item::message(item_id(), ItemStatus::Completed, Role::User, vec![heard]);
    let kept = Content::InputAudio { audio: Some(Bytes::from_static(&[1, 2])), transcript: Some("yes".into()) };
    let call = ItemBody::FunctionCall { call_id: "call_1".into(), name: "lamp".into(), arguments: "{}".into() };
    let output = ItemBody::FunctionCallOutput { call_id: "call_1".into(), output: "on".into() };
    let text = Content::InputText { text: "Be kind.".into() };
    vec![
        ServerEvent::ItemAdded { previous_item_id: None, item: user },
        ServerEvent::ItemAdded {
            previous_item_id: previous_item_id.clone(),
            item: spoken(ItemStatus::InProgress, vec![]),
        },
        ServerEvent::ItemAdded {
            previous_item_id: previous_item_id.clone(),
            item: Item::message(item_id(), ItemStatus::Completed, Role::System, vec![text]),
        },
        ServerEvent::ItemDone {
            previous_item_id: previous_item_id.clone(),
            item: Item::new(item_id(), ItemStatus::Completed, call),
        },
        ServerEvent::ItemDone { previous_item_id, item: Item::new(item_id(), ItemStatus::Completed, output) },
        ServerEvent::ItemDeleted { item_id: item_id() },
        ServerEvent::ItemRetrieved { item: Item::message(item_id(), ItemStatus::Completed, Role::User, vec![kept]) },
        ServerEvent::ItemTruncated { item_id: item_id(), content_index: 0, audio_end_ms: 1500 },
    ]
}

fn response_events() -> Vec<ServerEvent> {
    let mut begun = Response::new(response_id(), Some("conv_1".into()));
    begun.audio = ResponseAudio { output: Some(ResponseAudioOutput { format: AudioFormat::Pcm, voice: "slt".into() }) };
    begun.metadata = Some([("client_event_id".to_owned(), "e1".to_owned())].into());
    let mut cut = Response::new(response_id(), None);
    cut.status = ResponseStatus::Cancelled;
    cut.status_details = Some(StatusDetails::cancelled(StatusReason::TurnDetected));
    cut.output = vec![spoken(ItemStatus::Incomplete, vec![Content::OutputAudio { transcript: Some("It is".into()) }])];
    cut.usage = Some(Usage::new(
        InputTokens { text_tokens: 12, audio_tokens: 2, ..Default::default() },
        OutputTokens { text_tokens: 3, audio_tokens: 4 },
    ));
    let mut failed = Response::new(response_id(), Some("conv_1".into()));
    failed.status = ResponseStatus::Failed;
    failed.status_details = Some(StatusDetails::failed("llm_failed", "The model did not answer in time."));
    let text = Content::OutputText { text: "It is noon.".into() };
    let item = ItemAt { response_id: response_id(), item_id: item_id(), output_index: 1 };
    vec![
        ServerEvent::ResponseCreated { response: Box::new(begun) },
        ServerEvent::ResponseDone { response: Box::new(cut) },
        ServerEvent::ResponseDone { response: Box::new(failed) },
        ServerEvent::OutputItemAdded {
            response_id: response_id(),
            output_index: 0,
            item: spoken(ItemStatus::InProgress, vec![]),
        },
        ServerEvent::OutputItemDone {
            response_id: response_id(),
            output_index: 0,
            item: spoken(ItemStatus::Completed, vec![text]),
        },
        ServerEvent::ContentPartAdded { at: part_at(), part: ResponsePart::Audio { transcript: String::new() } },
        ServerEvent::ContentPartDone { at: part_at(), part: ResponsePart::Text { text: "It is noon.".into() } },
        ServerEvent::OutputTextDelta { at: part_at(), delta: "It \"is\"".into() },
        ServerEvent::OutputTextDone { at: part_at(), text: "It is noon.".into() },
        ServerEvent::OutputAudioDelta { at: part_at(), delta: Bytes::from_static(b"\xff\xff\x01\x02") },
        ServerEvent::OutputAudioDone { at: part_at() },
        ServerEvent::OutputTranscriptDelta { at: part_at(), delta: "It is".into() },
        ServerEvent::OutputTranscriptDone { at: part_at(), transcript: "It is noon.".into() },
        ServerEvent::FunctionArgumentsDelta { at: item.clone(), call_id: "call_1".into(), delta: "{".into() },
        ServerEvent::FunctionArgumentsDone {
            at: item,
            call_id: "call_1".into(),
            name: "lamp".into(),
            arguments: "{}".into(),
        },
    ]
}

fn extension_events() -> Vec<ServerEvent> {
    let marks =
        Marks { speech_end: Some(0.0), end_confirmed: Some(212.5), first_audio_sent: Some(240.0), ..Marks::default() };
    let endpointing = Endpointing { probability: 0.75, wait_ms: 500.0, wording: "plain", ..Endpointing::default() };
    let workers = Workers {
        stt_worker: Some("north".into()),
        tts_worker: Some("south".into()),
        stt_network_ms: Some(1.5),
        tts_network_ms: Some(2.25),
        retried: 1,
    };
    let timeline = |endpointing, workers| ServerEvent::Timeline {
        item_id: item_id(),
        response_id: response_id(),
        marks,
        endpointing,
        workers,
    };
    vec![
        ServerEvent::OutputHeld { response_id: response_id(), item_id: item_id() },
        ServerEvent::OutputResumed { response_id: response_id(), item_id: item_id() },
        ServerEvent::OutputCleared { response_id: response_id() },
        ServerEvent::OutputStarted { response_id: response_id() },
        ServerEvent::OutputStopped { response_id: response_id() },
        ServerEvent::KeyPressed { event: '5', received_at: 1_790_000_000 },
        ServerEvent::Notice {
            response_id: response_id(),
            code: NoticeCode::ToolRoundsSpent,
            limit_s: None,
            message: "The model called tools 8 times in this turn. It answers without them now.".into(),
        },
        ServerEvent::Notice {
            response_id: response_id(),
            code: NoticeCode::ModelLoading,
            limit_s: Some(60),
            message: "The language model is loading. Its first words may take up to 60 s.".into(),
        },
        ServerEvent::OutputAudioSent { response_id: response_id(), item_id: item_id() },
        ServerEvent::Backchannel { transcript: "right".into(), audio_start_ms: 300, audio_end_ms: 900 },
        ServerEvent::SpeechIgnored { similarity: 0.25, quieter_db: 9.0, audio_start_ms: 300, audio_end_ms: 2_400 },
        timeline(None, None),
        timeline(Some(endpointing), None),
        timeline(None, Some(Box::new(workers))),
    ]
}

fn mcp_events() -> Vec<ServerEvent> {
    let at = || ItemAt { response_id: response_id(), item_id: item_id(), output_index: 0 };
    let item = |body| Item::new(item_id(), ItemStatus::Completed, body);
    let call = |output: Option<&str>, error| {
        item(ItemBody::McpCall {
            server_label: "library".into(),
            name: "find_book".into(),
            arguments: "{}".into(),
            approval_request_id: None,
            output: output.map(str::to_owned),
            error,
        })
    };
    let added = |item| ServerEvent::ItemAdded { previous_item_id: None, item };
    let words = || "no such book".to_owned();
    let tools = vec![McpTool {
        name: "find_book".into(),
        description: String::new(),
        input_schema: serde_json::json!({"type": "object"}).into(),
        annotations: None,
    }];
    let server_label = "library".to_owned();
    let name = "lend_book".to_owned();
    let arguments = "{}".to_owned();
    let consent = McpApproval { approval_request_id: item_id(), approve: true, reason: None };
    vec![
        ServerEvent::McpListInProgress { item_id: item_id() },
        ServerEvent::McpListCompleted { item_id: item_id() },
        ServerEvent::McpListFailed { item_id: item_id() },
        ServerEvent::McpArgumentsDelta { at: at(), delta: "{".into() },
        ServerEvent::McpArgumentsDone { at: at(), arguments: "{}".into() },
        ServerEvent::McpCallInProgress { item_id: item_id(), output_index: 0 },
        ServerEvent::McpCallCompleted { item_id: item_id(), output_index: 0 },
        ServerEvent::McpCallFailed { item_id: item_id(), output_index: 0 },
        added(item(ItemBody::McpListTools { server_label: server_label.clone(), tools })),
        added(call(Some("shelf 7"), None)),
        added(call(None, Some(McpCallError::ToolExecutionError { message: words() }))),
        added(call(None, Some(McpCallError::ProtocolError { code: -32_602, message: words() }))),
        added(call(None, Some(McpCallError::HttpError { code: 0, message: words() }))),
        added(item(ItemBody::McpApprovalRequest { server_label, name, arguments })),
        added(item(ItemBody::McpApprovalResponse(consent))),
    ]
}

fn every_event() -> Vec<ServerEvent> {
    [session_events(), input_events(), item_events(), response_events(), mcp_events(), extension_events()].concat()
}

#[test]
fn every_event_stands_as_in_the_golden_file() {
    let lines: Vec<_> = GOLDEN.lines().collect();
    let events = every_event();
    assert_eq!(lines.len(), events.len());
    for (event, line) in events.iter().zip(lines) {
        assert_eq!(encode(event, "event_1"), line);
    }
}

#[test]
fn every_name_of_the_protocol_is_there() {
    let names: BTreeSet<String> = GOLDEN
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    let expect = [
        "antiphon.backchannel",
        "antiphon.output_audio.sent",
        "antiphon.notice",
        "antiphon.speech.ignored",
        "antiphon.timeline",
        "antiphon.transcription.draft",
        "conversation.item.added",
        "conversation.item.deleted",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.failed",
        "conversation.item.input_audio_transcription.segment",
        "conversation.item.retrieved",
        "conversation.item.truncated",
        "error",
        "input_audio_buffer.cleared",
        "input_audio_buffer.committed",
        "input_audio_buffer.dtmf_event_received",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.timeout_triggered",
        "mcp_list_tools.completed",
        "mcp_list_tools.failed",
        "mcp_list_tools.in_progress",
        "output_audio_buffer.cleared",
        "output_audio_buffer.held",
        "output_audio_buffer.resumed",
        "output_audio_buffer.started",
        "output_audio_buffer.stopped",
        "rate_limits.updated",
        "response.content_part.added",
        "response.content_part.done",
        "response.created",
        "response.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.mcp_call.completed",
        "response.mcp_call.failed",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.delta",
        "response.output_audio_transcript.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.done",
        "session.created",
        "session.updated",
    ];
    assert_eq!(names, expect.map(str::to_owned).into());
}

#[test]
fn what_only_this_hub_has_is_an_extension() {
    // Of the output buffer, the protocol has the others.
    let own = ["output_audio_buffer.held", "output_audio_buffer.resumed"];
    for event in every_event() {
        let line: Value = serde_json::from_str(&encode(&event, "event_1")).unwrap();
        let name = line["type"].as_str().unwrap();
        assert_eq!(event.is_extension(), name.starts_with("antiphon.") || own.contains(&name), "{name}");
    }
}

#[test]
fn the_fast_way_of_audio_says_the_same_as_the_derived_one() {
    let odd = PartAt::new(response_id(), ItemId::from("a\"b\\"), 3, 4);
    for audio in [&b""[..], b"a", b"ab", b"abc", &[0xff; 1000]] {
        let event = ServerEvent::OutputAudioDelta { at: odd.clone(), delta: Bytes::copy_from_slice(audio) };
        let mut derived = serde_json::to_value(&event).unwrap();
        derived["event_id"] = "e".into();
        assert_eq!(serde_json::from_str::<Value>(&encode(&event, "e")).unwrap(), derived);
    }
}

#[test]
fn an_events_length_is_known_without_its_text() {
    for event in every_event() {
        let n_bytes = encoded_bytes(&event, "event_1");
        let text = encode(&event, "event_1");
        match event {
            ServerEvent::OutputAudioDelta { .. } => assert!(n_bytes >= text.len(), "{n_bytes}, {text}"),
            _ => assert_eq!(n_bytes, text.len(), "{text}"),
        }
    }
}
