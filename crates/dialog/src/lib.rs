//! The dialog: a pure reducer that decides what a conversation does next.
//!
//! `session` feeds [`Dialog::step`] with [`Event`]s and performs the [`Action`]s; replay does the same on a virtual
//! clock. No IO, no clock, no runtime, no samples and no protocol are known here. Events of asynchronous work carry the
//! item or the response they belong to, and `step` drops what is not current: stale work is harmless by construction.

mod action;
mod backchannel;
mod calls;
mod captions;
mod claims;
mod commands;
mod cutting;
mod event;
mod failure;
mod filler;
mod history;
mod hold;
mod idle;
mod interruption;
mod item;
mod language;
mod listening;
mod memory;
mod outputs;
mod own_input;
mod reading;
mod remote;
mod remote_calls;
mod responding;
mod settings;
mod speaker;
mod speculation;
mod spoken;
mod state;
pub mod turn;
mod usage;

pub use action::{
    Action, IncompleteReason, Notice, OutputChange, Progress, Refusal, ResponseStatus, ResponseView, ResponseWork,
    StopReason, UtteranceEnd,
};
pub use captions::{Captions, Partial};
pub use event::{Command, Event, ItemPosition, ToolCallDelta};
pub use failure::Failure;
pub use history::History;
pub use hold::INTERRUPTS_AFTER;
pub use item::{Content, Item, ItemKind, ItemStatus, RemoteCall, Role};
pub use memory::{Memory, Truncation};
pub use settings::{
    InputEntry, Modality, ResponseRequest, ResponseSettings, ServerChoice, ServerUse, Settings, SpokenInput,
    TurnDetection,
};
pub use speaker::{SpeakerComparison, SpeakerProfile, VoiceSample};
pub use speculation::{Speculation, SpeculationOutcome};
pub use spoken::SpokenItem;
pub use state::{Dialog, PlaybackControl};
pub use usage::{ResponseUsage, tokens_read};
