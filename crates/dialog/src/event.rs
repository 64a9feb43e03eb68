//! What the reducer is told. Events of asynchronous work carry the item or the response they belong to.

use super::{Item, ResponseRequest, Settings};
use antiphon_types::chat::{Finish, Usage};
use antiphon_types::mcp::{CallError, RemoteTool};
use antiphon_types::{ItemId, ResponseId, Samples};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Something happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// [`super::Dialog::next_deadline`] has come.
    Tick {
        /// How much input audio there was by now, at 16 kHz.
        position: Samples,
    },
    /// The client's connection is gone; it may come back.
    Disconnected,
    /// The client is back.
    Reconnected,
    /// Possible speech: withhold the reply until the detector decides.
    VoiceOnset {
        /// Turn time: input audio received so far, at 16 kHz.
        position: Samples,
    },
    /// It was not speech.
    VoiceRetracted,
    /// It is speech. `audio_start` is in samples at 16 kHz since the session's first audio, pre-roll included.
    SpeechStarted {
        /// Where the utterance begins.
        audio_start: Samples,
    },
    /// The utterance ended; `audio_end` as above.
    SpeechStopped {
        /// Where its last voiced window ended.
        audio_end: Samples,
    },
    /// The speaker pauses: the utterance may be over.
    Paused,
    /// The speaker goes on.
    Resumed,
    /// What an utterance's words would be if the pause were its end.
    ProvisionalTranscript {
        /// The utterance's item.
        item: ItemId,
        /// The words.
        text: String,
    },
    /// What was understood so far of an utterance under way.
    Partial {
        /// The utterance's item.
        item: ItemId,
        /// The words so far.
        text: String,
    },
    /// An utterance's transcription ended.
    Transcribed {
        /// The utterance's item.
        item: ItemId,
        /// The words, or what went wrong in words for the client.
        result: Result<String, String>,
    },
    /// More text of a response: in audio, the text of the chunk whose audio follows.
    Text {
        /// Whose.
        response: ResponseId,
        /// The text, as the model wrote it.
        text: String,
    },
    /// More of a tool call.
    ToolCall(ToolCallDelta),
    /// Audio of the current chunk was made, at the response's output rate.
    AudioGenerated {
        /// Whose.
        response: ResponseId,
        /// How much.
        n: Samples,
    },
    /// Audio of an item left for the client.
    AudioSent {
        /// Whose.
        item: ItemId,
        /// How much more.
        n: Samples,
    },
    /// A remote server's tools came, or cannot be had.
    ToolsListed {
        /// The list's item.
        item: ItemId,
        /// The tools.
        result: Result<Vec<RemoteTool>, ()>,
    },
    /// A remote call ended.
    RemoteCallEnded {
        /// The call's item.
        item: ItemId,
        /// What the tool gave.
        result: Result<String, CallError>,
    },
    /// A response's work ended by itself.
    ResponseFinished {
        /// Whose.
        response: ResponseId,
        /// How, or what went wrong in words for the client.
        outcome: Result<(Finish, Option<Usage>), String>,
    },
    /// The client said something.
    Client {
        /// The client's own id of its event, for errors.
        event_id: Option<String>,
        /// What.
        command: Command,
    },
}

/// More of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCallDelta {
    /// Whose.
    pub response: ResponseId,
    /// Which call of the response.
    pub index: usize,
    /// In the first event of an index.
    pub call_id: String,
    /// In the first event of an index.
    pub name: String,
    /// More JSON text.
    pub arguments: String,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// New settings, whole and valid.
    UpdateSettings(Box<Settings>),
    /// Turn the input buffer into an item. Samples at 16 kHz.
    Commit {
        /// Where the buffer begins, counted from the session's first audio.
        buffer_start: Samples,
        /// Its length.
        buffered: Samples,
    },
    /// The input buffer is dropped.
    ClearInput,
    /// Reply audio not heard yet is dropped.
    ClearOutput,
    /// The listener's position, from a client that reports it.
    Played {
        /// In which item.
        item: ItemId,
        /// Milliseconds of the item heard.
        audio_end_ms: u64,
        /// How long ago that was.
        ago: Duration,
        /// Nothing more of it will be heard.
        stopped: bool,
    },
    /// A new item.
    CreateItem {
        /// The item; an empty id asks for one.
        item: Item,
        /// Where.
        place: ItemPosition,
    },
    /// A new item of the user's with inline audio to be transcribed.
    CreateSpokenItem {
        /// The item. [`crate::Action::Transcribe`] names the audio by this id, so that it is never empty.
        item: Item,
        /// Where.
        place: ItemPosition,
        /// How long the spoken part is, at 16 kHz.
        length: Samples,
    },
    /// An item goes.
    DeleteItem(ItemId),
    /// An item is shown.
    RetrieveItem(ItemId),
    /// A reply item was heard only so far.
    TruncateItem {
        /// Which.
        item: ItemId,
        /// Which part of it.
        content_index: u32,
        /// Milliseconds heard.
        audio_end_ms: u64,
    },
    /// A response is wanted.
    CreateResponse(Box<ResponseRequest>),
    /// A response is not wanted any more; `None`: the one under way.
    CancelResponse(Option<ResponseId>),
}

/// Where a new item goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemPosition {
    /// At the end.
    Last,
    /// At the beginning.
    First,
    /// After an item.
    After(ItemId),
}
