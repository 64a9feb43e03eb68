//! One conversation: an actor that owns the clock, and the parts it is made of.
//!
//! `server` calls [`Setup::open`] for each connection and gets a [`Handle`]: messages in, an [`Egress`] log out. The
//! actor feeds the pure [`antiphon_dialog`] and performs its actions by its parts: `hearing` is the way of the microphone's audio,
//! `speaking` makes the reply's, `client_side` is what the client sees, `timeline` records. Of the crates, only this one spawns
//! tasks. No decision about the dialog is made here.

mod actor;
mod background;
mod beginning;
mod checkpoint;
mod client_side;
mod clock;
mod config;
mod conversation_audio;
mod egress;
mod expiry;
mod failures;
mod fair_order;
mod filler;
mod handle;
mod hearing;
mod inbound;
mod ingress;
mod inline_audio;
mod judging;
mod languages;
mod limits;
mod links;
mod message;
mod microphone;
mod opening;
mod output;
mod playback;
mod product;
mod project;
mod recorded_audio;
mod recording_consent;
mod remote;
pub mod replay_log;
mod replay_recorder;
mod responding;
mod retained;
mod setup;
mod snapshot;
mod speaker;
mod speaking;
mod speculation;
#[cfg(test)]
mod testing;
mod timeline;
mod transcription_input;
mod transcription_task;
mod translate;
mod turn_history;
pub mod turn_pipeline;
mod turns;
mod utterance;
mod voice;

pub use checkpoint::{Checkpoint, Leave, SnapshotSender, StorageRequest};
pub use config::{SessionConfig, SpeculationConfig};
pub use egress::{Close, Egress, MAX_UNSENT_BYTES};
pub use handle::Handle;
pub use inbound::{BudgetPermit, Inbound, InboundPayload};
pub use limits::{LimitReached, SessionLimits};
pub use message::Message;
pub use opening::{Opening, WEBSOCKET};
pub use output::{AudioMode, Output, OutputAudio, OutputEvent};
pub use recorded_audio::{MAX_RECORDED, recorded_audio};
pub use recording_consent::RecordingConsent;
pub use retained::{MAX_UNANSWERED_BYTES, ResumeError};
pub use setup::Setup;
pub use snapshot::{MAX_SNAPSHOT_BYTES, SNAPSHOT_SCHEMA, Snapshot, SnapshotError};
pub use timeline::{
    EndOfTurn, HeardBy, Kind, Part, RecordedSpan, SpeculationOutcome, SpeculativeRun, StageCost, StageRun, Status,
    Tokens, TurnAudio, TurnCost, TurnMarks, TurnRecord, TurnStage, Waits,
};
pub use turn_history::{
    AnsweredTurn, AwaitedTurn, ChangeSubscription, Entry, MAX_ENDPOINTING_MS, News, Page, TurnHistory, Viewer,
};
