//! Rehearsals: a caller talks to a Realtime server by a scenario, and what the server does is compared with what the
//! scenario expects of it.
//!
//! `antiphon rehearse` calls it: [`Scenario::parse`] reads a scenario, [`Caller`] speaks for it, [`rehearse`] talks in real
//! time and gives a [`Report`], which [`junit`] and [`page`] write for build servers and people. Dependencies point down from
//! the talk to the scenario and to the judgement. This crate opens no file and no socket, and prints nothing.

mod caller;
mod judge;
mod junit;
mod page;
mod report;
mod scenario;
mod talk;

pub use caller::{Caller, CallerError};
pub use junit::junit;
pub use page::page;
pub use report::{Check, Measures, Report, TurnReport};
pub use scenario::{Expectation, ExpectedCall, Goal, Limits, Persona, Scenario, ScenarioError, Tool, Turn};
pub use talk::{RehearsalError, rehearse};
