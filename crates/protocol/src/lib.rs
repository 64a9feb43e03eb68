//! The messages of the hub's wire protocols: the OpenAI Realtime GA protocol, the events of the extension, and binary
//! audio frames.
//!
//! [`parse`] parses a client's message, [`encode`] encodes an event of the hub, [`frame`] handles binary audio.
//! `server` and `session` use it on the hub's side, `client` on the other side. This crate holds no state and never
//! decides whether an event is valid in the current state of a session. To add an event, add a variant and its row in
//! `client_event::EVENTS`, or a variant of [`ServerEvent`].

mod beta;
mod client_event;
mod dialect;
mod error;
pub mod frame;
mod item;
mod limits;
mod mcp;
mod notice;
mod played;
mod read;
mod response;
mod server_event;
mod session;
mod session_update;
mod setting;
mod stored;
mod timeline;
mod tool;
mod truncation;

pub use client_event::{ClientEvent, Incoming, Position, parse, parse_with};
pub use dialect::Dialect;
pub use error::{ErrorKind, ItemUse, WireError};
pub use item::{Content, InputItem, Item, ItemBody, ItemStatus, Role};
pub use limits::{MAX_EVENT_BYTES, fits_tree};
pub use mcp::{Approval, ApprovalWord, McpApproval, McpCallError, McpServer, McpTool, ToolFilter};
pub use notice::SessionNotice;
pub use played::{ClockPing, PlayedReport};
pub use read::{Patch, UnknownFields};
pub use response::{
    InputTokens, OutputTokens, Response, ResponseAudio, ResponseAudioOutput, ResponseParams, ResponseStatus,
    StatusDetails, StatusReason, Usage,
};
pub use server_event::{
    Conversation, ItemAt, Logprob, NoticeCode, PartAt, RateLimit, ResponsePart, ServerEvent, TranscriptionUsage,
    encode, encoded_bytes,
};
pub use session::{
    Audio, AudioInput, AudioOutput, Eagerness, NoiseReduction, SemanticVad, ServerVad, Session, Transcription,
    TurnDetection,
};
pub use session_update::{
    AudioInputUpdate, AudioOutputUpdate, INCLUDE_LOGPROBS, MAX_PREFIX_PADDING_MS, MAX_SILENCE_DURATION_MS,
    SemanticVadUpdate, ServerVadUpdate, SessionKind, SessionUpdate, TranscriptionUpdate, TurnDetectionUpdate,
};
pub use setting::{AudioFormat, MAX_NAME_BYTES, MaxTokens, Modality};
pub use stored::StoredSession;
pub use timeline::{Endpointing, Marks, Workers};
pub use tool::{Tool, ToolChoice};
pub use truncation::Truncation;

/// OpenAI's voices (its reference, "Create speech", 2026). Clients have them built in: the configured voice speaks for them.
pub const OPENAI_VOICES: [&str; 13] =
    ["alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"];
