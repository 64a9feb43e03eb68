//! From the number of users to machines: sessions, hubs, instances of each stage, NATS servers, memory and network.
//!
//! Each stage begins with the fewest instances that keep it below [`MAX_UTILIZATION`]; while the objective is not kept, the
//! stage gets more whose next instances gain most, each. What cannot be kept with any number is infeasible, and the part that
//! prevents it is named.

use super::latency::{self, Latency, LoadState, Turns};
use super::profile::{HubProfile, Machine, Needs, Profile, Service, StageProfile};
use super::{Demand, PlanError, queueing};
use serde::Serialize;

/// Utilization of a stage that is planned at most: what is left absorbs bursts that are shorter than the start of a worker.
pub const MAX_UTILIZATION: f64 = 0.85;

/// Share of a hub's processor that is planned: `slo.processor_share` (0.9) with a fifth as reserve.
pub const HUB_PROCESSOR: f64 = 0.72;

/// Share of a machine's memory that is planned; the rest is the system's.
const MEMORY: f64 = 0.8;

/// Processor of a NATS server that is planned, in cores.
const NATS_CORES: f64 = 2.0;

/// NATS servers of a cluster that survives the loss of one.
const NATS_SERVERS: usize = 3;

/// The most decoders of a worker, and the most instances: bounds of `stt.decoders` and `tts.replicas`.
pub(super) const MAX_PER_WORKER: usize = 64;

/// Workers and hubs that one cluster knows (`crates/cluster/src/hub`).
const MAX_WORKERS: usize = 1_024;
const MAX_HUBS: usize = 256;

/// Sessions that are sized at once. More are divided into equal parts, each of which gets machines of its own: beyond this many a
/// larger part saves nothing, and the queueing model would take minutes.
const MAX_SESSIONS: f64 = 50_000.0;

/// Gain, in milliseconds, below which more instances do not help.
const NO_GAIN_MS: f64 = 0.2;

/// Part of a stage's instances that is added at a time.
const GROWTH: f64 = 0.04;

/// Steps of the search at most.
const STEPS: usize = 400;

/// What a demand takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// Sessions that are open at the peak.
    pub sessions: u64,
    /// Those in which a conversation goes on.
    pub talking: u64,
    /// Turns a second.
    pub turns_per_second: f64,
    /// Whether the objective is kept; if not, what prevents it.
    pub verdict: Verdict,
    /// Latency with the spare machines away; absent where a stage cannot serve the load.
    pub latency: Option<Latency>,
    /// Hubs.
    pub hubs: HubSize,
    /// Stages, in the order of a turn.
    pub stages: Vec<StageSize>,
    /// NATS servers; 0 where no stage runs on workers.
    pub nats_servers: usize,
    /// Processor time of all NATS servers, in cores.
    pub nats_cores: f64,
    /// Clusters that these machines are divided into, each with hubs, workers and NATS servers of its own.
    pub clusters: usize,
    /// Equal parts of at most 50,000 sessions, each with NATS servers and spare machines of its own.
    pub parts: usize,
    /// What all clients send, in Mbit/s.
    pub up_mbit_s: f64,
    /// What all clients receive, in Mbit/s.
    pub down_mbit_s: f64,
}

/// Whether the objective is kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// It is.
    Feasible,
    /// It is not, with any number of machines.
    Infeasible {
        /// The part that takes most of the time.
        part: &'static str,
        /// Why, in words.
        reason: String,
    },
}

/// The hubs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HubSize {
    /// Hubs with the spare ones.
    pub hubs: usize,
    /// Of them spare.
    pub spare: usize,
    /// Sessions of a hub when the spare ones are away: `server.max_sessions`.
    pub max_sessions: u64,
    /// Processor time of a hub at that, in cores.
    pub cores: f64,
    /// Memory of a hub at that, in GiB.
    pub memory_gib: f64,
    /// Kind of the machine.
    pub machine: String,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageSize {
    /// `stt`, `llm` or `tts`.
    pub stage: &'static str,
    /// Its engine.
    pub engine: String,
    /// Requests a second.
    pub requests_per_second: f64,
    /// Instances with the spare ones; absent for servers of others.
    pub instances: Option<usize>,
    /// Share of the slots in use, with the spare instances away.
    pub utilization: f64,
    /// Requests that share an instance.
    pub batch: f64,
    /// Probability that a request waits for a slot.
    pub waits: f64,
    /// From a slot to the first output, mean, in milliseconds.
    pub first_ms: f64,
    /// Machines with the spare ones.
    pub machines: usize,
    /// Of them spare.
    pub spare: usize,
    /// Kind of the machine; absent for servers of others.
    pub machine: Option<String>,
    /// Accelerators of all machines.
    pub accelerators: f64,
}

/// One stage alone: the others never wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizedStage {
    /// Sessions that are open at the peak.
    pub sessions: u64,
    /// Those in which a conversation goes on.
    pub talking: u64,
    /// Turns a second.
    pub turns_per_second: f64,
    /// Whether the objective is kept; if not, what prevents it.
    pub verdict: Verdict,
    /// Latency with the spare machines away; absent where the stage cannot serve the load.
    pub latency: Option<Latency>,
    /// The stage.
    pub stage: StageSize,
}

/// Sizes one stage for a demand, as if the others had an instance for each session.
///
/// # Errors
/// The profile has no stage of this name, or one that is a server of others; a machine is too small for one instance.
pub fn size_stage(profile: &Profile, demand: &Demand, stage: &str) -> Result<SizedStage, PlanError> {
    let stages = profile.stages();
    let at = stages.iter().position(|(name, _)| *name == stage);
    let at = at.ok_or_else(|| PlanError::Stage(format!("{stage:?} is none; they are stt, llm and tts")))?;
    let (name, of) = stages[at];
    if of.is_external() {
        return Err(PlanError::Stage(format!(
            "{name} is a server of others in this profile: there is nothing to size"
        )));
    }
    let sessions = (demand.users as f64 * demand.peak).ceil().max(1.0);
    let parts = (sessions / MAX_SESSIONS).ceil() as usize;
    if parts > 1 {
        let users = demand.users.div_ceil(parts as u64);
        return Ok(size_stage(profile, &Demand { users, ..*demand }, stage)?.times(parts));
    }
    let talking = (sessions * profile.conversation.talking_share).ceil();
    let (mut counts, verdict) = match instances(profile, demand, talking, Some(at)) {
        Ok(needed) => (needed, Verdict::Feasible),
        Err(Infeasible { needed, verdict }) => (needed, verdict),
    };
    let each = fitting(profile, name, of)?.unwrap_or(1);
    counts[at] = counts[at].div_ceil(each) * each;
    let loaded = latency::loaded(profile, talking, counts).map_err(|_| ());
    let loaded_or = loaded.clone().unwrap_or_else(|()| latency::unloaded(profile));
    Ok(SizedStage {
        sessions: sessions as u64,
        talking: talking as u64,
        turns_per_second: loaded_or.turns_hz,
        verdict,
        latency: loaded.ok().map(|loaded| Turns::draw(profile, &loaded.stages).latency()),
        stage: stage_size(profile, demand, name, of, counts[at], &loaded_or, at)?,
    })
}

impl SizedStage {
    /// The same for `parts` of it, beside one another.
    fn times(mut self, parts: usize) -> Self {
        self.sessions *= parts as u64;
        self.talking *= parts as u64;
        self.turns_per_second *= parts as f64;
        self.stage.multiply(parts);
        self
    }
}

impl StageSize {
    /// The same for `parts` of it, beside one another.
    fn multiply(&mut self, parts: usize) {
        self.requests_per_second *= parts as f64;
        self.instances = self.instances.map(|n| n * parts);
        self.machines *= parts;
        self.spare *= parts;
        self.accelerators *= parts as f64;
    }
}

/// Sizes everything for a demand.
///
/// # Errors
/// A machine is too small for one instance, or for one session.
pub fn size(profile: &Profile, demand: &Demand) -> Result<Sizing, PlanError> {
    let sessions = (demand.users as f64 * demand.peak).ceil().max(1.0);
    let parts = (sessions / MAX_SESSIONS).ceil() as usize;
    if parts > 1 {
        let users = demand.users.div_ceil(parts as u64);
        return Ok(size(profile, &Demand { users, ..*demand })?.times(parts));
    }
    let talking = (sessions * profile.conversation.talking_share).ceil();
    let needed = instances(profile, demand, talking, None);
    let (needed, verdict) = match needed {
        Ok(needed) => (needed, Verdict::Feasible),
        Err(Infeasible { needed, verdict }) => (needed, verdict),
    };
    // Machines are filled.
    let mut instances = needed;
    for (at, (name, stage)) in profile.stages().into_iter().enumerate() {
        let each = fitting(profile, name, stage)?.unwrap_or(1);
        instances[at] = needed[at].div_ceil(each) * each;
    }
    let loaded = latency::loaded(profile, talking, instances).map_err(|_| ());
    let loaded_or = loaded.clone().unwrap_or_else(|()| latency::unloaded(profile));
    let turns_hz = loaded_or.turns_hz;
    let mut stages = Vec::new();
    for (at, (name, stage)) in profile.stages().into_iter().enumerate() {
        stages.push(stage_size(profile, demand, name, stage, instances[at], &loaded_or, at)?);
    }
    let has_workers = stages.iter().any(|stage| stage.stage != "llm" && stage.machines > 0);
    let streams = turns_hz * (profile.conversation.speech_s + profile.conversation.reply_s);
    let nats_cores = if has_workers { streams * profile.nats.stream_cores } else { 0.0 };
    let nats_servers = if has_workers { NATS_SERVERS.max((nats_cores / NATS_CORES).ceil() as usize + 1) } else { 0 };
    let workers: usize = stages.iter().filter(|stage| stage.stage != "llm").map(|stage| stage.machines).sum();
    let hubs = hub_size(profile, demand, sessions)?;
    let share_of_replies = (turns_hz / sessions * profile.conversation.reply_s).min(1.0);
    Ok(Sizing {
        sessions: sessions as u64,
        talking: talking as u64,
        turns_per_second: turns_hz,
        latency: loaded.ok().map(|loaded| Turns::draw(profile, &loaded.stages).latency()),
        verdict,
        clusters: workers.div_ceil(MAX_WORKERS).max(hubs.hubs.div_ceil(MAX_HUBS)).max(1),
        parts: 1,
        hubs,
        stages,
        nats_servers,
        nats_cores,
        up_mbit_s: sessions * profile.hub.up_kbit_s / 1e3,
        down_mbit_s: sessions * share_of_replies * profile.hub.down_kbit_s / 1e3,
    })
}

impl Sizing {
    /// The same for `parts` of it, beside one another.
    fn times(mut self, parts: usize) -> Self {
        let factor = parts as f64;
        self.sessions *= parts as u64;
        self.talking *= parts as u64;
        self.turns_per_second *= factor;
        self.hubs.hubs *= parts;
        self.hubs.spare *= parts;
        for stage in &mut self.stages {
            stage.multiply(parts);
        }
        self.nats_servers *= parts;
        self.nats_cores *= factor;
        self.clusters *= parts;
        self.parts *= parts;
        self.up_mbit_s *= factor;
        self.down_mbit_s *= factor;
        self
    }
}

struct Infeasible {
    /// The instances that were found.
    needed: [usize; 3],
    verdict: Verdict,
}

/// The instances of each stage that keep the objective. `only`: of this stage; the others have an instance for each session, so
/// that nothing waits for them.
fn instances(profile: &Profile, demand: &Demand, talking: f64, only: Option<usize>) -> Result<[usize; 3], Infeasible> {
    let turns_hz = talking * profile.conversation.turns_per_minute / 60.0;
    let mut counts = [talking as usize; 3];
    for (at, (_, stage)) in profile.stages().into_iter().enumerate() {
        if only.is_none_or(|only| only == at) {
            counts[at] = fewest(stage, turns_hz, talking as usize);
        }
    }
    let state = |counts: [usize; 3]| latency::loaded(profile, talking, counts).map_err(|_| ());
    let calm = latency::unloaded(profile);
    let best = Turns::draw(profile, &calm.stages).at(demand.share);
    if best > demand.objective_ms {
        let verdict = prevented(profile, demand, best);
        return Err(Infeasible { needed: counts, verdict });
    }
    let latency_with = |counts: [usize; 3]| {
        state(counts).map_or(f64::INFINITY, |loaded| Turns::draw(profile, &loaded.stages).at(demand.share))
    };
    let mut reached = latency_with(counts);
    for _ in 0..STEPS {
        if reached <= demand.objective_ms {
            return Ok(counts);
        }
        let may_grow = |at: &usize| only.is_none_or(|only| only == *at) && !profile.stages()[*at].1.is_external();
        let grown = (0..3).filter(may_grow).map(|at| {
            let mut more = counts;
            let added = ((counts[at] as f64 * GROWTH) as usize).max(1);
            more[at] += added;
            let now = latency_with(more);
            // Without a latency so far any is a gain.
            let gain_ms = if reached.is_infinite() { f64::MAX - now } else { reached - now };
            (gain_ms / added as f64, now, more)
        });
        match grown.max_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((_, now, more)) if now < reached - NO_GAIN_MS || reached.is_infinite() => {
                reached = now;
                counts = more;
            }
            _ => break,
        }
    }
    let verdict = prevented(profile, demand, reached);
    Err(Infeasible { needed: counts, verdict })
}

/// The fewest instances of a stage that stay below the planned utilization.
fn fewest(stage: &StageProfile, turns_hz: f64, sources: usize) -> usize {
    let rate_hz = turns_hz * stage.requests_per_turn;
    let serves = |n: usize| {
        queueing::solve(stage, n, rate_hz, sources).is_some_and(|state| state.utilization <= MAX_UTILIZATION)
    };
    let mut enough = 1;
    while !serves(enough) && enough < usize::MAX / 4 {
        enough *= 2;
    }
    // Between half of it, which does not serve, and it.
    let mut too_few = enough / 2;
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if serves(middle) { enough = middle } else { too_few = middle }
    }
    enough
}

/// Which part of a turn prevents the objective.
fn prevented(profile: &Profile, demand: &Demand, best_ms: f64) -> Verdict {
    const PARTS: [&str; 5] = ["the wait for the end of the turn", "stt", "llm", "tts", "the hub and the network"];
    let calm = latency::unloaded(profile).stages;
    let saved = |part: usize| best_ms - Turns::draw_without(profile, &calm, Some(part)).at(demand.share);
    let most = (0..PARTS.len()).map(|part| (saved(part), part)).max_by(|a, b| a.0.total_cmp(&b.0));
    let (saved_ms, at) = most.expect("there are parts");
    let share = demand.share * 100.0;
    let objective_ms = demand.objective_ms;
    let reason = format!(
        "{share:.0} % of the turns take up to {best_ms:.0} ms with any number of machines, above the objective of \
         {objective_ms:.0} ms; {} takes most: {saved_ms:.0} ms of them",
        PARTS[at]
    );
    Verdict::Infeasible { part: PARTS[at], reason }
}

fn stage_size(
    profile: &Profile,
    demand: &Demand,
    name: &'static str,
    stage: &StageProfile,
    instances: usize,
    loaded: &LoadState,
    at: usize,
) -> Result<StageSize, PlanError> {
    let state = &loaded.stages[at];
    let mut sized = StageSize {
        stage: name,
        engine: stage.engine.clone(),
        requests_per_second: loaded.turns_hz * stage.requests_per_turn,
        instances: None,
        utilization: state.utilization,
        batch: state.batch,
        waits: state.queue.probability,
        first_ms: state.first_ms(),
        machines: 0,
        spare: 0,
        machine: None,
        accelerators: 0.0,
    };
    if let Some((needs, each)) = stage.needs.as_ref().zip(fitting(profile, name, stage)?) {
        sized.machines = instances / each + demand.spare;
        sized.spare = demand.spare;
        sized.instances = Some(sized.machines * each);
        sized.accelerators = sized.machines as f64 * machine(profile, &needs.machine)?.accelerators;
        sized.machine = Some(needs.machine.clone());
    }
    Ok(sized)
}

/// Instances of a stage that fit on its machine and that the settings of a worker may name; `None` for servers of
/// others.
pub(super) fn fitting(profile: &Profile, name: &str, stage: &StageProfile) -> Result<Option<usize>, PlanError> {
    let Some(needs) = stage.needs.as_ref().filter(|_| !stage.is_external()) else { return Ok(None) };
    let too_small =
        || PlanError::TooSmall { machine: needs.machine.clone(), what: format!("an instance of {}", stage.engine) };
    let fits = per_machine(needs, machine(profile, &needs.machine)?).ok_or_else(too_small)?;
    Ok(Some(fits.min(most_of_worker(name, stage))))
}

/// Instances that the settings of a worker may name. Language models have servers of their own.
fn most_of_worker(name: &str, stage: &StageProfile) -> usize {
    match (name, &stage.service) {
        ("llm", _) => usize::MAX,
        // A decoder serves a slot.
        ("stt", Service::Slots { slots, .. } | Service::Runs { slots, .. }) => (MAX_PER_WORKER / slots).max(1),
        _ => MAX_PER_WORKER,
    }
}

/// Instances that fit on a machine; `None` if not even one does.
fn per_machine(needs: &Needs, machine: &Machine) -> Option<usize> {
    let fits = |needs: f64, has: f64| if needs > 0.0 { (has / needs + 1e-9).floor() } else { f64::INFINITY };
    let cores = fits(needs.cores, machine.cores);
    let memory = fits(needs.memory_gib, machine.memory_gib * MEMORY);
    let n = cores.min(memory).min(fits(needs.accelerators, machine.accelerators));
    (n >= 1.0).then_some(n as usize)
}

fn hub_size(profile: &Profile, demand: &Demand, sessions: f64) -> Result<HubSize, PlanError> {
    let hub: &HubProfile = &profile.hub;
    let machine = machine(profile, &hub.machine)?;
    let talking = profile.conversation.talking_share;
    let mixed = |talks: f64, is_idle: f64| talking * talks + (1.0 - talking) * is_idle;
    let cores = mixed(hub.talking_cores, hub.idle_cores);
    let gib = mixed(hub.talking_kib, hub.idle_kib) / f64::from(1 << 20);
    let base_gib = hub.base_mib / 1024.0;
    let by_cores = machine.cores * HUB_PROCESSOR / cores;
    let by_memory = if gib > 0.0 { (machine.memory_gib * MEMORY - base_gib) / gib } else { f64::INFINITY };
    let most = by_cores.min(by_memory).floor();
    if most < 1.0 {
        return Err(PlanError::TooSmall { machine: hub.machine.clone(), what: "a hub with one session".into() });
    }
    let needed = (sessions / most).ceil();
    let each = (sessions / needed).ceil();
    Ok(HubSize {
        hubs: needed as usize + demand.spare,
        spare: demand.spare,
        max_sessions: each as u64,
        cores: each * cores,
        memory_gib: base_gib + each * gib,
        machine: hub.machine.clone(),
    })
}

fn machine<'a>(profile: &'a Profile, kind: &str) -> Result<&'a Machine, PlanError> {
    profile.machines.get(kind).ok_or_else(|| PlanError::Profile(format!("machines.{kind} is missing")))
}
