//! Recordings of sessions, run again: exactly, or turn-taking alone with other settings.
//!
//! `cli/replay.rs` and `cli/corpus.rs` call it. [`replay`] feeds a recording's inputs to the same reducer and the same turn-taking on a
//! virtual clock and compares each decision with the recorded one. [`Corpus`] runs turn-taking alone over labelled
//! recordings, [`compare`] draws its conclusions. `corpus` makes such recordings. Nothing else here plays audio, asks an engine or opens a
//! socket.

pub mod corpus;
mod curve;
mod dice;
mod error;
mod exact;
mod labels;
mod read;
mod svg;
mod sweep;

pub use curve::{Curve, CurveComparison, Point, compare};
pub use dice::Dice;
pub use error::ReplayError;
pub use exact::{Difference, Layer, ReplayedDecision, Report, Restores, replay, replay_restoring};
pub use labels::{LabelledTurn, Labels};
pub use read::ReplayLog;
pub use svg::draw;
pub use sweep::{Corpus, PauseHints, Setting, TurnResult};
