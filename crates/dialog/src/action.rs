//! Output of the reducer: work for the session, and notices to the client in domain terms.

use super::{Failure, Item, RemoteCall, ResponseSettings, ResponseUsage, SpeculationOutcome};
use antiphon_types::chat::ChatRequest;
use antiphon_types::mcp::Server;
use antiphon_types::{ItemId, ResponseId, Samples, TurnId};
use serde::Serialize;
use std::time::Duration;

/// One instruction to the session. A list of actions is performed in order.
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
    /// The utterance was the user's: its voice belongs to the user's profile.
    LearnSpeaker(ItemId),
    /// Start a response's work: the model's stream and the speech.
    StartResponse(Box<ResponseWork>),
    /// Request a provisional transcript: the utterance's transcript if it ended now.
    TranscribeProvisionally(ItemId),
    /// Request a partial transcript of all audio so far: its words decide about the reply that is held.
    TranscribePartially(ItemId),
    /// Speak a filler for a response that is late; [`crate::Event::FillerStarted`] brings it.
    SpeakFiller {
        /// The response.
        response: ResponseId,
        /// Voice, speed, format.
        settings: Box<ResponseSettings>,
    },
    /// Start a speculative response: its output is withheld until it is released.
    StartSpeculative(Box<ResponseWork>),
    /// The speculation is confirmed: release the speculative response's output; it continues as a normal response.
    ReleaseSpeculative(ResponseId),
    /// Cancel a speculative response and discard its output.
    DropSpeculative {
        /// The response, which no client has seen.
        response: ResponseId,
        /// Why it was dropped.
        outcome: SpeculationOutcome,
        /// Time since the pause it was started at.
        wasted: Duration,
    },
    /// Stop a response's work and drop its unsent audio.
    StopResponse(ResponseId),
    /// Ask a remote server for its tools.
    ListTools {
        /// The list's item.
        item: ItemId,
        /// Which server.
        server: Server,
    },
    /// Call a remote server's tool: only for a confirmed turn, and only with the client's consent where it is required.
    CallRemote {
        /// The call's item.
        item: ItemId,
        /// The call.
        call: RemoteCall,
    },
    /// Abandon a list or a call.
    StopRemote(ItemId),
    /// Withhold reply audio.
    Hold,
    /// Resume reply audio.
    Release {
        /// Turn time at which it was withheld, in samples at 16 kHz since the session's first audio.
        held_at: Samples,
    },
    /// Drop a response's unsent audio, and have a client that plays from a queue drop its own.
    Flush(ResponseId),
    /// Send a notice to the client.
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

/// Everything a response's work needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseWork {
    /// The response.
    pub response: ResponseId,
    /// The turn it answers, for the traces.
    pub turn: TurnId,
    /// The request to the model.
    pub chat: ChatRequest,
    /// Voice, speed, format.
    pub settings: ResponseSettings,
}

/// An event for the client in domain terms; the session's projector maps it to the protocol.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Notice {
    /// Speech began; samples at 16 kHz.
    SpeechStarted {
        /// The item it will be.
        item: ItemId,
        /// Where the utterance begins, pre-roll included.
        audio_start: Samples,
    },
    /// Speech ended; samples at 16 kHz.
    SpeechStopped {
        /// The item it will be.
        item: ItemId,
        /// The end of the last voiced window.
        audio_end: Samples,
    },
    /// Words of an utterance under way that may still change.
    TranscriptDraft {
        /// The item it will be.
        item: ItemId,
        /// Its content part.
        part: u32,
        /// What follows the words of the deltas so far; empty where nothing does.
        text: String,
    },
    /// Speech over a reply was a backchannel, or sound without words: it did not interrupt and is no item. Samples at 16 kHz.
    Backchannel {
        /// What was said; empty where there were no words.
        text: String,
        /// Where the sound began, pre-roll included.
        audio_start: Samples,
        /// The end of the last voiced window.
        audio_end: Samples,
    },
    /// Speech was another voice's than the user's: it is no item, and nothing answers it. Samples at 16 kHz.
    SpeechIgnored {
        /// Of its voice and the user's: a cosine.
        similarity: f32,
        /// How much quieter than the user it was, in dB; negative: louder.
        quieter_db: f32,
        /// Where the sound began, pre-roll included.
        audio_start: Samples,
        /// The end of the last voiced window.
        audio_end: Samples,
    },
    /// The idle timeout has expired after the last reply; samples at 16 kHz.
    IdleTimeout {
        /// The item it will be.
        item: ItemId,
        /// Where the silence began.
        audio_start: Samples,
        /// Where it ends: the position now.
        audio_end: Samples,
    },
    /// The input buffer became an item.
    Committed {
        /// The new item.
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
    /// An item is complete: it will not change any more.
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
    /// A reply item was truncated by the client.
    ItemTruncated {
        /// The item.
        item: ItemId,
        /// Index of the part.
        content_index: u32,
        /// Milliseconds kept.
        audio_end_ms: u64,
    },
    /// More words of an utterance under way that are stable.
    TranscriptDelta {
        /// The utterance's item.
        item: ItemId,
        /// Which part of it.
        part: u32,
        /// The words, to be appended.
        delta: String,
    },
    /// The final transcript of an utterance.
    Transcript {
        /// The utterance's item.
        item: ItemId,
        /// Which part of it.
        part: u32,
        /// The transcript.
        text: String,
        /// The language spoken by its code, where the recognizer names it.
        #[serde(skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        /// Its end that no [`Notice::TranscriptDelta`] has sent; `None` where there is none, or other words were sent.
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
        /// The reason.
        #[serde(rename = "message")]
        failure: Failure,
    },
    /// The settings were changed.
    SettingsUpdated,
    /// A response began.
    ResponseCreated(ResponseView),
    /// A response ended.
    ResponseDone(ResponseView),
    /// One of a response's outputs changed.
    Output {
        /// The response.
        response: ResponseId,
        /// Index of the output.
        index: u32,
        /// The output's item.
        item: ItemId,
        /// The change.
        change: OutputChange,
    },
    /// The listing of a server's tools progressed.
    Listing {
        /// Its item.
        item: ItemId,
        /// Its state.
        progress: Progress,
    },
    /// A remote call outside of any response progressed.
    RemoteProgress {
        /// Its item.
        item: ItemId,
        /// Its state.
        progress: Progress,
    },
    /// The turn's rounds of calls are used up: the model is asked without tools.
    ToolRoundsSpent {
        /// The response that begins.
        response: ResponseId,
        /// How many there were.
        rounds: u32,
    },
    /// The model made calls that are not made: of functions that may not be called, or with arguments that are no object.
    CallsRefused {
        /// Its response.
        response: ResponseId,
        /// How many.
        n: u32,
        /// The model had this before, in this response.
        again: bool,
    },
    /// The response's request was larger than `session.history_tokens`: parts of its last turn were left out.
    InputCut {
        /// The response that begins.
        response: ResponseId,
        /// How many tokens, estimated.
        tokens: u64,
    },
    /// The model has said nothing yet, and may have to be loaded first.
    ModelLoading {
        /// The response that waits for it.
        response: ResponseId,
        /// How long the hub waits for its first words, all in all.
        limit: Duration,
    },
    /// Reply audio is withheld: the client pauses its playback.
    Held {
        /// The item that was sounding.
        item: ItemId,
        /// Its response.
        response: ResponseId,
    },
    /// Reply audio resumes.
    Released {
        /// The item that was sounding.
        item: ItemId,
        /// Its response.
        response: ResponseId,
    },
    /// The client's command was refused; nothing has changed.
    Refused {
        /// The client's own id of its event.
        event_id: Option<String>,
        /// The reason.
        reason: Refusal,
    },
}

/// State of remote work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Progress {
    /// Under way.
    InProgress,
    /// It has a result.
    Completed,
    /// It has none.
    Failed,
}

/// A change of a response's output, in the order in which they occur.
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
    /// The part is complete, or was cut off here.
    PartDone {
        /// Whether it is spoken.
        audio: bool,
        /// All its text.
        text: String,
    },
    /// The arguments are complete.
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
    /// A remote call's arguments are complete.
    RemoteArguments(String),
    /// A remote call's state changed.
    RemoteProgress(Progress),
    /// The output ended.
    Done(Item),
}

/// A response as a client sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseView {
    /// Its id.
    pub id: ResponseId,
    /// Its state.
    pub status: ResponseStatus,
    /// The settings in force for it.
    pub settings: ResponseSettings,
    /// Its items so far.
    pub output: Vec<Item>,
    /// Its usage, once it has ended.
    pub usage: Option<ResponseUsage>,
}

/// State of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ResponseStatus {
    /// Under way.
    InProgress,
    /// It ended by itself.
    Completed,
    /// It was stopped.
    Cancelled(StopReason),
    /// The model stopped early.
    Incomplete(IncompleteReason),
    /// A stage failed.
    Failed(Failure),
}

/// Why a response was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum StopReason {
    /// The person spoke.
    TurnDetected,
    /// The client cancelled it.
    ClientCancelled,
}

/// Why a response is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum IncompleteReason {
    /// The model reached the limit of tokens.
    MaxOutputTokens,
    /// The model's content filter stopped it.
    ContentFilter,
}

/// Why a client's command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// Less than 100 ms in the buffer.
    BufferTooSmall {
        /// Its length at 16 kHz.
        buffered: Samples,
    },
    /// There is no response to cancel.
    NoActiveResponse,
    /// A response of the conversation is under way.
    ResponseActive(ResponseId),
    /// The limit of responses under way, which is this, is reached.
    TooManyResponses(usize),
    /// The item exceeds the size limit of the whole conversation.
    ItemTooLarge {
        /// Bytes of its text.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The voice cannot change once there is assistant audio.
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
    /// The id is in use.
    DuplicateItem(ItemId),
    /// The conversation has no call for this result.
    NoSuchCall(String),
    /// No call of that id waits for consent.
    NoSuchApproval(ItemId),
    /// Only the model's speech can be truncated.
    NotTruncatable,
    /// The audio is shorter than that.
    TruncateBeyondEnd {
        /// The length of the audio.
        length_ms: u64,
        /// The requested end.
        asked_ms: u64,
    },
}
