//! What sessions cost with one hub and with three: the processor time of the hubs, idle adverts and stored checkpoints included,
//! for the same number of conversations in all. Both sites run one after the other on the same machine, one hub first and last,
//! so that what else the machine does weighs on both. Workers and nats-server are not counted.

use super::site::{Site, add_all};
use super::{BenchError, ClusterPlan, Figure, Length, Part, Progress, Section, Taken, Unit};
use crate::Process;
use antiphon_cluster::testing::NatsServer;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const N_SESSIONS: usize = 60;

/// The sessions a core of several hubs, against those of one.
const SESSIONS_TIMES: f64 = 0.9;

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Taken, BenchError> {
    let (n, length) = (plan.sessions(N_SESSIONS, 6), plan.takes(25, 3));
    let n_hubs = plan.n_hubs;
    let how =
        format!("{n} sessions with one hub, then with {n_hubs}, and both again the other way round, {length:?} each");
    let mut section = Section::new(Part::Hubs.section(), how);
    let (mut cores, mut cpu_s) = ([Vec::new(), Vec::new()], 0.0);
    for (round, which) in [0, 1, 1, 0].into_iter().enumerate() {
        let n_here = [1, n_hubs][which];
        let server = NatsServer::start().await?;
        let site = Site::start(plan, vec![server.url()], 1, vec![None; n_here]).await?;
        let stop = CancellationToken::new();
        let talk = Site::talk(
            plan,
            site.balancer.url(),
            n,
            Length::For(Duration::from_secs(3_600)),
            stop.clone(),
            Arc::default(),
            progress,
        );
        let (outcome, used) = tokio::join!(talk, async {
            let _stop = stop.clone().drop_guard();
            // All talk, and the first turns are over.
            sleep(plan.begins() * 2).await;
            let (began, before) = (Instant::now(), site.hubs_cpu_s()?);
            sleep(length).await;
            Ok::<_, BenchError>((site.hubs_cpu_s()? - before) / began.elapsed().as_secs_f64())
        });
        cores[which].push(used?);
        let mut counts = Section::default();
        add_all(&mut counts, &outcome?);
        section.notes.extend(counts.notes);
        let name = format!("round {}, hubs {n_here}: ", round + 1);
        let gated = counts.figures.into_iter().filter(|figure| figure.gate.is_some());
        section.figures.extend(gated.map(|figure| Figure { name: format!("{name}{}", figure.name), ..figure }));
        cpu_s += Process(server.process_id().unwrap_or(0)).cpu_s()? + site.end().await?;
    }
    let mean = |used: &[f64]| used.iter().sum::<f64>() / used.len().max(1) as f64;
    let a_core = cores.each_ref().map(|used| n as f64 / mean(used));
    for (value, n_here) in a_core.into_iter().zip([1, n_hubs]) {
        section.figures.push(Figure::new(format!("hubs {n_here}: sessions a core"), Unit::Of(""), value, n));
    }
    let times = Figure::new(format!("sessions a core, {n_hubs} hubs against 1"), Unit::Times, a_core[1] / a_core[0], n);
    section.figures.push(if plan.quick { times } else { times.at_least(SESSIONS_TIMES) });
    for (used, n_here) in cores.iter().zip([1, n_hubs]) {
        let each: Vec<_> = used.iter().map(|used| format!("{:.3}", used)).collect();
        section.notes.push(format!("hubs {n_here}: cores used in each round: {}", each.join(", ")));
    }
    Ok(Taken { section, hub_cpu_s: cpu_s })
}
