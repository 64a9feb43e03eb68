//! Restarts of everything under conversations: each hub, then each worker, then each of three NATS servers, which keep three copies
//! of each record. Hubs and workers get SIGTERM and are started again; NATS servers are drained (lame-duck mode) or
//! killed. No response may fail and no session may end.

use super::rolling::Restarts;
use super::site::{DRAIN_S, NO_LONGER, Site, add_all, add_gaps, gaps};
use super::{BenchError, ClusterPlan, Figure, Measurement, Part, Progress, Section, Unit, longest_gap_ms};
use crate::Process;
use antiphon_cluster::testing::NatsCluster;
use std::sync::Arc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const N_SESSIONS: usize = 50;
const N_SERVERS: usize = 3;

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_SESSIONS, 6);
    let how = format!("{n} sessions; {} hubs, the workers and {N_SERVERS} NATS servers are restarted", plan.n_hubs);
    let mut section = Section::new(Part::RollingAll.section(), how);
    let mut servers = NatsCluster::start(N_SERVERS).await?;
    let mut site = Site::start(plan, servers.urls(), N_SERVERS, vec![None; plan.n_hubs]).await?;
    let stop = CancellationToken::new();
    let mut restarts = Restarts::default();
    let talk = Site::talk(plan, site.balancer.url(), n, NO_LONGER, stop.clone(), Arc::default(), progress);
    let (outcome, done) = tokio::join!(talk, async {
        let _stop = stop.clone().drop_guard();
        sleep(plan.begins()).await;
        for at in 0..site.hubs.len() {
            site.restart(at, DRAIN_S).await?;
            sleep(plan.takes(2, 1)).await;
        }
        restarts.workers(&site.launcher, &mut site.workers).await?;
        restarts.servers(plan, &mut servers).await?;
        sleep(plan.takes(3, 1)).await;
        Ok::<_, BenchError>(())
    });
    done?;
    let outcome = outcome?;
    section.percentile("voice-to-voice", &outcome.waits(), 50.0, None);
    section.percentile("voice-to-voice", &outcome.waits(), 95.0, None);
    section.percentile("voice-to-voice", &outcome.waits(), 100.0, None);
    add_gaps(&mut section, "gap", &gaps(&outcome.returns), None);
    add_all(&mut section, &outcome);
    let n_hubs = site.hubs.len();
    let n_workers = site.workers.len();
    let unclean = |what: &str, n: usize, of: usize| Figure::new(what, Unit::Count, n as f64, of).at_most(0.0);
    section.figures.push(unclean("hubs that did not end with 0", site.n_unclean, n_hubs));
    section.figures.push(unclean("workers that did not end with 0", restarts.n_unclean, n_workers));
    let gap = longest_gap_ms(&outcome);
    section.figures.push(Figure::new("longest gap in a reply", Unit::Ms, gap, outcome.turns.len()));
    section.notes.extend(restarts.notes);
    let mut cpu_s = restarts.cpu_s;
    for at in 0..N_SERVERS {
        cpu_s += Process(servers.server(at).process_id().unwrap_or(0)).cpu_s()?;
    }
    cpu_s += site.end().await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}
