//! Restarts of everything but the hub, one after the other, under conversations: each worker gets the signal to end
//! (SIGTERM), finishes what it has, ends with 0 and is started again; of three NATS servers each is drained (lame-duck
//! mode) or killed, and started again. No response may fail.

use super::kill::{COSTS, N_SESSIONS, N_WORKERS};
use super::processes::{Launcher, WorkerProcess, end, summary};
use super::{
    BenchError, ClusterPlan, Figure, Length, Measurement, Part, Progress, Section, Unit, add_counts, longest_gap_ms,
    talk,
};
use crate::{Engines, Process, Waits};
use antiphon_cluster::testing::NatsCluster;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const N_SERVERS: usize = 3;

/// The longest load; it ends when the restarts are over.
const NO_LONGER: Length = Length::For(Duration::from_secs(3_600));

/// How long a NATS server that is being drained has for its clients to leave, before it ends.
const LAME: Duration = Duration::from_secs(2);

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_SESSIONS, 8);
    let n_workers = plan.sessions(N_WORKERS, 2);
    let how =
        format!("{n} sessions; {n_workers} workers and {N_SERVERS} NATS servers are restarted one after the other");
    let mut section = Section::new(Part::Rolling.section(), how);
    let mut servers = NatsCluster::start(N_SERVERS).await?;
    let launcher = Launcher { plan, servers: servers.urls(), costs: COSTS };
    let mut workers = launcher.workers(n_workers).await?;
    let hub = launcher.hub(Engines::Cluster).await?;

    let stop = CancellationToken::new();
    let mut restarts = Restarts::default();
    let (outcome, done) = tokio::join!(talk(plan, &hub, n, NO_LONGER, COSTS.word, stop.clone(), progress), async {
        let _stop = stop.clone().drop_guard();
        sleep(plan.begins()).await;
        restarts.workers(&launcher, &mut workers).await?;
        restarts.servers(plan, &mut servers).await?;
        sleep(plan.takes(3, 1)).await;
        Ok::<_, BenchError>(())
    });
    done?;
    let outcome = outcome?;
    section.percentile("voice-to-voice", &outcome.waits(), 50.0, None);
    section.percentile("voice-to-voice", &outcome.waits(), 95.0, None);
    section.percentile("voice-to-voice", &outcome.waits(), 100.0, None);
    add_counts(&mut section, "", &outcome);
    let unclean = Figure::new("workers that did not end with 0", Unit::Count, restarts.n_unclean as f64, n_workers);
    section.figures.push(unclean.at_most(0.0));
    section.percentile("a worker's end", &restarts.ends, 100.0, None);
    let gap = longest_gap_ms(&outcome);
    section.figures.push(Figure::new("longest gap in a reply", Unit::Ms, gap, outcome.turns.len()));
    let mut cpu_s = restarts.cpu_s;
    for at in 0..N_SERVERS {
        cpu_s += Process(servers.server(at).process_id().unwrap_or(0)).cpu_s()?;
    }
    let (hub_cpu_s, overview) = hub.stop().await?;
    section.notes.extend(restarts.notes);
    section.notes.push(summary(&overview));
    cpu_s += hub_cpu_s + end(workers).await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}

/// What the restarts did.
#[derive(Default)]
pub(super) struct Restarts {
    pub(super) n_unclean: usize,
    /// From the signal to the end of a worker.
    ends: Waits,
    pub(super) cpu_s: f64,
    pub(super) notes: Vec<String>,
}

impl Restarts {
    pub(super) async fn workers(
        &mut self,
        launcher: &Launcher<'_>,
        workers: &mut Vec<WorkerProcess>,
    ) -> Result<(), BenchError> {
        let begun = Instant::now();
        for _ in 0..workers.len() {
            let worker = workers.remove(0);
            let told_at = Instant::now();
            let name = worker.name().to_owned();
            let (cpu_s, is_clean) = worker.drain().await?;
            self.ends.push(told_at.elapsed());
            self.n_unclean += usize::from(!is_clean);
            self.cpu_s += cpu_s;
            workers.push(launcher.worker(&name).await?);
        }
        self.notes.push(format!("the workers took {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    pub(super) async fn servers(&mut self, plan: &ClusterPlan, servers: &mut NatsCluster) -> Result<(), BenchError> {
        let begun = Instant::now();
        for at in 0..N_SERVERS {
            self.cpu_s += Process(servers.server(at).process_id().unwrap_or(0)).cpu_s()?;
            // The second one ends without notice.
            if at != 1 {
                servers.drain(at)?;
                sleep(if plan.quick { LAME / 2 } else { LAME }).await;
            }
            servers.restart(at).await?;
            sleep(plan.takes(2, 1)).await;
        }
        self.notes.push(format!("the NATS servers took {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }
}
