//! The numbers this hub promises, measured: what `antiphon-bench` runs.
//!
//! `cli` calls [`run`] with a [`Plan`] and the program that starts a hub. Each measure is one file and gives a
//! [`Section`] of the [`Report`]. A hub under measurement is a process of its own ([`hub`]), so that its memory and its
//! processor time are counted without those of the clients; the clients here are those of [`antiphon_client`]. Nothing
//! here prints, and no figure is filled in: what could not be measured says why instead.
//!
//! How each figure is taken stands at the head of its file. All of them share the machine with the clients that take
//! them and with whatever else runs, so each section says how much of the processors other programs used meanwhile.

mod barge_in;
pub mod cli;
mod engines;
mod error;
mod hub;
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
mod report;
pub mod stages;
mod talker;
mod voice_to_voice;
mod whisper;

pub use error::BenchError;
pub use hub::{Engines, Hub, HubCommand};
pub use percentiles::Waits;
pub use process::Process;
pub use report::{Figure, Gate, Report, Section, Unit};

use machine::Machine;
use std::path::PathBuf;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// From the last word of a question to the first sound of the answer, with the offline engines.
    VoiceToVoice,
    /// What the hub adds by itself, with engines that take no time.
    OwnShare,
    /// How fast a reply stops when somebody speaks.
    BargeIn,
    /// Memory of sessions and of idle connections.
    Memory,
    /// With mock engines over HTTP that take no time, one session and a hundred on one core.
    Mocks,
    /// With mock engines that take their time, with answers begun on a guess and without.
    Guesses,
    /// The Whisper engine beside whisper.cpp itself.
    Whisper,
    /// What neural voices cost beside their models, and what a batch is worth.
    Engines,
    /// What the detectors take for speech, and what they make of speech in noise.
    Noise,
}

impl Measure {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 9] = [
        Self::VoiceToVoice,
        Self::OwnShare,
        Self::BargeIn,
        Self::Memory,
        Self::Mocks,
        Self::Guesses,
        Self::Whisper,
        Self::Engines,
        Self::Noise,
    ];

    /// What it is called: on the command line, in the table, in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::VoiceToVoice => "voice-to-voice",
            Self::OwnShare => "own-share",
            Self::BargeIn => "barge-in",
            Self::Memory => "memory",
            Self::Mocks => "mocks",
            Self::Guesses => "guesses",
            Self::Whisper => "whisper",
            Self::Engines => "engines",
            Self::Noise => "noise",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In this order.
    pub measures: Vec<Measure>,
    /// Fewer turns: a look, not a result.
    pub quick: bool,
    /// WAV files of speech for the measures in noise; `None`: flite speaks.
    pub clips: Option<PathBuf>,
    /// Starts a hub to measure.
    pub hub: HubCommand,
    /// Starts mock engines for one.
    pub mock: HubCommand,
}

impl Plan {
    /// `full` turns, or a third of them in a quick run.
    fn turns(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(3) } else { full }
    }
}

/// Where progress is told: one short line that replaces the last one.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Takes the measures one after the other, about half a minute each. Dropping the future ends the hubs it started.
///
/// A measure that fails is in the report with its reason, and the others are still taken.
pub async fn run(plan: &Plan, progress: Progress<'_>) -> Report {
    let mut report = Report::new(plan.quick);
    for measure in &plan.measures {
        let before = Machine::now();
        let taken = match measure {
            Measure::VoiceToVoice => voice_to_voice::measure(plan, progress).await,
            Measure::OwnShare => own_share::measure(plan, progress).await,
            Measure::BargeIn => barge_in::measure(plan, progress).await,
            Measure::Memory => memory::measure(plan, progress).await,
            Measure::Mocks => mocks::measure(plan, progress).await,
            Measure::Guesses => mocks::guesses(plan, progress).await,
            Measure::Whisper => whisper::measure(plan, progress).await,
            Measure::Engines => engines::measure(plan, progress).await,
            Measure::Noise => noise::measure(plan, progress).await,
        };
        let (mut section, children_s) = match taken {
            Ok(taken) => (taken.section, taken.hub_cpu_s),
            Err(error) => (Section::failed(measure.name(), &error), 0.0),
        };
        section.others = before.zip(Machine::now()).map(|(before, after)| after.others_since(&before, children_s));
        report.sections.push(section);
    }
    report
}

/// A section, and what its hubs cost.
struct Taken {
    section: Section,
    /// Processor seconds of the hubs it started.
    hub_cpu_s: f64,
}
