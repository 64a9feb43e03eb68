//! `antiphon-bench stress`: how many sessions a server serves, and what happens beyond that.

use super::cluster::CostArgs;
use super::{hub_command, progress};
use crate::load::Clips;
use crate::stress::{self, Calibration, KnownEngines, KnownStage, Mix, StressPlan, StressReport};
use crate::{BenchError, Hub, Process, Report, cluster, name_of};
use antiphon::cli::target::{Mode, Target, failure};
use antiphon::cli::{CliError, blocking, print};
use antiphon_planner::Profile;
use antiphon_text::{Chunker, Language};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Sessions whose questions are spoken by flite: the most different ones.
const SPOKEN: usize = 48;

/// Timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Options of the phases, which `--calibrate` does not have; nor does it mix in other sessions.
const OF_PHASES: [&str; 12] = [
    "url",
    "objective_ms",
    "sessions_from",
    "most",
    "step",
    "spike",
    "spike_seconds",
    "soak",
    "barge_in",
    "slow_readers",
    "bad_network",
    "html",
];

/// The server, the load and its phases.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench stress --html stress.html                   a new hub with simulated engines, about four minutes
  antiphon-bench stress --engines shipped --sessions-from 2 --barge-in 0.2 --slow-readers 0.1 --bad-network 0.1
  antiphon-bench stress --url http://127.0.0.1:8080 --pid $(pgrep -x antiphon) --clips recordings/ --soak 30
  antiphon-bench stress --profile-out measured.json          and then: antiphon plan --profile measured.json
  antiphon-bench stress --calibrate --json calibration.json  the planner's model against loads, without phases

The phases: climb (doubling, then bisection, until p95 of voice-to-voice breaks the objective), hold at 80 % of what was
found, spike (--spike times those sessions come within a second and leave), soak. Sessions on a bad network and slow
readers are mixed in and do not count for the objective. Refusals are counted apart: how fast they came, and their
Retry-After. The conversations and latencies are those of `antiphon-bench voice`.

The simulated engines sleep for --run-ms a run, in which up to --batch requests of an instance share a word; they use no
processor, so that what is measured is the hub and the queueing for slots. --profile-out and --calibrate start a hub of
their own that does not speculate. With --url set speculation.after_ms = 0 at the server for --profile-out.

Exit codes: 0 done   1 the server serves no session, or with --strict a gate is missed   2 wrong usage
4 the server cannot be reached")]
pub struct StressArgs {
    /// A running server; without it, a hub is started
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    target: Target,
    /// The server's process on this machine, whose CPU time and memory are reported
    #[arg(long, requires = "url")]
    pid: Option<u32>,
    /// The engines of the hub that is started
    #[arg(long, value_enum, default_value_t = EnginesKind::Simulated, conflicts_with = "url")]
    engines: EnginesKind,
    #[command(flatten)]
    costs: CostArgs,
    /// Simulated engines of each stage
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    instances: u16,
    /// Words of a reply of the simulated engines
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=500))]
    reply_words: u16,
    /// A folder of WAV files to speak [default: tones for simulated engines, else questions spoken by flite]
    #[arg(long, value_name = "DIR")]
    clips: Option<PathBuf>,
    /// Voice-to-voice latency that 95 % of the turns keep
    #[arg(long, value_name = "MS", default_value_t = 800)]
    objective_ms: u32,
    /// Sessions to begin with
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    sessions_from: u16,
    /// Sessions at most
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    most: u16,
    /// Duration of each step of the climb
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    step: u32,
    /// Duration of the hold; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    hold: u32,
    /// Sessions during the spike, as a multiple of those held; 1: no spike
    #[arg(long, value_name = "TIMES", default_value_t = 3.0, value_parser = times)]
    spike: f64,
    /// Duration of the spike
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    spike_seconds: u32,
    /// Duration of the soak; 0: none
    #[arg(long, value_name = "MINUTES", default_value_t = 0)]
    soak: u32,
    /// Share of responses that are interrupted: 0.0 to 1.0
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    barge_in: f64,
    /// Share of the sessions that read slowly: 0.0 to 1.0
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    slow_readers: f64,
    /// Share of the sessions on a bad network: 0.0 to 1.0
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    bad_network: f64,
    /// Write a profile for `antiphon plan`; with --calibrate, the calibrated one
    #[arg(long, value_name = "FILE")]
    profile_out: Option<PathBuf>,
    /// For --profile-out of a server or of other engines: utterances recognized at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    stt_slots: u16,
    /// For --profile-out of a server or of other engines: chunks spoken at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    tts_slots: u16,
    /// Compare the planner's model with loads instead: fitted to the first list of sessions
    #[arg(long, conflicts_with_all = OF_PHASES)]
    calibrate: bool,
    /// With --calibrate: the loads that the model is fitted to
    #[arg(long, requires = "calibrate", value_name = "N,N", value_delimiter = ',', default_values_t = [6, 16])]
    fit: Vec<usize>,
    /// With --calibrate: the loads at which it is checked
    #[arg(long, requires = "calibrate", value_name = "N,N", value_delimiter = ',', default_values_t = [3, 10, 20])]
    check: Vec<usize>,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write figures and plots as a self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A few sessions for a few seconds: a check of the program, no result
    #[arg(long)]
    quick: bool,
    /// Exit with 1 when a gate is missed
    #[arg(long)]
    strict: bool,
}

/// The engines of a hub that is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EnginesKind {
    /// Engines of fixed cost that use no processor
    Simulated,
    /// The default engines with the installed models
    Shipped,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "write a share such as 0.1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("write a share from 0.0 to 1.0".into()) }
}

fn times(text: &str) -> Result<f64, String> {
    let times: f64 = text.parse().map_err(|_| "write a number such as 3".to_owned())?;
    if (1.0..=100.0).contains(&times) { Ok(times) } else { Err("write a number from 1 to 100".into()) }
}

pub(super) async fn run(args: StressArgs) -> Result<(), CliError> {
    if args.slow_readers + args.bad_network > 0.9 {
        return Err(CliError::Usage(
            "--slow-readers and --bad-network leave too few sessions: 0.9 together at most".into(),
        ));
    }
    let clips = Arc::new(args.clips().await?);
    if args.calibrate {
        return args.calibrated(&clips).await;
    }
    let hub = args.start(&[format!("slo.voice_to_voice_ms={}", args.objective_ms)]).await?;
    let plan = args.plan(hub.as_ref(), &clips)?;
    let report = stress::run(&plan, &progress).await.map_err(failed);
    if let Some(hub) = hub {
        hub.stop().await;
    }
    let report = report?;
    let profile = match &args.profile_out {
        Some(path) => Some((path, args.profile(&clips, &report).await)),
        None => None,
    };
    progress("");
    let n_missed = args.write_report(&report, &plan)?;
    if let Some((path, profile)) = profile {
        write_profile(path, &profile?)?;
    }
    match report.held {
        None => Err(CliError::Failed("not a single session keeps the objective".into())),
        Some(_) if args.strict && n_missed > 0 => Err(CliError::Failed(format!("{n_missed} gates were missed"))),
        Some(_) => Ok(()),
    }
}

impl StressArgs {
    async fn clips(&self) -> Result<Clips, CliError> {
        if let Some(folder) = self.clips.clone() {
            return blocking(move || Clips::read(&folder)).await?.map_err(failed);
        }
        if self.is_simulated() {
            let n = usize::from(self.most) * 3;
            let word = Duration::from_millis(self.costs.word_ms.into());
            let clips = cluster::clips(n, word).map_err(failed)?;
            // Replies have other words than the ones that can be counted.
            return Ok(clips.uncounted());
        }
        progress("stress: flite speaks the questions");
        Clips::spoken(SPOKEN).await.map_err(failed)
    }

    fn is_simulated(&self) -> bool {
        self.url.is_none() && self.engines == EnginesKind::Simulated
    }

    /// Starts a hub with these settings, unless a server is named.
    async fn start(&self, settings: &[String]) -> Result<Option<Hub>, CliError> {
        if self.url.is_some() {
            return Ok(None);
        }
        let engines = match self.engines {
            EnginesKind::Simulated => crate::Engines::Simulated,
            EnginesKind::Shipped => crate::Engines::Shipped,
        };
        let mut args = vec![name_of(engines)];
        let numbers = [
            ("run-ms", self.costs.run_ms),
            ("batch", self.costs.batch),
            ("word-ms", self.costs.word_ms),
            ("instances", self.instances),
            ("reply-words", self.reply_words),
        ];
        args.extend(numbers.iter().flat_map(|(name, n)| [format!("--{name}"), n.to_string()]));
        args.extend(settings.iter().flat_map(|setting| ["--set".to_owned(), setting.clone()]));
        Hub::spawn(&hub_command("hub")?, &args).await.map(Some).map_err(failed)
    }

    fn plan(&self, hub: Option<&Hub>, clips: &Arc<Clips>) -> Result<StressPlan, CliError> {
        let url = hub.map(|hub| hub.url.clone()).or_else(|| self.url.clone()).expect("one of the two");
        let seconds =
            |full: u32, quick: u32| Duration::from_secs(if self.quick { full.min(quick) } else { full }.into());
        let input = json!({
            "transcription": {"model": "whisper-1"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 200},
        });
        Ok(StressPlan {
            connect: self.target.options(url, Mode::Ga)?,
            process: hub.map(|hub| hub.process).or(self.pid.map(Process)),
            session: json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": input}}}),
            clips: clips.clone(),
            objective: Duration::from_millis(self.objective_ms.into()),
            from: self.sessions_from.into(),
            most: if self.quick { self.sessions_from.into() } else { self.most.into() },
            step: seconds(self.step, 2),
            hold: seconds(self.hold, 2),
            spike: self.spike,
            spike_for: seconds(self.spike_seconds, 2),
            around_spike: seconds(20, 3),
            soak: Duration::from_secs(60 * u64::from(self.soak)),
            spread: seconds(4, 1),
            rest: seconds(3, 0),
            warm_up: usize::from(!self.quick),
            mix: Mix { barge_in: self.barge_in, slow_readers: self.slow_readers, bad_network: self.bad_network },
            patience: RESPONSE_TIMEOUT,
        })
    }

    /// What is known of the engines.
    fn known(&self, speculation_after_ms: f64) -> KnownEngines {
        if !self.is_simulated() {
            let engine = self.url.as_ref().map_or("this hub's engines", |_| "the server's engines").to_owned();
            let slots = |n: u16| KnownStage::Slots { slots: n.into() };
            return KnownEngines {
                engine,
                stt: slots(self.stt_slots),
                tts: slots(self.tts_slots),
                speculation_after_ms,
            };
        }
        let slots = usize::from(self.costs.batch);
        let n_chunks = chunks(usize::from(self.reply_words));
        let tts = KnownStage::Runs {
            slots,
            requests_per_turn: n_chunks as f64,
            runs_per_request: f64::from(self.reply_words) / n_chunks as f64,
        };
        let stt = KnownStage::Runs { slots, requests_per_turn: 1.0, runs_per_request: 1.0 };
        KnownEngines { engine: "simulated engines".into(), stt, tts, speculation_after_ms }
    }

    /// A profile, from one session with a hub that does not speculate.
    async fn profile(&self, clips: &Arc<Clips>, report: &StressReport) -> Result<Profile, CliError> {
        let hub = self.start(&calm()).await?;
        let plan = self.plan(hub.as_ref(), clips)?;
        let after_ms = antiphon::config::Config::default().speculation.after_ms;
        let n_turns = if self.quick { 2 } else { 12 };
        let known = self.known(f64::from(after_ms));
        let profile = stress::measure_profile(&plan, n_turns, &known, report.hold.as_ref(), &progress).await;
        if let Some(hub) = hub {
            hub.stop().await;
        }
        profile.map_err(failed)
    }

    async fn calibrated(&self, clips: &Arc<Clips>) -> Result<(), CliError> {
        let hub = self.start(&calm()).await?;
        let plan = self.plan(hub.as_ref(), clips)?;
        let (n_turns, length) = if self.quick { (2, Duration::from_secs(2)) } else { (15, self.hold()) };
        let loads = stress::Loads { fit: &self.fit, check: &self.check, n_turns, length };
        let known = self.known(0.0);
        let calibrated = stress::calibrate(&plan, &known, self.instances.into(), loads, &progress).await;
        if let Some(hub) = hub {
            hub.stop().await;
        }
        let calibration: Calibration = calibrated.map_err(failed)?;
        let s = length.as_secs();
        let how = format!("{}, {s} s a load; the hub neither speculates nor sheds load", self.engines_shown());
        let report = Report { quick: self.quick, ..Report::of(calibration.section(how)) };
        if let Some(path) = &self.json {
            let mut json = report.json();
            json["calibration"] = calibration.json();
            write(path, &(json.to_string() + "\n"))?;
        }
        if let Some(path) = &self.profile_out {
            write_profile(path, &calibration.profile)?;
        }
        super::write_report(&report, false, self.strict)
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(self.hold.max(1).into())
    }

    fn engines_shown(&self) -> String {
        let CostArgs { run_ms, batch, .. } = self.costs;
        match (&self.url, self.is_simulated()) {
            (Some(url), _) => url.split('?').next().unwrap_or(url).to_owned(),
            (None, true) => format!(
                "a hub with {} simulated engines a stage, runs of {run_ms} ms for up to {batch}, replies of {} words",
                self.instances, self.reply_words
            ),
            (None, false) => format!("a hub with the {:?} engines", self.engines).to_lowercase(),
        }
    }

    /// Describes the run in one line.
    fn how(&self, plan: &StressPlan) -> String {
        let mut how = self.engines_shown();
        let shares = [
            (plan.mix.barge_in, "of the answers are talked over"),
            (plan.mix.slow_readers, "of the sessions read slowly"),
            (plan.mix.bad_network, "of the sessions have a bad network"),
        ];
        for (share, what) in shares.into_iter().filter(|(share, _)| *share > 0.0) {
            how += &format!(", {:.0} % {what}", share * 100.0);
        }
        how + &format!("; spike {} times for {} s", plan.spike, plan.spike_for.as_secs())
    }

    /// Writes and prints the report. Returns the number of missed gates.
    fn write_report(&self, stressed: &StressReport, plan: &StressPlan) -> Result<usize, CliError> {
        let section = stressed.section(self.how(plan));
        if let Some(path) = &self.html {
            write(path, &stress::page(stressed, &section, plan.objective))?;
        }
        let report = Report { quick: self.quick, ..Report::of(section) };
        if let Some(path) = &self.json {
            let mut json: Value = report.json();
            json["stress"] = stressed.json();
            write(path, &(json.to_string() + "\n"))?;
        }
        print::line(&report.table())?;
        Ok(report.n_missed())
    }
}

/// Settings of a hub whose stages follow one another and which refuses nothing.
fn calm() -> [String; 2] {
    ["speculation.after_ms=0", "slo.brownout=false"].map(str::to_owned)
}

/// Chunks that the hub makes of a reply of the simulated engines.
fn chunks(reply_words: usize) -> usize {
    let mut chunker = Chunker::new(Language::English);
    let n = chunker.push(&crate::mock::reply_of("", reply_words)).len();
    (n + chunker.finish().len()).max(1)
}

fn write_profile(path: &Path, profile: &Profile) -> Result<(), CliError> {
    write(path, &(serde_json::to_string_pretty(profile).map_err(|error| CliError::failed(&error))? + "\n"))
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|error| CliError::file("written", path, &error))
}

fn failed(error: BenchError) -> CliError {
    match error {
        BenchError::Client(error) => failure(error),
        error => CliError::failed(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_cut_into_sentences() {
        assert_eq!((chunks(6), chunks(14)), (1, 2));
        assert!(chunks(60) > 4);
    }
}
