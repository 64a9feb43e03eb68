//! Capacity planner behind `antiphon plan`: from users to machines, latency, cost and configuration files.
//!
//! ```text
//! profile + demand -> size (queueing -> latency) -> cost -> text, JSON, configuration files
//! ```
//!
//! Everything here is computed: nothing is measured, started or asked over a network, and the same input gives the same
//! output. What was not measured is listed as an assumption.

mod cards;
mod configs;
mod cost;
mod latency;
mod profile;
mod queueing;
mod render;
mod size;
#[cfg(test)]
mod tests;

pub use cards::{CARDS, Card, on_card};
pub use configs::{ConfigFile, write};
pub use cost::{Cost, PricedMachine, Prices};
pub use latency::{Latency, LoadState, Turns, loaded, unloaded};
pub use profile::{
    BUILT_IN, Conversation, HubProfile, Machine, NatsProfile, Needs, Profile, RunPoint, Service, SlotPoint, Source,
    SpeculationProfile, StageProfile, TurnProfile,
};
pub use queueing::{QueueWait, StageState};
pub use size::{HubSize, MAX_UTILIZATION, SizedStage, Sizing, StageSize, Verdict};

use serde::Serialize;
use std::path::PathBuf;

/// What is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Demand {
    /// Users.
    pub users: u64,
    /// Share of them whose session is open at the peak, 0 to 1.
    pub peak: f64,
    /// Voice-to-voice latency that is kept, in milliseconds.
    pub objective_ms: f64,
    /// Share of the turns that keep it, 0 to 1.
    pub share: f64,
    /// Spare machines of each kind of process: how many may fail at the peak.
    pub spare: usize,
}

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityPlan {
    /// The profile, with the machines of the price table.
    pub profile: Profile,
    /// What is to be served.
    pub demand: Demand,
    /// What it takes.
    pub sized: Sizing,
    /// What that costs; absent without a price table.
    pub cost: Option<Cost>,
}

/// A plan of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePlan {
    /// The profile, with the machines of the price table.
    pub profile: Profile,
    /// What is to be served.
    pub demand: Demand,
    /// What it takes.
    pub sized: SizedStage,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The profile cannot be used; the text names the figure.
    #[error("the profile: {0}")]
    Profile(String),
    /// The price table cannot be used; the text says why.
    #[error("the price table: {0}")]
    Prices(String),
    /// The card is not known, or the profile cannot be estimated for it; the text says why.
    #[error("the card: {0}")]
    Card(String),
    /// The stage cannot be planned alone; the text says why.
    #[error("the stage: {0}")]
    Stage(String),
    /// A machine is too small.
    #[error("the machine {machine:?} is too small for {what}")]
    TooSmall {
        /// Its kind.
        machine: String,
        /// What does not fit.
        what: String,
    },
    /// A file of the configuration cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Makes a plan. Takes about a second, without any wait.
///
/// # Errors
/// A machine is too small, or has no price. An objective that cannot be kept is part of the plan.
pub fn plan(profile: Profile, demand: Demand, prices: Option<&Prices>) -> Result<CapacityPlan, PlanError> {
    let profile = prices.map_or_else(|| profile.clone(), |prices| prices.apply(profile.clone()));
    let sized = size::size(&profile, &demand)?;
    let cost = prices.map(|prices| prices.cost(&profile, &sized)).transpose()?;
    Ok(CapacityPlan { profile, demand, sized, cost })
}

/// Makes a plan of one stage: `stt`, `llm` or `tts`. The others never wait in it, so that the stage has all of the objective's
/// reserve to itself. Takes at most about a second, without any wait.
///
/// # Errors
/// There is no such stage to size, or a machine is too small. An objective that cannot be kept is part of the plan.
pub fn plan_stage(
    profile: Profile,
    demand: Demand,
    prices: Option<&Prices>,
    stage: &str,
) -> Result<StagePlan, PlanError> {
    let profile = prices.map_or_else(|| profile.clone(), |prices| prices.apply(profile.clone()));
    let sized = size::size_stage(&profile, &demand, stage)?;
    Ok(StagePlan { profile, demand, sized })
}

impl CapacityPlan {
    /// Whether the objective is kept.
    pub fn is_feasible(&self) -> bool {
        self.sized.verdict == Verdict::Feasible
    }

    /// The configuration files.
    pub fn files(&self) -> Vec<ConfigFile> {
        configs::files(&self.profile, &self.demand, &self.sized)
    }
}
