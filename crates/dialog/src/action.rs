//! What the reducer decides: work for the session, and notices to the client in domain terms.

use super::{Item, RemoteCall, ResponseSettings, ResponseUsage, SpeculationOutcome};
use antiphon_types::chat::ChatRequest;
use antiphon_types::mcp::Server;
use antiphon_types::{ItemId, ResponseId, Samples, TurnId};
use serde::Serialize;
use std::time::Duration;

/// Something to do, in the order of the list.
// Actions live in a short list for one step; a box for each notice would cost more than the room it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Action {
    /// Start transcribing an utterance of the microphone.
    OpenUtterance {
        /// Its item.
        item: ItemId,
        /// Where its audio begins, in samples at 16 kHz since the session's first audio.
        audio_start: Samples,
    },
    /// The utterance is complete: request the final transcript.
    CloseUtterance {
        /// Its item.
        item: ItemId,
        /// What ended it.
        end: UtteranceEnd,
    },
    /// The utterance is abandoned: cancel its transcription.
    DropUtterance(ItemId),
    /// Transcribe the inline audio of this item, which the event in progress carried.
    Transcribe(ItemId),
    /// Empty the input buffer: later utterances contain only later audio.
    ClearInput,
    /// Start a response's work.
    StartResponse(Box<ResponseWork>),
    /// Request a provisional transcript: the utterance's transcript if it ended now.
    TranscribeProvisionally(ItemId),
    /// Start a speculative response: its output is withheld until it is released.
    StartSpeculative(Box<ResponseWork>),
    /// The speculation is confirmed: release the speculative response's output; it continues as a normal response.
    ReleaseSpeculative(ResponseId),
    /// Cancel a speculative response and discard its output.
    DropSpeculative {
        /// The response, which no client has seen.
        response: ResponseId,
        /// Why.
        outcome: SpeculationOutcome,
        /// Time since the pause it was started at.
        wasted: Duration,
    },
    /// Stop a response's work and drop its audio that has not left yet.
    StopResponse(ResponseId),
    /// Ask a remote server for its tools.
    ListTools {
        /// The list's item.
        item: ItemId,
        /// Which server.
        server: Server,
    },
    /// Call a remote server's tool: of a confirmed turn only, and with the client's consent where it wants to give it.
    CallRemote {
        /// The call's item.
        item: ItemId,
        /// The call.
        call: RemoteCall,
    },
    /// A list or a call is not waited for any more.
    StopRemote(ItemId),
    /// Withhold reply audio.
    Hold,
    /// Resume reply audio.
    Release {
        /// Turn time at which it was withheld, in samples at 16 kHz since the session's first audio.
        held_at: Samples,
    },
    /// Drop a response's audio that has not left yet, and tell a client that plays from a queue.
    Flush(ResponseId),
    /// Tell the client.
    Notify(Notice),
}

/// What ended an utterance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum UtteranceEnd {
    /// The turn detector. Audio behind the last window belongs to the next utterance.
    Detected,
    /// The client's commit. All audio received so far belongs to the utterance.
    Committed,
}

/// All that a response's work needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseWork {
    /// Which.
    pub response: ResponseId,
    /// The turn it answers, for the traces.
    pub turn: TurnId,
    /// What the model reads.
    pub chat: ChatRequest,
    /// Voice, speed, format.
    pub settings: ResponseSettings,
}

/// News for the client; a projector puts them into a protocol's words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Notice {
    /// Speech began; samples at 16 kHz.
    SpeechStarted {
        /// The item it will be.
        item: ItemId,
        /// Pre-roll included.
        audio_start: Samples,
    },
    /// Speech ended; samples at 16 kHz.
    SpeechStopped {
        /// The item it will be.
        item: ItemId,
        /// The end of the last voiced window.
        audio_end: Samples,
    },
    /// The user has said nothing for long after the last reply; samples at 16 kHz.
    IdleTimeout {
        /// The item it will be.
        item: ItemId,
        /// Where the silence began.
        audio_start: Samples,
        /// Now.
        audio_end: Samples,
    },
    /// The input buffer became an item.
    Committed {
        /// Which.
        item: ItemId,
        /// The item before it.
        previous: Option<ItemId>,
    },
    /// The input buffer was dropped.
    InputCleared,
    /// An item joined the conversation.
    ItemAdded {
        /// As it is now.
        item: Item,
        /// The item before it.
        previous: Option<ItemId>,
        /// The response that makes it.
        response: Option<ResponseId>,
    },
    /// An item is as it will stay.
    ItemDone {
        /// As it is now.
        item: Item,
        /// The item before it.
        previous: Option<ItemId>,
        /// The response that makes it.
        response: Option<ResponseId>,
    },
    /// An item left the conversation.
    ItemDeleted(ItemId),
    /// An item, as asked for.
    ItemRetrieved(Item),
    /// A reply item was cut.
    ItemTruncated {
        /// Which.
        item: ItemId,
        /// Which part.
        content_index: u32,
        /// Milliseconds kept.
        audio_end_ms: u64,
    },
    /// More words of an utterance that will not be taken back before its end.
    TranscriptDelta {
        /// The utterance's item.
        item: ItemId,
        /// Which part of it.
        part: u32,
        /// More words.
        delta: String,
    },
    /// An utterance's words.
    Transcript {
        /// The utterance's item.
        item: ItemId,
        /// Which part of it.
        part: u32,
        /// All of them.
        text: String,
        /// Those that no [`Notice::TranscriptDelta`] has told.
        rest: Option<String>,
        /// How long the utterance was, at 16 kHz.
        audio: Samples,
    },
    /// An utterance could not be transcribed.
    TranscriptFailed {
        /// The utterance's item.
        item: ItemId,
        /// Which part of it.
        part: u32,
        /// What went wrong.
        message: String,
    },
    /// The settings were taken over.
    SettingsUpdated,
    /// A response began.
    ResponseCreated(ResponseView),
    /// A response ended.
    ResponseDone(ResponseView),
    /// One of a response's outputs moved.
    Output {
        /// Which response.
        response: ResponseId,
        /// Which output of it.
        index: u32,
        /// Which item.
        item: ItemId,
        /// How.
        change: OutputChange,
    },
    /// A list of tools moved.
    Listing {
        /// Its item.
        item: ItemId,
        /// How.
        progress: Progress,
    },
    /// A remote call outside of any response moved.
    RemoteProgress {
        /// Its item.
        item: ItemId,
        /// How.
        progress: Progress,
    },
    /// Reply audio waits: the client stops its playback where it is.
    Held {
        /// Which item.
        item: ItemId,
        /// Of which response.
        response: ResponseId,
    },
    /// It goes on.
    Released {
        /// Which item.
        item: ItemId,
        /// Of which response.
        response: ResponseId,
    },
    /// The client's wish was refused; nothing has changed.
    Refused {
        /// The client's own id of its event.
        event_id: Option<String>,
        /// Why.
        reason: Refusal,
    },
}

/// How remote work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Progress {
    /// Under way.
    InProgress,
    /// Done.
    Completed,
    /// It gave nothing.
    Failed,
}

/// How an output of a response moved, in the order these happen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum OutputChange {
    /// It began.
    Added(Item),
    /// Its part began.
    PartAdded {
        /// Whether it is spoken.
        audio: bool,
    },
    /// More written text.
    TextDelta(String),
    /// More spoken text.
    TranscriptDelta(String),
    /// More arguments of a call.
    ArgumentsDelta {
        /// The call.
        call_id: String,
        /// More JSON text.
        delta: String,
    },
    /// The part is whole, or as whole as it gets.
    PartDone {
        /// Whether it is spoken.
        audio: bool,
        /// All its text.
        text: String,
    },
    /// The arguments are whole.
    ArgumentsDone {
        /// The call.
        call_id: String,
        /// The function.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// More arguments of a remote call.
    RemoteDelta(String),
    /// A remote call's arguments are whole.
    RemoteArguments(String),
    /// A remote call runs.
    RemoteProgress(Progress),
    /// It ended.
    Done(Item),
}

/// A response as a client sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseView {
    /// Which.
    pub id: ResponseId,
    /// How it goes.
    pub status: ResponseStatus,
    /// What it goes by.
    pub settings: ResponseSettings,
    /// Its items so far.
    pub output: Vec<Item>,
    /// What it used, once it is done.
    pub usage: Option<ResponseUsage>,
}

/// How a response goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ResponseStatus {
    /// Under way.
    InProgress,
    /// Whole.
    Completed,
    /// Stopped.
    Cancelled(StopReason),
    /// The model stopped early.
    Incomplete(IncompleteReason),
    /// A stage failed; the words are for the client.
    Failed(String),
}

/// Why a response was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum StopReason {
    /// The person spoke.
    TurnDetected,
    /// The client asked.
    ClientCancelled,
}

/// Why a response is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum IncompleteReason {
    /// The limit of tokens.
    MaxOutputTokens,
    /// A filter.
    ContentFilter,
}

/// Why a client's wish was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// Less than 100 ms in the buffer.
    BufferTooSmall {
        /// What it holds, at 16 kHz.
        buffered: Samples,
    },
    /// Nothing to cancel.
    NoActiveResponse,
    /// One is under way.
    ResponseActive(ResponseId),
    /// So many are under way beside the conversation.
    TooManyResponses(usize),
    /// An item that would fill the conversation alone.
    ItemTooLarge {
        /// Bytes of its text.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// Assistant audio is present, so the voice stays.
    VoiceFixed,
    /// There is no such item to delete.
    NoItemToDelete(ItemId),
    /// There is no such item to retrieve.
    NoItemToRetrieve(ItemId),
    /// There is no such item to truncate.
    NoItemToTruncate(ItemId),
    /// There is no such item to put another one after.
    NoItemBefore(ItemId),
    /// There is no such item to refer to.
    NoItemToRead(ItemId),
    /// The id is taken.
    DuplicateItem(ItemId),
    /// A result answers no call of the conversation.
    NoSuchCall(String),
    /// No call of that id waits for consent.
    NoSuchApproval(ItemId),
    /// Only the model's speech can be truncated.
    NotTruncatable,
    /// The audio is shorter than that.
    TruncateBeyondEnd {
        /// What there is.
        length_ms: u64,
        /// What was asked.
        asked_ms: u64,
    },
}
