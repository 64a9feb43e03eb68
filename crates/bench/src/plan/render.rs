//! A plan as text for a terminal and as JSON.

use super::size::{HubSize, MAX_UTILIZATION, StageSize, Verdict};
use super::{CapacityPlan, Latency};
use serde_json::{Value, json};
use std::fmt::Write;

/// A share in per cent, without zeros at its end.
fn percent(share: f64) -> String {
    format!("{} %", (share * 1e6).round() / 1e4)
}

impl CapacityPlan {
    /// The plan as text: verdict, machines, latency, cost, and the figures that were not measured.
    pub fn text(&self) -> String {
        let (sized, demand) = (&self.sized, &self.demand);
        let mut text = format!(
            "{} users, {} of them at the peak: {} sessions, {} of them talk, {:.1} turns a second (profile {:?})\n",
            demand.users,
            percent(demand.peak),
            sized.sessions,
            sized.talking,
            sized.turns_per_second,
            self.profile.name
        );
        let _ = writeln!(text, "{}\n", self.verdict());
        self.machines(&mut text);
        self.latency(&mut text);
        self.costs(&mut text);
        let _ = writeln!(text, "\nAssumptions: these figures of the profile were not measured.");
        for (path, why) in self.profile.assumptions() {
            let _ = writeln!(text, "  {path}: {why}");
        }
        let _ = writeln!(
            text,
            "  model: requests come at random times; workers of a stage share one queue; a stage is planned up to {:.0} % \
             of its slots, and percentiles are those with the spare machines away",
            MAX_UTILIZATION * 100.0
        );
        text.trim_end().to_owned()
    }

    /// The plan as JSON.
    pub fn json(&self) -> Value {
        let assumption = |(path, why): (String, String)| json!({"figure": path, "why": why});
        let measured = self.profile.sources.iter().filter(|(_, source)| source.measured);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "demand": self.demand,
            "feasible": self.is_feasible(),
            "plan": self.sized,
            "cost": self.cost,
            "profile": self.profile.name,
            "measured": measured.map(|(path, source)| json!({"figure": path, "from": source.from})).collect::<Vec<_>>(),
            "assumptions": self.profile.assumptions().into_iter().map(assumption).collect::<Vec<_>>(),
        })
    }

    /// The verdict in one line.
    pub fn verdict(&self) -> String {
        let (share, objective) = (self.demand.share * 100.0, self.demand.objective_ms);
        match &self.sized.verdict {
            Verdict::Feasible => format!("FEASIBLE: {share:.0} % of the turns within {objective:.0} ms"),
            Verdict::Infeasible { reason, .. } => format!("INFEASIBLE: {reason}"),
        }
    }

    fn machines(&self, text: &mut String) {
        let HubSize { hubs, spare, max_sessions, cores, memory_gib, machine } = &self.sized.hubs;
        let _ = writeln!(text, "part   machines  spare  kind        what");
        let _ = writeln!(
            text,
            "hub    {hubs:>8}  {spare:>5}  {machine:<10}  {max_sessions} sessions each: {cores:.2} cores, {memory_gib:.2} GiB",
        );
        for stage in &self.sized.stages {
            let StageSize { stage: name, engine, machines, spare, .. } = stage;
            let machine = stage.machine.as_deref().unwrap_or("-");
            let what = match stage.instances {
                Some(n) => format!(
                    "{engine}: {n} instances, {:.1} requests/s, {:.0} % of the slots in use, batch {:.1}, {:.1} % wait, \
                     first output {:.0} ms",
                    stage.requests_per_second,
                    stage.utilization * 100.0,
                    stage.batch,
                    stage.waits * 100.0,
                    stage.first_ms
                ),
                None => {
                    let (rate, ms) = (stage.requests_per_second, stage.first_ms);
                    format!("{engine}: not ours to size, {rate:.1} requests/s, first output {ms:.0} ms (median)")
                }
            };
            let _ = writeln!(text, "{name:<6} {machines:>8}  {spare:>5}  {machine:<10}  {what}");
        }
        if self.sized.nats_servers > 0 {
            let (n, kind, cores) = (self.sized.nats_servers, &self.profile.nats.machine, self.sized.nats_cores);
            let _ = writeln!(text, "nats   {n:>8}      1  {kind:<10}  {cores:.2} cores in all");
        }
        if self.sized.clusters > 1 {
            let n = self.sized.clusters;
            let _ = writeln!(
                text,
                "clusters: {n}, because one knows 1,024 workers and 256 hubs; add NATS servers and spare machines for each"
            );
        }
        let accelerators: f64 = self.sized.stages.iter().map(|stage| stage.accelerators).sum();
        let (up, down) = (self.sized.up_mbit_s, self.sized.down_mbit_s);
        let _ = writeln!(text, "accelerators: {accelerators:.0}; network: {up:.0} Mbit/s in, {down:.0} Mbit/s out");
    }

    fn latency(&self, text: &mut String) {
        match self.sized.latency {
            Some(Latency { p50_ms, p95_ms, p99_ms }) => {
                let _ = writeln!(text, "voice-to-voice: p50 {p50_ms:.0} ms, p95 {p95_ms:.0} ms, p99 {p99_ms:.0} ms");
            }
            None => {
                let _ = writeln!(text, "voice-to-voice: unbounded, a stage cannot serve the load");
            }
        }
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
