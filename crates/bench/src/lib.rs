//! The benchmarks behind `antiphon-bench`.
//!
//! The command line calls [`run`] with a [`Plan`] and the command that starts a hub. Each measure is one file and
//! returns a [`Section`] of the [`Report`]. A hub under measurement is a separate process ([`hub_process`]), so that its memory
//! and CPU time do not include those of the clients, which use [`antiphon_client`]. Nothing outside `cli` prints, and
//! no figure is made up: a measure that fails reports why.
//!
//! The head of each file describes the method. All measures share the machine with their clients and with other
//! programs, so each section reports how much CPU time other programs used.

pub mod answers;
mod backchannels;
mod barge_in;
pub mod cli;
mod clients;
pub mod cluster;
pub mod conversation;
mod engines;
mod error;
mod hub_process;
pub mod load;
mod machine;
mod memory;
pub mod mock;
mod mocks;
mod noise;
mod own_share;
pub mod peers;
mod percentiles;
mod pinning;
mod process;
mod questions;
mod real;
mod report;
mod scripted;
mod simulated;
mod speech_models;
pub mod stages;
pub mod stress;
mod talker;
pub mod transports;
mod voice_to_voice;
mod whisper;
mod words;

pub use error::BenchError;
pub use hub_process::{Engines, Hub, HubCommand};
pub use percentiles::Waits;
pub use process::Process;
pub use report::{Figure, Gate, Report, Section, Unit};

use clap::ValueEnum;
use machine::Machine;
use std::path::PathBuf;

/// A measure, in the order in which they are run. The comments are the help of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// From the last word of a question to the first sound of its answer, with engines that need no model
    VoiceToVoice,
    /// Overhead of the hub, with engines of zero latency
    OwnShare,
    /// How fast a response stops when the user speaks
    BargeIn,
    /// Whether a reply goes on after "uh-huh" and stops for "no, wait", and how fast
    Backchannels,
    /// Memory of sessions and of idle connections
    Memory,
    /// Connections that come and go, and an API key at fifty times its limits beside honest sessions
    Clients,
    /// Mock engines over HTTP with zero latency: 1 session, and 100 on one core
    Mocks,
    /// Mock engines that take 100 ms per stage, with and without speculative responses
    Speculation,
    /// The Whisper engine compared with whisper.cpp itself
    Whisper,
    /// Neural voices of the true size, random weights: the hub's overhead, batches of 1 to 8, on a GPU to 16 (needs
    /// make true-size)
    Engines,
    /// Detectors of speech in noise of six kinds, in this process: false speech, late ends, onsets
    Noise,
    /// The default engines with real weights and people's voices: latency, words heard and shown, hard texts, cost
    Real,
}

/// A value's name on the command line, in tables and in JSON.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What to measure and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The measures, in this order.
    pub measures: Vec<Measure>,
    /// Runs fewer turns: a quick check, not a result.
    pub quick: bool,
    /// Speech for the measures in noise (`None`: spoken by flite) and with real weights (`None`: the clips of the tests).
    pub clips: Option<PathBuf>,
    /// Exported speech language models, which `engines` then measures alone: their folders, or a language model's file.
    pub speech_models: Vec<PathBuf>,
    /// Numbers of listeners with which speech language models are measured; none: as the measure's head says.
    pub listeners: Vec<usize>,
    /// Command that starts a hub.
    pub hub: HubCommand,
    /// Command that starts mock engines.
    pub mock: HubCommand,
}

impl Plan {
    /// `full` turns, or a third of them in a quick run.
    fn turns(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(3) } else { full }
    }

    /// The numbers of listeners that were asked for, or else `default`.
    fn listeners_or<'a>(&'a self, default: &'a [usize]) -> &'a [usize] {
        if self.listeners.is_empty() { default } else { &self.listeners }
    }
}

/// Progress callback: each short line replaces the previous one, unless that ended with a newline.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Runs the measures one after the other, about half a minute each. Dropping the future stops the hubs it started.
///
/// A measure that fails is reported with its reason, and the others still run.
pub async fn run(plan: &Plan, progress: Progress<'_>) -> Report {
    let mut report = Report::new(plan.quick);
    for measure in &plan.measures {
        let before = Machine::now();
        let taken = match measure {
            Measure::VoiceToVoice => voice_to_voice::measure(plan, progress).await,
            Measure::OwnShare => own_share::measure(plan, progress).await,
            Measure::BargeIn => barge_in::measure(plan, progress).await,
            Measure::Backchannels => backchannels::measure(plan, progress).await,
            Measure::Memory => memory::measure(plan, progress).await,
            Measure::Clients => clients::measure(plan, progress).await,
            Measure::Mocks => mocks::measure(plan, progress).await,
            Measure::Speculation => mocks::speculation(plan, progress).await,
            Measure::Whisper => whisper::measure(plan, progress).await,
            Measure::Engines => engines::measure(plan, progress).await,
            Measure::Noise => noise::measure(plan, progress).await,
            Measure::Real => real::measure(plan, progress).await,
        };
        let (mut section, children_s) = match taken {
            Ok(taken) => (taken.section, taken.hub_cpu_s),
            Err(error) => (Section::failed(name_of(*measure), &error), 0.0),
        };
        section.others = before.zip(Machine::now()).map(|(before, after)| after.others_since(&before, children_s));
        report.sections.push(section);
    }
    report
}

/// A section and the resource use of its hubs.
struct Measurement {
    section: Section,
    /// CPU seconds of the hubs that the measure started.
    hub_cpu_s: f64,
}
