//! The cost of a plan by a price table, which the user writes as TOML.

use super::PlanError;
use super::profile::{Machine, Profile};
use super::size::Sizing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Hours of a month: a twelfth of 365 days.
const HOURS_A_MONTH: f64 = 730.0;

/// Prices of machines.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Currency of all prices, as it is shown.
    pub currency: String,
    /// Kinds of machines by name. They replace those of the profile of the same name.
    pub machines: BTreeMap<String, PricedMachine>,
}

/// A kind of machine and its price.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PricedMachine {
    /// Cores.
    pub cores: f64,
    /// Memory, in GiB.
    pub memory_gib: f64,
    /// Accelerators, such as GPUs.
    #[serde(default)]
    pub accelerators: f64,
    /// Price an hour.
    pub price_per_hour: f64,
}

/// What the machines of a plan cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Currency.
    pub currency: String,
    /// Each kind: its name, how many, and the price of all of them an hour.
    pub machines: Vec<(String, usize, f64)>,
    /// All an hour, if the peak lasted all day.
    pub per_hour: f64,
    /// All a month of 730 hours.
    pub per_month: f64,
    /// A talking minute.
    pub per_talking_minute: f64,
}

impl Prices {
    /// Reads a price table.
    ///
    /// # Errors
    /// It is not TOML of this form, or a number is negative.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let prices: Self = toml::from_str(text).map_err(|error| PlanError::Prices(error.message().to_owned()))?;
        for (name, machine) in &prices.machines {
            let PricedMachine { cores, memory_gib, accelerators, price_per_hour } = *machine;
            let numbers = [cores, memory_gib, accelerators, price_per_hour];
            if numbers.iter().any(|number| !number.is_finite() || *number < 0.0) || cores == 0.0 {
                return Err(PlanError::Prices(format!("machines.{name}: numbers must be positive")));
            }
        }
        Ok(prices)
    }

    /// The profile with the machines of this table.
    pub fn apply(&self, mut profile: Profile) -> Profile {
        profile.machines.extend(self.machines.iter().map(|(name, priced)| {
            let PricedMachine { cores, memory_gib, accelerators, .. } = *priced;
            (name.clone(), Machine { cores, memory_gib, accelerators })
        }));
        profile
    }

    /// What the machines of a plan cost.
    ///
    /// # Errors
    /// A kind of machine has no price.
    pub fn cost(&self, profile: &Profile, sized: &Sizing) -> Result<Cost, PlanError> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        *counts.entry(&sized.hubs.machine).or_default() += sized.hubs.hubs;
        *counts.entry(&profile.nats.machine).or_default() += sized.nats_servers;
        for stage in &sized.stages {
            if let Some(machine) = &stage.machine {
                *counts.entry(machine).or_default() += stage.machines;
            }
        }
        let priced = |(name, n): (&str, usize)| {
            let machine =
                self.machines.get(name).ok_or_else(|| PlanError::Prices(format!("machines.{name} is missing")))?;
            Ok((name.to_owned(), n, machine.price_per_hour * n as f64))
        };
        let machines = counts.into_iter().filter(|(_, n)| *n > 0).map(priced).collect::<Result<Vec<_>, PlanError>>()?;
        let per_hour: f64 = machines.iter().map(|(.., price)| price).sum();
        Ok(Cost {
            currency: self.currency.clone(),
            machines,
            per_hour,
            per_month: per_hour * HOURS_A_MONTH,
            per_talking_minute: per_hour / 60.0 / sized.talking.max(1) as f64,
        })
    }
}
