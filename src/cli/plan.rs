//! `antiphon plan`: machines, latency, cost and configuration files for a number of users.

use super::{CliError, blocking, print};
use antiphon_planner::{self as planner, BUILT_IN, Card, Demand, PlanError, Prices, Profile};
use clap::Args;
use std::path::{Path, PathBuf};

/// What is to be served, and by what.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon plan --users 50000 --peak 0.1 --objective-ms 800
  antiphon plan --users 10000 --profile measured.json --prices prices.toml --out config
  antiphon plan --users 50000 --stage tts             one stage alone, such as a cluster of voices only
  antiphon plan --objective-ms 1500 --card A10G     an estimate for another GPU
  antiphon plan --show-profile > my.json            figures to replace by your own
  antiphon-bench stress --profile-out measured.json       measures a profile

Nothing is measured here: the plan is computed from a profile by a queueing model (M/G/c, waits by Allen and Cunneen), and
the same input gives the same plan. Figures of the profile that were not measured are listed as assumptions.

--card is an estimate: the times of the stages on GPUs are multiplied by the bandwidth of the memory
of the profile's card divided by that of the one named, and what an instance takes of a card's memory
must fit. The plan lists it among its assumptions.

A price table is a TOML file:
  currency = \"EUR\"
  [machines]
  hub = { cores = 4, memory_gib = 8, price_per_hour = 0.12 }
  gpu = { cores = 16, memory_gib = 64, accelerators = 1, price_per_hour = 1.9 }
  nats = { cores = 2, memory_gib = 4, price_per_hour = 0.05 }

Exit codes: 0 done   1 the objective cannot be kept, or a file cannot be read or written   2 wrong usage")]
pub struct PlanArgs {
    /// Users
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    users: u64,
    /// Share of them whose session is open at the peak: above 0, up to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    peak: f64,
    /// Voice-to-voice latency that the turns keep
    #[arg(long, value_name = "MS", default_value_t = 800, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    objective_ms: u32,
    /// Share of the turns that keep it: above 0, up to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = share)]
    share: f64,
    /// A profile: `gpu`, `processor`, `s1-mini-a10g`, or a file of `antiphon-bench stress --profile-out`
    #[arg(long, value_name = "NAME|FILE", default_value = BUILT_IN[0])]
    profile: String,
    /// Estimate the profile for GPUs of this name; `--card help` lists those that are known
    #[arg(long, value_name = "NAME", value_parser = card)]
    card: Option<Card>,
    /// Machines and their prices, a TOML file
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Spare machines of hubs and of each stage: how many may fail at the peak
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8))]
    spare: u8,
    /// Plan one stage alone; the others never wait then
    #[arg(long, value_name = "STAGE", value_parser = ["stt", "llm", "tts"])]
    stage: Option<String>,
    /// A folder for the configuration files
    #[arg(long, value_name = "FOLDER", conflicts_with = "stage")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print the profile as JSON instead of a plan
    #[arg(long)]
    show_profile: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "write a share such as 0.1".to_owned())?;
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err("write a share above 0.0, up to 1.0".into()) }
}

fn card(name: &str) -> Result<Card, String> {
    Card::named(name).map_err(|error| error.to_string())
}

pub(super) async fn run(args: PlanArgs) -> Result<(), CliError> {
    blocking(move || args.plan()).await?
}

impl PlanArgs {
    fn plan(&self) -> Result<(), CliError> {
        let profile = self.profile()?;
        if self.show_profile {
            return print::json(&serde_json::to_value(&profile).map_err(|error| CliError::failed(&error))?);
        }
        let prices =
            self.prices.as_deref().map(|path| Prices::parse(&read(path)?).map_err(|error| named(path, &error)));
        let demand = Demand {
            users: self.users,
            peak: self.peak,
            objective_ms: self.objective_ms.into(),
            share: self.share,
            spare: self.spare.into(),
        };
        if let Some(stage) = &self.stage {
            let plan = planner::plan_stage(profile, demand, prices.transpose()?.as_ref(), stage).map_err(failed)?;
            match self.json {
                true => print::json(&plan.json())?,
                false => print::line(&plan.text())?,
            }
            return verdict(plan.is_feasible());
        }
        let plan = planner::plan(profile, demand, prices.transpose()?.as_ref()).map_err(failed)?;
        match self.json {
            true => print::json(&plan.json())?,
            false => print::line(&plan.text())?,
        }
        if let Some(folder) = &self.out {
            planner::write(folder, &plan.files()).map_err(failed)?;
        }
        verdict(plan.is_feasible())
    }

    fn profile(&self) -> Result<Profile, CliError> {
        let profile = match Profile::built_in(&self.profile) {
            Some(profile) => profile,
            None => {
                let path = Path::new(&self.profile);
                Profile::parse(&read(path)?).map_err(|error| named(path, &error))?
            }
        };
        match &self.card {
            Some(card) => planner::on_card(profile, card).map_err(failed),
            None => Ok(profile),
        }
    }
}

fn verdict(is_feasible: bool) -> Result<(), CliError> {
    if is_feasible { Ok(()) } else { Err(CliError::Failed("the objective cannot be kept".into())) }
}

fn read(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| CliError::file("read", path, &error))
}

fn named(path: &Path, error: &PlanError) -> CliError {
    CliError::Failed(format!("{}: {error}", path.display()))
}

fn failed(error: PlanError) -> CliError {
    CliError::failed(&error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load_hub};

    #[test]
    fn the_configuration_files_pass_the_check_of_the_hub() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, objective_ms, expect) in [
            ("gpu", 800.0, &["hub.toml", "worker-stt.toml", "worker-tts.toml"][..]),
            ("processor", 3_000.0, &["hub.toml", "worker-stt.toml", "worker-tts.toml"]),
        ] {
            let demand = Demand { users: 50_000, peak: 0.1, objective_ms, share: 0.95, spare: 1 };
            let profile = Profile::built_in(name).expect("built in");
            let plan = planner::plan(profile, demand, None).expect("it can be planned");
            let files = plan.files();
            assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), expect);
            planner::write(&folder.path().join("out"), &files).expect("written");
            for file in &files {
                let path = folder.path().join("out").join(&file.name);
                let sources = Sources { file: Some(path), ..Sources::default() };
                let config = load_hub(&sources).unwrap_or_else(|error| panic!("{}: {error}\n{}", file.name, file.text));
                if file.name == "hub.toml" {
                    assert_eq!(config.server.max_sessions as u64, plan.sized.hubs.max_sessions);
                    assert_eq!(f64::from(config.slo.voice_to_voice_ms), objective_ms);
                    assert_eq!(config.cluster.stages, ["stt", "tts"]);
                }
            }
        }
    }
}
