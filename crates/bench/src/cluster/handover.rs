//! Sessions that move to another hub while their clients talk, until enough have moved.
//!
//! Three ways in turn: a hub stops (SIGTERM) and has 10 s, of which it waits 5 s for moments without speech; a hub
//! stops and has 1 s, so that most of its sessions move at whatever moment it is; and the balancer cuts the connections
//! of a hub that lives, so that its clients come to other hubs, which ask that one for the sessions. A gap is the time
//! from the client's notice of the end of its connection to the confirmation of the next one; those of hubs that stop
//! have the gate. Words are counted in the sound that each client received, over the moves.

use super::site::{DRAIN_S, NO_LONGER, Site, add_all, add_gaps, gaps, returned};
use super::{BenchError, ClusterPlan, Figure, Measurement, Part, Progress, Section, Unit};
use crate::Process;
use crate::load::Return;
use antiphon_cluster::testing::NatsServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const N_SESSIONS: usize = 60;
const N_HANDOVERS: usize = 200;

const GAP_MS: f64 = 300.0;

/// Of a hub that is not to wait for a quiet moment.
const AT_ONCE_S: u16 = 1;

/// The longest wait for clients to be back.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// How a hub's sessions are made to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Drains,
    Stops,
    IsAsked,
}

impl Way {
    const ALL: [Self; 3] = [Self::Drains, Self::Stops, Self::IsAsked];

    const fn name(self) -> &'static str {
        match self {
            Self::Drains => "drained in 10 s",
            Self::Stops => "drained in 1 s",
            Self::IsAsked => "asked by another hub",
        }
    }
}

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_SESSIONS, 6);
    let n_moves = plan.sessions(N_HANDOVERS, 6);
    let how = format!("{n} sessions on {} hubs, until {n_moves} have moved", plan.n_hubs);
    let mut section = Section::new(Part::Handover.section(), how);
    let server = NatsServer::start().await?;
    let mut site = Site::start(plan, vec![server.url()], 1, vec![None; plan.n_hubs]).await?;
    let stop = CancellationToken::new();
    let n_returns = Arc::<AtomicUsize>::default();
    let talk = Site::talk(plan, site.balancer.url(), n, NO_LONGER, stop.clone(), n_returns.clone(), progress);
    let mut rounds: Vec<(Way, Instant)> = Vec::new();
    let (outcome, moved) = tokio::join!(talk, async {
        let _stop = stop.clone().drop_guard();
        sleep(plan.begins()).await;
        let mut drains = vec![DRAIN_S; site.hubs.len()];
        for round in 0.. {
            // Each way is taken once at least.
            if round > Way::ALL.len() && n_returns.load(Ordering::Relaxed) >= n_moves {
                break;
            }
            // The hub that has been up for longest: the others have its sessions by then.
            let at = round % site.hubs.len();
            let way = if drains[at] == AT_ONCE_S { Way::Stops } else { Way::ALL[2 * (round % 2)] };
            rounds.push((way, Instant::now()));
            match way {
                Way::IsAsked => {
                    let address = site.hubs[at].address()?;
                    site.balancer.set(at, None);
                    site.balancer.cut(at);
                    returned(&n_returns, BACK_WITHIN).await;
                    site.balancer.set(at, Some(address));
                }
                Way::Drains | Way::Stops => {
                    drains[at] = if way == Way::Drains { AT_ONCE_S } else { DRAIN_S };
                    site.restart(at, drains[at]).await?;
                    returned(&n_returns, BACK_WITHIN).await;
                }
            }
            sleep(plan.takes(2, 1)).await;
        }
        sleep(plan.takes(3, 1)).await;
        Ok::<_, BenchError>(())
    });
    moved?;
    let outcome = outcome?;
    let way_of = |back: &Return| {
        let lost = back.at - back.resumed.gap;
        rounds.iter().rev().find(|(_, since)| lost >= *since).map(|(way, _)| *way)
    };
    for way in Way::ALL {
        let returns = outcome.returns.iter().filter(|back| way_of(back) == Some(way)).collect::<Vec<_>>();
        let bound = (way != Way::IsAsked).then_some(GAP_MS);
        add_gaps(&mut section, &format!("gap, {}", way.name()), &gaps(returns.iter().copied()), bound);
        let attempts = returns.iter().map(|back| back.resumed.n_attempts).max().unwrap_or(0);
        section.notes.push(format!("{}: {} sessions moved, {attempts} attempts at most", way.name(), returns.len()));
    }
    add_all(&mut section, &outcome);
    let n_restarts = rounds.iter().filter(|(way, _)| *way != Way::IsAsked).count();
    let unclean = Figure::new("hubs that did not end with 0", Unit::Count, site.n_unclean as f64, n_restarts);
    section.figures.push(unclean.at_most(0.0));
    let cpu_s = Process(server.process_id().unwrap_or(0)).cpu_s()? + site.end().await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}
