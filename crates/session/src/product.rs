//! What the tasks of responses give to the actor: products in order, and the meters of what they cost.
//!
//! [`super::responding`] and [`super::filler`] send products, the actor takes them. Nothing runs here.

use antiphon_dialog::Event;
use antiphon_engine_api::HopReport;
use antiphon_types::{Format, Meter, Pcm, Requester, ResponseId, Timestamp};

/// Output of a response's work, in order.
pub(super) enum Product {
    /// For the reducer.
    Event(Event),
    /// Speech of the chunk whose text came last, and when it was synthesized.
    Audio(ResponseId, Pcm, Timestamp),
    /// A moment of the timeline.
    Mark(ResponseId, Milestone, Timestamp),
    /// A filler, all of it.
    Filler(FillerSpeech),
    /// Which worker speaks the first chunk; again where another one goes on with it.
    Hop(ResponseId, HopReport),
    /// Which stage a response fails in; its end follows.
    FailedIn(ResponseId, FailedStage),
}

/// The stage that a response failed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedStage {
    Llm,
    Tts,
}

impl FailedStage {
    /// Its name in metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Tts => "tts",
        }
    }
}

/// A response's moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Milestone {
    /// The model's first token.
    FirstToken,
    /// The first chunk was handed to the voice.
    FirstChunk,
    /// The model has said all.
    LastToken,
}

/// A filler with all of its sound.
pub(super) struct FillerSpeech {
    /// The response it is spoken for.
    pub(super) response: ResponseId,
    pub(super) text: String,
    /// How its audio is encoded.
    pub(super) format: Format,
    /// In order; bounded by the filler's task.
    pub(super) speech: Vec<Pcm>,
}

/// What a response costs, and who serves it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseMeters {
    pub(super) llm: Meter,
    /// Of all chunks.
    pub(super) tts: Meter,
}

impl ResponseMeters {
    /// Meters that are read later, of this client's requests.
    pub(super) fn requested_by(requester: Requester) -> Self {
        Self { llm: Meter::requested_by(requester), tts: Meter::requested_by(requester) }
    }
}
