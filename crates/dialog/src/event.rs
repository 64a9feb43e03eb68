//! Input of the reducer. Events of asynchronous work carry the item or the response they belong to.

use super::{Failure, Item, ResponseRequest, Settings, SpeakerComparison};
use antiphon_types::chat::{Finish, Usage};
use antiphon_types::mcp::{CallError, RemoteTool};
use antiphon_types::{ItemId, ResponseId, Samples};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One input of [`super::Dialog::step`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// [`super::Dialog::next_deadline`] has passed.
    Tick {
        /// Turn time: input audio received so far, at 16 kHz.
        position: Samples,
    },
    /// The client has lost its connection; it may resume the session.
    Disconnected,
    /// The client has resumed the session.
    Reconnected,
    /// The user's line is on hold: the user neither hears nor is heard.
    LineHeld,
    /// The hold is over.
    LineResumed,
    /// Possible speech: withhold the reply until the detector decides.
    VoiceOnset {
        /// Turn time: input audio received so far, at 16 kHz.
        position: Samples,
    },
    /// The sound was not speech.
    VoiceRetracted,
    /// Speech began. `audio_start` is in samples at 16 kHz since the session's first audio, pre-roll included.
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
    /// A provisional transcript: the final one if the utterance ended at the pause.
    ProvisionalTranscript {
        /// The utterance's item.
        item: ItemId,
        /// The words.
        text: String,
        /// The language spoken by its code, where the recognizer names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        /// How many of its first words the recognizer is sure of; `None`: it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n_sure_words: Option<u32>,
    },
    /// The turn model's answer about speech over a reply.
    OverlapJudged {
        /// The utterance's item.
        item: ItemId,
        /// P(it claims the turn).
        claim: f32,
    },
    /// How the voice of an utterance under way compares with the user's.
    SpeakerCompared {
        /// The utterance's item.
        item: ItemId,
        /// The comparison.
        heard: SpeakerComparison,
    },
    /// The user's voice is known from now on.
    SpeakerEnrolled,
    /// A partial transcript of an utterance under way.
    Partial {
        /// The utterance's item.
        item: ItemId,
        /// The words so far.
        text: String,
        /// How many of its first words the recognizer is sure of; `None`: it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n_sure_words: Option<u32>,
        /// How many of them later ones do not change.
        #[serde(default)]
        n_settled_words: u32,
    },
    /// An utterance's transcription ended.
    Transcribed {
        /// The utterance's item.
        item: ItemId,
        /// The transcript.
        result: Result<String, Failure>,
        /// The language spoken by its code, where the recognizer names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        /// How many of its first words the recognizer is sure of; `None`: it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n_sure_words: Option<u32>,
    },
    /// More text of a response; of a spoken one, the text of the chunk whose audio follows.
    Text {
        /// The response.
        response: ResponseId,
        /// The text, as the model wrote it.
        text: String,
    },
    /// The model has said nothing yet, and may have to be loaded first.
    ModelLoading {
        /// The response that waits for it.
        response: ResponseId,
        /// How long the hub waits for its first words, all in all.
        limit: Duration,
    },
    /// More of a tool call.
    ToolCall(ToolCallDelta),
    /// The text of a response so far was the model's thinking.
    TextWithdrawn {
        /// The response.
        response: ResponseId,
    },
    /// Audio of the current chunk was synthesized, at the response's output rate.
    AudioGenerated {
        /// The response.
        response: ResponseId,
        /// Number of samples.
        n: Samples,
        /// Of these, the silence at the end. Absent in recordings that are older.
        #[serde(default)]
        quiet: Samples,
    },
    /// A filler was synthesized. Its audio follows as [`Self::AudioGenerated`], then [`Self::FillerEnded`], without any other event
    /// between them.
    FillerStarted {
        /// The response that it is spoken for.
        response: ResponseId,
        /// Its words.
        text: String,
    },
    /// All audio of the filler was synthesized.
    FillerEnded {
        /// The response.
        response: ResponseId,
    },
    /// Audio of an item was sent to the client.
    AudioSent {
        /// The item.
        item: ItemId,
        /// Number of samples.
        n: Samples,
    },
    /// A remote server listed its tools, or failed to.
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
        /// The tool's result.
        result: Result<String, CallError>,
    },
    /// A response's work ended by itself.
    ResponseFinished {
        /// The response.
        response: ResponseId,
        /// How the model finished.
        outcome: Result<(Finish, Option<Usage>), Failure>,
    },
    /// A command of the client's.
    Client {
        /// The client's own id of its event, for errors.
        event_id: Option<String>,
        /// The command.
        command: Command,
    },
}

/// More of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCallDelta {
    /// The response.
    pub response: ResponseId,
    /// Index of the call within the response.
    pub index: usize,
    /// The model's id of the call; set in the first delta of an index.
    pub call_id: String,
    /// The function; set in the first delta of an index.
    pub name: String,
    /// More JSON text.
    pub arguments: String,
}

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Replace the settings; they are complete and valid.
    UpdateSettings(Box<Settings>),
    /// Turn the input buffer into an item. Samples at 16 kHz.
    Commit {
        /// Where the buffer begins, counted from the session's first audio.
        buffer_start: Samples,
        /// Its length.
        buffered: Samples,
    },
    /// Empty the input buffer.
    ClearInput,
    /// Drop reply audio that was not heard yet.
    ClearOutput,
    /// The listener's position, from a client that reports it.
    Played {
        /// The item being played.
        item: ItemId,
        /// Milliseconds of the item heard.
        audio_end_ms: u64,
        /// Age of the report.
        ago: Duration,
        /// The client has ended playback of the item.
        stopped: bool,
    },
    /// Add an item.
    CreateItem {
        /// The item; an empty id requests a new one.
        item: Item,
        /// Its position.
        place: ItemPosition,
    },
    /// Add an item of the user's with inline audio to be transcribed.
    CreateSpokenItem {
        /// The item. [`crate::Action::Transcribe`] names the audio by this id, so that it is never empty.
        item: Item,
        /// Its position.
        place: ItemPosition,
        /// Length of the inline audio at 16 kHz.
        length: Samples,
    },
    /// Delete an item.
    DeleteItem(ItemId),
    /// Send an item to the client.
    RetrieveItem(ItemId),
    /// Truncate a reply item at what was heard.
    TruncateItem {
        /// The item.
        item: ItemId,
        /// Index of the part.
        content_index: u32,
        /// Milliseconds heard.
        audio_end_ms: u64,
    },
    /// Create a response.
    CreateResponse(Box<ResponseRequest>),
    /// Cancel a response; `None`: the conversation's one under way.
    CancelResponse(Option<ResponseId>),
}

/// Position of a new item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemPosition {
    /// At the end.
    Last,
    /// At the beginning.
    First,
    /// After an item.
    After(ItemId),
}
