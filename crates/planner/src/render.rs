//! A plan as text for a terminal and as JSON.

use super::size::{HubSize, MAX_UTILIZATION, Sizing, StageSize, Verdict};
use super::{CapacityPlan, Demand, Latency, Profile, StagePlan};
use serde_json::{Value, json};
use std::fmt::Write;

/// A share in per cent, without zeros at its end.
fn percent(share: f64) -> String {
    format!("{} %", (share * 1e6).round() / 1e4)
}

/// The columns of hubs, stages and NATS servers.
const HEADER: &str = "part   machines  spare  kind        what";

impl StageSize {
    /// Adds its line to a table of machines.
    fn line(&self, text: &mut String) {
        let StageSize { stage: name, engine, machines, spare, .. } = self;
        let machine = self.machine.as_deref().unwrap_or("-");
        let what = match self.instances {
            Some(n) => format!(
                "{engine}: {n} instances, {:.1} requests/s, {:.0} % of the slots in use, batch {:.1}, {:.1} % wait, \
                 first output {:.0} ms",
                self.requests_per_second,
                self.utilization * 100.0,
                self.batch,
                self.waits * 100.0,
                self.first_ms
            ),
            None => {
                let rate = self.requests_per_second;
                let ms = self.first_ms;
                format!("{engine}: not ours to size, {rate:.1} requests/s, first output {ms:.0} ms (median)")
            }
        };
        let _ = writeln!(text, "{name:<6} {machines:>8}  {spare:>5}  {machine:<10}  {what}");
    }
}

impl StagePlan {
    /// The plan as text: verdict, machines, latency, and the figures that were not measured.
    pub fn text(&self) -> String {
        let sized = &self.sized;
        let mut text = first_line(&self.demand, &self.profile, sized.sessions, sized.talking, sized.turns_per_second);
        let _ = writeln!(text, "{}", sized.verdict.line(&self.demand));
        let _ = writeln!(text, "only {}: the other stages never wait in this plan\n", sized.stage.stage);
        let _ = writeln!(text, "{HEADER}");
        sized.stage.line(&mut text);
        let _ = writeln!(text, "accelerators: {:.0}", sized.stage.accelerators);
        latency(sized.latency, &mut text);
        assumptions(&self.profile, &mut text);
        text.trim_end().to_owned()
    }

    /// The plan as JSON.
    pub fn json(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "demand": self.demand,
            "feasible": self.is_feasible(),
            "plan": self.sized,
            "profile": self.profile.name,
            "assumptions": assumed(&self.profile),
        })
    }

    /// Whether the objective is kept.
    pub fn is_feasible(&self) -> bool {
        self.sized.verdict == Verdict::Feasible
    }
}

fn first_line(demand: &Demand, profile: &Profile, sessions: u64, talking: u64, turns_hz: f64) -> String {
    format!(
        "{} users, {} of them at the peak: {sessions} sessions, {talking} of them talk, {turns_hz:.1} turns a second \
         (profile {:?})\n",
        demand.users,
        percent(demand.peak),
        profile.name
    )
}

fn assumptions(profile: &Profile, text: &mut String) {
    let _ = writeln!(text, "\nAssumptions: these figures of the profile were not measured.");
    for (path, why) in profile.assumptions() {
        let _ = writeln!(text, "  {path}: {why}");
    }
    let _ = writeln!(
        text,
        "  model: requests come at random times; workers of a stage share one queue; a stage is planned up to {:.0} % \
         of its slots, and percentiles are those with the spare machines away",
        MAX_UTILIZATION * 100.0
    );
}

fn assumed(profile: &Profile) -> Vec<Value> {
    let assumption = |(path, why): (String, String)| json!({"figure": path, "why": why});
    profile.assumptions().into_iter().map(assumption).collect()
}

fn latency(latency: Option<Latency>, text: &mut String) {
    match latency {
        Some(Latency { p50_ms, p95_ms, p99_ms }) => {
            let _ = writeln!(text, "voice-to-voice: p50 {p50_ms:.0} ms, p95 {p95_ms:.0} ms, p99 {p99_ms:.0} ms");
        }
        None => {
            let _ = writeln!(text, "voice-to-voice: unbounded, a stage cannot serve the load");
        }
    }
}

impl Verdict {
    /// In one line.
    fn line(&self, demand: &Demand) -> String {
        let share = demand.share * 100.0;
        let objective = demand.objective_ms;
        match self {
            Self::Feasible => format!("FEASIBLE: {share:.0} % of the turns within {objective:.0} ms"),
            Self::Infeasible { reason, .. } => format!("INFEASIBLE: {reason}"),
        }
    }
}

impl CapacityPlan {
    /// The plan as text: verdict, machines, latency, cost, and the figures that were not measured.
    pub fn text(&self) -> String {
        let sized = &self.sized;
        let mut text = first_line(&self.demand, &self.profile, sized.sessions, sized.talking, sized.turns_per_second);
        let _ = writeln!(text, "{}\n", self.verdict());
        self.machines(&mut text);
        latency(self.sized.latency, &mut text);
        self.costs(&mut text);
        assumptions(&self.profile, &mut text);
        text.trim_end().to_owned()
    }

    /// The plan as JSON.
    pub fn json(&self) -> Value {
        let measured = self.profile.sources.iter().filter(|(_, source)| source.measured);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "demand": self.demand,
            "feasible": self.is_feasible(),
            "plan": self.sized,
            "cost": self.cost,
            "profile": self.profile.name,
            "measured": measured.map(|(path, source)| json!({"figure": path, "from": source.from})).collect::<Vec<_>>(),
            "assumptions": assumed(&self.profile),
        })
    }

    /// The verdict in one line.
    pub fn verdict(&self) -> String {
        self.sized.verdict.line(&self.demand)
    }

    fn machines(&self, text: &mut String) {
        let HubSize { hubs, spare, max_sessions, cores, memory_gib, machine } = &self.sized.hubs;
        let _ = writeln!(text, "{HEADER}");
        let _ = writeln!(
            text,
            "hub    {hubs:>8}  {spare:>5}  {machine:<10}  {max_sessions} sessions each: {cores:.2} cores, {memory_gib:.2} GiB",
        );
        self.sized.stages.iter().for_each(|stage| stage.line(text));
        if self.sized.nats_servers > 0 {
            let n = self.sized.nats_servers;
            let spare = self.sized.parts;
            let kind = &self.profile.nats.machine;
            let cores = self.sized.nats_cores;
            let _ = writeln!(text, "nats   {n:>8}  {spare:>5}  {kind:<10}  {cores:.2} cores in all");
        }
        self.clusters(text);
        let accelerators: f64 = self.sized.stages.iter().map(|stage| stage.accelerators).sum();
        let up = self.sized.up_mbit_s;
        let down = self.sized.down_mbit_s;
        let _ = writeln!(text, "accelerators: {accelerators:.0}; network: {up:.0} Mbit/s in, {down:.0} Mbit/s out");
    }

    /// How many clusters there are and why, and what of them is not counted: each part has its servers and spares once.
    fn clusters(&self, text: &mut String) {
        let Sizing { clusters, parts, .. } = self.sized;
        if clusters < 2 {
            return;
        }
        let _ = write!(text, "clusters: {clusters}");
        if parts > 1 {
            let _ = write!(text, "; the plan is {parts} equal parts of at most 50,000 sessions");
        }
        if clusters > parts {
            let n = clusters - parts;
            let _ = write!(
                text,
                "; one knows 1,024 workers and 256 hubs: add NATS servers and spare machines for {n} of them"
            );
        }
        text.push('\n');
    }

    fn costs(&self, text: &mut String) {
        let Some(cost) = &self.cost else {
            let _ = writeln!(text, "cost: not computed without --prices");
            return;
        };
        let currency = &cost.currency;
        for (machine, n, price) in &cost.machines {
            let _ = writeln!(text, "cost: {n} x {machine}: {price:.2} {currency} an hour");
        }
        let _ = writeln!(
            text,
            "cost: {:.2} {currency} an hour, {:.0} {currency} a month if all of it runs all day, {:.5} {currency} a talking \
             minute at the peak; servers of others are not included",
            cost.per_hour, cost.per_month, cost.per_talking_minute
        );
    }
}
