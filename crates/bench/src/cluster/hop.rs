//! What the way to a worker adds: conversations with a hub whose engines run on one worker, and at the same time as many with
//! a hub that has the same engines itself. Both suffer what else this machine does; the difference is the cluster's.

use super::processes::{Launcher, end, summary};
use super::{BenchError, ClusterPlan, Figure, Length, Measurement, Part, Progress, Section, Unit, add_counts, talk};
use crate::simulated::Costs;
use crate::{Engines, Process};
use antiphon_cluster::testing::NatsServer;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const COSTS: Costs = Costs { run: Duration::from_millis(10), batch: 16, word: Duration::from_millis(50) };

/// Of each hub.
const N_SESSIONS: usize = 5;
const TURNS: usize = 40;

const ADDED_MS: f64 = 5.0;

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_SESSIONS, 2);
    let turns = if plan.quick { 1 } else { TURNS };
    let how = format!("{n} sessions with a hub and its worker, {n} with a hub of the same engines, at the same time");
    let mut section = Section::new(Part::Hop.section(), how);
    let server = NatsServer::start().await?;
    let launcher = Launcher { plan, servers: vec![server.url()], costs: COSTS };
    let workers = launcher.workers(1).await?;
    let local = launcher.hub(Engines::Simulated).await?;
    let cluster = launcher.hub(Engines::Cluster).await?;
    let length = Length::Turns(turns);
    let (own, remote) = tokio::join!(
        talk(plan, &local, n, length, COSTS.word, CancellationToken::new(), &|_| ()),
        talk(plan, &cluster, n, length, COSTS.word, CancellationToken::new(), progress),
    );
    let own = own?;
    let remote = remote?;
    for (name, outcome) in [("local", &own), ("on a worker", &remote)] {
        section.percentile(name, &outcome.waits(), 50.0, None);
        section.percentile(name, &outcome.waits(), 95.0, None);
    }
    let added = |percent| remote.waits().above_ms(&own.waits(), percent);
    section.figures.push(Figure::new("added p50", Unit::Ms, added(50.0), remote.waits().len()));
    section.figures.push(Figure::new("added p95", Unit::Ms, added(95.0), remote.waits().len()).at_most(ADDED_MS));
    add_counts(&mut section, "", &remote);
    let mut cpu_s = Process(server.process_id().unwrap_or(0)).cpu_s()?;
    cpu_s += local.stop().await?.0;
    let (hub_cpu_s, overview) = cluster.stop().await?;
    section.notes.push(summary(&overview));
    cpu_s += hub_cpu_s + end(workers).await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}
