//! One conversation: an actor that owns the clock and the tasks, and the parts it works with.
//!
//! `server` calls [`Setup::open`] for each connection and gets a [`Handle`]: messages in, an [`Egress`] log out. The
//! actor feeds the pure [`antiphon_dialog`] and performs its actions; `ingress` is the way of the microphone's audio,
//! `responding` and `voice` the way of the reply's. Of the crates, only this one spawns tasks. No
//! decision about the dialog is made here.

mod actor;
mod beginning;
mod checkpoint;
mod clock;
mod config;
mod egress;
mod expiry;
mod failures;
mod fair_order;
mod filler;
mod inbound;
mod ingress;
mod inline_audio;
mod judging;
mod languages;
mod limits;
mod message;
mod microphone;
mod perform;
mod playback;
mod project;
mod recorded_audio;
mod remote;
pub mod replay_log;
mod replay_recorder;
mod reports;
mod responding;
mod retained;
mod setup;
mod snapshot;
mod speculation;
mod timeline;
mod transcription_input;
mod transcription_task;
mod translate;
mod turn_history;
pub mod turn_pipeline;
mod turns;
mod utterance;
mod voice;

pub use checkpoint::{Checkpoint, Keeping, Leave, StorageRequest};
pub use config::{SessionConfig, SpeculationConfig};
pub use egress::{Close, Egress, MAX_UNSENT_BYTES, Output, OutputAudio, OutputEvent};
pub use inbound::{BudgetPermit, Inbound, InboundPayload};
pub use limits::{LimitReached, SessionLimits};
pub use message::Message;
pub use recorded_audio::{MAX_RECORDED, recorded_audio};
pub use retained::{MAX_UNANSWERED_BYTES, ResumeError};
pub use setup::{AudioMode, Handle, Opening, Setup, WEBSOCKET};
pub use snapshot::{MAX_SNAPSHOT_BYTES, SNAPSHOT_SCHEMA, Snapshot, SnapshotError};
pub use timeline::{
    EndOfTurn, HeardBy, Kind, Part, RecordedSpan, SpeculationOutcome, SpeculativeRun, StageCost, StageRun, Status,
    Tokens, TurnAudio, TurnCost, TurnMarks, TurnRecord, TurnStage, Waits,
};
pub use turn_history::{
    AnsweredTurn, AwaitedTurn, Entry, Listening, MAX_ENDPOINTING_MS, News, Page, TurnHistory, Viewer,
};
