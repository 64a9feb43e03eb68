//! `antiphon-bench simulate`: many seeds, one again with its log, or a day's traffic.

use super::progress;
use crate::simulation::{self, Day, DayReport, Outcome, Seeds, Simulated};
use crate::{Figure, Report, Section, Unit};
use antiphon::cli::{CliError, print};
use antiphon_types::BrownoutLevel;
use clap::Args;
use serde_json::{Value, json};

/// Sessions on virtual time.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench simulate --seeds 100000     that many worlds, a thread for each core
  antiphon-bench simulate --seed 4711 --verbose   one of them again, with its whole log
  antiphon-bench simulate --day              24 hours of traffic on a hub with three workers, in some minutes

Each world has its own engines and clients, whose faults come from its seed: late, partial, failing and missing answers, barge-ins,
lost connections, garbage, a session that is ended at any moment. A world that breaks an invariant is printed with its seed.")]
pub struct SimulateArgs {
    /// Worlds to run
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Run this seed alone
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print the whole log of that seed
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// A day's traffic: load monitor, admission, brownout levels and routing under a curve with peaks above capacity
    #[arg(long, conflicts_with_all = ["seeds", "from", "seed"])]
    day: bool,
    /// The day's length in hours of virtual time
    #[arg(long, value_name = "HOURS", requires = "day", default_value_t = 24.0)]
    hours: f64,
    /// Sessions that the day's hub can serve
    #[arg(long, value_name = "N", requires = "day", default_value_t = 20, value_parser = clap::value_parser!(u16).range(10..))]
    peak: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: SimulateArgs) -> Result<(), CliError> {
    if args.day {
        return day(&args).await;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let simulated = blocking(move || match args.seed {
        Some(seed) => Ok(simulation::simulate(seed, args.verbose)),
        None => Err(simulation::run(Seeds { from: args.from, n: args.seeds, threads }, &|n| {
            progress(&format!("{n} worlds"))
        })),
    });
    match simulated.await? {
        Ok(outcome) => write_one(&outcome, &args),
        Err(simulated) => write_report(&simulated, &args),
    }
}

async fn day(args: &SimulateArgs) -> Result<(), CliError> {
    if !(0.1..=240.0).contains(&args.hours) {
        return Err(CliError::Failed("--hours is from 0.1 to 240".into()));
    }
    let day = Day { hours: args.hours, peak: args.peak.into(), seed: 1 };
    let run = move || simulation::simulate_day(day, &|hour| progress(&format!("{hour:.0} o'clock")));
    let report = blocking(run).await?;
    super::write_report(&Report::of(section(&day, &report)), args.json, true)
}

/// The gates of a day.
fn section(day: &Day, report: &DayReport) -> Section {
    let hub = format!("{} h, a hub for {} sessions, seed {}", day.hours, day.peak, day.seed);
    let mut section = Section::new("day", format!("{hub}: virtual time, real sessions, load monitor and levels"));
    let count = |name: &str, n: usize| Figure::new(name, Unit::Count, n as f64, 1);
    let p95 = |name: &str, ms: f64, n: usize| Figure::new(name, Unit::Ms, ms, n);
    let DayReport { early, late, peaks, .. } = *report;
    let drift = Figure::new("p95 drift between both", Unit::Of("%"), report.drift() * 100.0, early.1.min(late.1));
    section.figures = vec![
        count("sessions admitted", report.admitted),
        count("sessions refused", report.refused),
        count("sessions lost", report.lost).at_most(0.0),
        count("turns", report.turns),
        count("turns interrupted", report.interrupted),
        count("requests of a lost worker begun again", report.retried),
        p95("voice to voice early p95", early.0, early.1),
        p95("voice to voice late p95", late.0, late.1),
        drift.at_most(10.0),
        p95("voice to voice at the peaks p95", peaks.0, peaks.1),
        count("most sessions", report.most_sessions).at_most(day.peak as f64),
        count("highest brownout level", report.highest.number().into())
            .at_least(BrownoutLevel::NoSessions.number().into()),
        count("changes of the level", report.changes),
        count("level at the end", report.last.number().into()).at_most(0.0),
        count("tasks, sessions and requests left", report.left).at_most(0.0),
        Figure::new("real time", Unit::Of("s"), report.took.as_secs_f64(), 1).at_most(600.0),
    ];
    if let Some((before, after)) = report.memory.filter(|(before, after)| *before > 0 && *after > 0) {
        let growth = (after as f64 - before as f64) / 1024.0;
        section
            .figures
            .push(Figure::new("memory from the early to the late hours", Unit::KiB, growth, 1).at_most(8_192.0));
    }
    section
}

/// A world has a runtime of its own, which cannot run within another one.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CliError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| CliError::failed(&error))
}

fn write_one(outcome: &Outcome, args: &SimulateArgs) -> Result<(), CliError> {
    match args.json {
        true => print::json(&shown(outcome))?,
        false => {
            let lines = if args.verbose { outcome.log.as_slice() } else { &[] };
            lines.iter().try_for_each(|line| print::line(line))?;
            print::line(&format!(
                "seed {}: log {:016x}, {} violations",
                outcome.seed,
                outcome.hash,
                outcome.violations.len()
            ))?;
        }
    }
    failed(&outcome.violations)
}

fn write_report(simulated: &Simulated, args: &SimulateArgs) -> Result<(), CliError> {
    progress("");
    let Simulated { n_done, n_compared, took, failed: worlds } = simulated;
    if args.json {
        print::json(&json!({
            "worlds": n_done,
            "compared": n_compared,
            "seconds": took.as_secs_f64(),
            "seeds_an_hour": simulated.seeds_an_hour(),
            "failed": worlds.iter().map(shown).collect::<Vec<_>>(),
        }))?;
    } else {
        for world in worlds {
            print::line(&format!("seed {}:", world.seed))?;
            world.log.iter().try_for_each(|line| print::line(line))?;
        }
        let seconds = took.as_secs_f64();
        let speed = simulated.seeds_an_hour();
        print::line(&format!(
            "{n_done} worlds in {seconds:.1} s ({speed:.0} an hour), {n_compared} of them twice; {} broke an invariant",
            worlds.len()
        ))?;
    }
    let violations: Vec<String> =
        worlds.iter().map(|world| format!("seed {}: {}", world.seed, world.violations.join("; "))).collect();
    failed(&violations)
}

fn failed(violations: &[String]) -> Result<(), CliError> {
    match violations.is_empty() {
        true => Ok(()),
        false => Err(CliError::Failed(violations.join("\n"))),
    }
}

fn shown(outcome: &Outcome) -> Value {
    let Outcome { seed, violations, log, hash } = outcome;
    json!({"seed": seed, "violations": violations, "hash": format!("{hash:016x}"), "log": log})
}
