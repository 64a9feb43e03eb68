//! A hub that hears nothing of the cluster for ten seconds while its clients are at other hubs, which must not act in a session
//! together with it.
//!
//! The first hub reaches nats-server by a line that is cut without closing a connection, and healed; at the same time
//! the balancer cuts its clients' connections and gives it no new ones. The hubs' logs say which writes JetStream
//! accepted, in its order (the revision), and of which epoch, which each change of the owner raises. A write after one
//! of a later epoch is a violation, and so are two owners of one epoch. What the cut hub tried to write after the heal
//! is refused.

use super::forward::Line;
use super::site::{NO_LONGER, Site, add_gaps, add_sessions, gaps, returned};
use super::{BenchError, ClusterPlan, Figure, Measurement, Part, Progress, Section, Unit};
use crate::Process;
use antiphon_cluster::testing::NatsServer;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const N_SESSIONS: usize = 30;
const N_CUTS: usize = 3;

/// The longest wait for clients to be back.
const BACK_WITHIN: Duration = Duration::from_secs(15);

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_SESSIONS, 6);
    let n_cuts = plan.sessions(N_CUTS, 1);
    let length = plan.takes(10, 7);
    let how =
        format!("{n} sessions on {} hubs, one of which is cut from NATS for {length:?}, {n_cuts} times", plan.n_hubs);
    let mut section = Section::new(Part::Partition.section(), how);
    let failed = |source| BenchError::Hub { what: "has no folder for logs", source: Some(source) };
    // Apart from those of other parts.
    let folder = match &plan.logs {
        Some(folder) => TempDir::with_prefix_in("partition-", folder),
        None => TempDir::with_prefix("antiphon-bench-"),
    };
    let mut folder = folder.map_err(failed)?;
    folder.disable_cleanup(plan.logs.is_some());
    let plan = &ClusterPlan { logs: Some(folder.path().to_owned()), ..plan.clone() };

    let server = NatsServer::start().await?;
    let line = Line::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await?;
    let mut ways = vec![None; plan.n_hubs];
    ways[0] = Some(format!("nats://{}", line.address()));
    let site = Site::start(plan, vec![server.url()], 1, ways).await?;
    let stop = CancellationToken::new();
    let n_returns = Arc::<AtomicUsize>::default();
    let talk = Site::talk(plan, site.balancer.url(), n, NO_LONGER, stop.clone(), n_returns.clone(), progress);
    let (outcome, done) = tokio::join!(talk, async {
        let _stop = stop.clone().drop_guard();
        sleep(plan.begins()).await;
        let address = site.hubs[0].address()?;
        for _ in 0..n_cuts {
            sleep(plan.takes(4, 1)).await;
            line.cut();
            site.balancer.set(0, None);
            site.balancer.cut(0);
            sleep(length).await;
            line.heal();
            returned(&n_returns, BACK_WITHIN).await;
            site.balancer.set(0, Some(address));
            // Clients come to it again.
            site.balancer.cut(1);
            sleep(plan.takes(4, 1)).await;
        }
        Ok::<_, BenchError>(())
    });
    done?;
    let outcome = outcome?;
    let mut writes = Writes::default();
    for at in 0..plan.n_hubs {
        writes.read(&folder.path().join(format!("hub-{at}.log")), at)?;
    }
    let n_written = writes.n();
    let n_taken = writes.n_taken;
    let count = |name: &str, value: usize, of: usize| Figure::new(name, Unit::Count, value as f64, of);
    section.figures.push(count("writes after one of a later owner", writes.violations().len(), n_written).at_most(0.0));
    section.figures.push(count("sessions taken", n_taken, n_written));
    section.figures.push(count("writes refused", writes.n_refused, n_written));
    section.notes.extend(writes.violations().into_iter().take(super::MOST_NOTED));
    add_gaps(&mut section, "gap", &gaps(&outcome.returns), None);
    add_sessions(&mut section, &outcome);
    let cpu_s = Process(server.process_id().unwrap_or(0)).cpu_s()? + site.end().await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}

/// The accepted writes of each session, in the order of their revisions.
#[derive(Default)]
struct Writes {
    sessions: HashMap<String, BTreeMap<u64, Write>>,
    n_taken: usize,
    n_refused: usize,
}

#[derive(Clone, Copy)]
struct Write {
    hub: usize,
    epoch: u64,
}

impl Writes {
    fn read(&mut self, path: &Path, hub: usize) -> Result<(), BenchError> {
        let log = std::fs::read_to_string(path);
        let log = log.map_err(|source| BenchError::Hub { what: "has no log", source: Some(source) })?;
        log.lines().for_each(|line| self.take(line, hub));
        Ok(())
    }

    /// Takes a line of a hub's log.
    fn take(&mut self, line: &str, hub: usize) {
        const MESSAGES: [&str; 3] = ["this hub owns the session now", "the session was", "a write was refused"];
        let Some(line) = MESSAGES.iter().find_map(|message| Some(&line[line.find(message)?..])) else { return };
        let number = |name: &str| field(line, name)?.parse::<u64>().ok();
        if line.starts_with("a write was refused") {
            self.n_refused += 1;
            return;
        }
        let is_taken = line.starts_with("this hub owns the session now");
        if !is_taken && !line.starts_with("the session was stored") && !line.starts_with("the session was released") {
            return;
        }
        let (Some(session), Some(epoch), Some(revision)) = (field(line, "record"), number("epoch"), number("revision"))
        else {
            return;
        };
        self.n_taken += usize::from(is_taken);
        self.sessions.entry(session.to_owned()).or_default().insert(revision, Write { hub, epoch });
    }

    fn n(&self) -> usize {
        self.sessions.values().map(BTreeMap::len).sum()
    }

    /// Writes of an owner after those of a later one, and second owners of an epoch.
    fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (session, writes) in &self.sessions {
            let mut latest = 0;
            let mut owners = HashMap::new();
            for (revision, Write { hub, epoch }) in writes {
                let owner = *owners.entry(epoch).or_insert(hub);
                if *epoch < latest || owner != hub {
                    found.push(format!("session {session}: hub-{hub} wrote revision {revision} in epoch {epoch}"));
                }
                latest = latest.max(*epoch);
            }
        }
        found
    }
}

/// A field of a line, without its quotes.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).map(|value| value.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(what: &str, epoch: u64, revision: u64) -> String {
        format!(
            "2026-01-01T00:00:00Z  INFO antiphon_cluster::hub::ownership: {what} record=\"abc\" epoch={epoch} revision={revision}"
        )
    }

    #[test]
    fn a_write_behind_that_of_a_later_owner_is_found() {
        let owns = "this hub owns the session now";
        let stored = "the session was stored";
        let mut writes = Writes::default();
        for (hub, what, epoch, revision) in [
            (0, stored, 0, 3),
            (0, stored, 0, 5),
            (1, owns, 1, 7),
            (1, stored, 1, 9),
            (0, "a write was refused: x", 0, 9),
        ] {
            writes.take(&line(what, epoch, revision), hub);
        }
        assert_eq!((writes.violations().len(), writes.n(), writes.n_taken, writes.n_refused), (0, 4, 1, 1));
        writes.take(&line(stored, 0, 8), 0);
        assert_eq!(writes.violations(), ["session abc: hub-0 wrote revision 8 in epoch 0"]);
        writes.take(&line(stored, 1, 10), 2);
        assert_eq!(writes.violations().len(), 2, "two hubs own it in one epoch");
    }
}
