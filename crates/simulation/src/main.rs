//! The program `antiphon-simulate`: many seeds, one again with its log, or a day's traffic.

use antiphon::cli::{CliError, DefaultLog, print};
use antiphon_simulation::{Day, DayReport, Outcome, Seeds, Simulated, run, simulate, simulate_day};
use antiphon_types::BrownoutLevel;
use clap::Parser;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Sessions on virtual time, with faults drawn from seeds; a day's traffic on a cluster of engine workers
#[derive(Debug, Parser)]
#[command(
    name = "antiphon-simulate",
    version,
    after_help = "\
Examples:
  antiphon-simulate --seeds 100000     that many worlds, a thread for each core
  antiphon-simulate --seed 4711 --verbose   one of them again, with its whole log
  antiphon-simulate --day              24 hours of traffic on a hub with three workers, in some minutes

Each world has its own engines and clients, whose faults come from its seed: late, partial, failing and missing answers, barge-ins,
lost connections, garbage, a session that is ended at any moment. A world that breaks an invariant is printed with its seed."
)]
struct Cli {
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

fn main() -> ExitCode {
    let args = Cli::parse();
    // A world has a runtime of its own, which cannot run within another one.
    let work = async move {
        let done = tokio::task::spawn_blocking(move || work(&args)).await;
        done.map_err(|error| CliError::failed(&error))?
    };
    antiphon::cli::main(false, DefaultLog::Nothing, Box::pin(work))
}

fn work(args: &Cli) -> Result<(), CliError> {
    if args.day {
        return day(args);
    }
    if let Some(seed) = args.seed {
        return write_one(&simulate(seed, args.verbose), args);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let seeds = Seeds { from: args.from, n: args.seeds, threads };
    write_report(&run(seeds, &|n| progress(&format!("{n} worlds"))), args)
}

/// Shows how far it is, in place of what was shown before; on a terminal alone.
fn progress(line: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        // A closed stderr must not stop the worlds.
        let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
    }
}

fn day(args: &Cli) -> Result<(), CliError> {
    if !(0.1..=240.0).contains(&args.hours) {
        return Err(CliError::Failed("--hours is from 0.1 to 240".into()));
    }
    let day = Day { hours: args.hours, peak: args.peak.into(), seed: 1 };
    let report = simulate_day(day, &|hour| progress(&format!("{hour:.0} o'clock")));
    progress("");
    let figures = figures(&day, &report);
    if args.json {
        let shown =
            |figure: &Figure| json!({"name": figure.name, "value": figure.value, "bound": figure.bound_shown()});
        print::json(&json!({ "figures": figures.iter().map(shown).collect::<Vec<_>>() }))?;
    } else {
        for figure in &figures {
            print::line(&format!("{:48}{:12.1}  {}", figure.name, figure.value, figure.bound_shown()))?;
        }
    }
    failed(figures.iter().filter(|figure| !figure.is_kept()).map(|figure| format!("{} is out of bounds", figure.name)))
}

/// A figure of a day.
struct Figure {
    name: &'static str,
    value: f64,
    bound: Option<RangeInclusive<f64>>,
}

impl Figure {
    fn is_kept(&self) -> bool {
        self.bound.as_ref().is_none_or(|bound| bound.contains(&self.value))
    }

    fn bound_shown(&self) -> String {
        self.bound.as_ref().map_or_else(String::new, |bound| format!("{} to {}", bound.start(), bound.end()))
    }
}

fn figures(day: &Day, report: &DayReport) -> Vec<Figure> {
    let count = |name, n: usize| Figure { name, value: n as f64, bound: None };
    let bound = |name, value: f64, bound| Figure { name, value, bound: Some(bound) };
    let no_sessions = f64::from(BrownoutLevel::NoSessions.number());
    let mut figures = vec![
        count("sessions admitted", report.admitted),
        count("sessions refused", report.refused),
        bound("sessions lost", report.lost as f64, 0.0..=0.0),
        count("turns", report.turns),
        count("turns interrupted", report.interrupted),
        count("requests of a lost worker begun again", report.retried),
        Figure { name: "voice to voice early p95, ms", value: report.early.0, bound: None },
        Figure { name: "voice to voice late p95, ms", value: report.late.0, bound: None },
        bound("p95 drift between both, %", report.drift() * 100.0, 0.0..=10.0),
        Figure { name: "voice to voice at the peaks p95, ms", value: report.peaks.0, bound: None },
        bound("most sessions", report.most_sessions as f64, 0.0..=day.peak as f64),
        bound("highest brownout level", report.highest.number().into(), no_sessions..=f64::MAX),
        count("changes of the level", report.changes),
        bound("level at the end", report.last.number().into(), 0.0..=0.0),
        bound("tasks, sessions and requests left", report.left as f64, 0.0..=0.0),
        bound("real time, s", report.took.as_secs_f64(), 0.0..=600.0),
    ];
    if let Some((before, after)) = report.memory.filter(|(before, after)| *before > 0 && *after > 0) {
        let growth_kib = (after as f64 - before as f64) / 1024.0;
        figures.push(bound("memory from the early to the late hours, KiB", growth_kib, f64::MIN..=8_192.0));
    }
    figures
}

fn write_one(outcome: &Outcome, args: &Cli) -> Result<(), CliError> {
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
    failed(outcome.violations.iter().cloned())
}

fn write_report(simulated: &Simulated, args: &Cli) -> Result<(), CliError> {
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
    failed(worlds.iter().map(|world| format!("seed {}: {}", world.seed, world.violations.join("; "))))
}

fn failed(violations: impl Iterator<Item = String>) -> Result<(), CliError> {
    let violations: Vec<String> = violations.collect();
    if violations.is_empty() { Ok(()) } else { Err(CliError::Failed(violations.join("\n"))) }
}

fn shown(outcome: &Outcome) -> Value {
    let Outcome { seed, violations, log, hash } = outcome;
    json!({"seed": seed, "violations": violations, "hash": format!("{hash:016x}"), "log": log})
}
