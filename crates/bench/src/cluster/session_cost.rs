//! What sessions cost with one hub and with three: the processor time of the hubs, idle adverts and stored checkpoints included,
//! for the same number of conversations in all. Both sites run one after the other on the same machine, one hub first and last,
//! so that what else the machine does weighs on both; in a quick run each runs once. What a hub without sessions costs is measured
//! before. Workers and nats-server are not counted.

use super::site::{Site, add_all};
use super::{BenchError, ClusterPlan, Figure, Length, Measurement, Part, Progress, Section, Unit};
use crate::Process;
use crate::simulated::Costs;
use antiphon_cluster::testing::NatsServer;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const N_SESSIONS: usize = 180;

/// Runs with room for the words of all sessions.
const COSTS: Costs = Costs { batch: 16, ..super::site::COSTS };

/// The sessions a core of several hubs, against those of one.
const SESSIONS_TIMES: f64 = 0.9;

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_SESSIONS, 6);
    let length = plan.takes(25, 2);
    let n_hubs = plan.n_hubs;
    // The second rounds are for the ratio, which a quick run does not give.
    let rounds: &[usize] = if plan.quick { &[0, 1] } else { &[0, 1, 1, 0] };
    let again = if plan.quick { "" } else { ", and both again the other way round" };
    let how = format!("{n} sessions with one hub, then with {n_hubs}{again}, {length:?} each");
    let mut section = Section::new(Part::Hubs.section(), how);
    let mut cores = [Vec::new(), Vec::new()];
    let mut idle = Vec::new();
    let mut cpu_s = 0.0;
    let mut counts = Section::default();
    for which in rounds.iter().copied() {
        let n_here = [1, n_hubs][which];
        let server = NatsServer::start().await?;
        let site = Site::start_with(plan, COSTS, vec![server.url()], 1, vec![None; n_here]).await?;
        let began = Instant::now();
        let before = site.hubs_cpu_s()?;
        sleep(plan.takes(5, 1)).await;
        idle.push((site.hubs_cpu_s()? - before) / began.elapsed().as_secs_f64() / n_here as f64);
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
            let began = Instant::now();
            let before = site.hubs_cpu_s()?;
            sleep(length).await;
            Ok::<_, BenchError>((site.hubs_cpu_s()? - before) / began.elapsed().as_secs_f64())
        });
        cores[which].push(used?);
        let mut round = Section::default();
        add_all(&mut round, &outcome?);
        add_up(&mut counts, round);
        cpu_s += Process(server.process_id().unwrap_or(0)).cpu_s()? + site.end().await?;
    }
    section.figures.extend(counts.figures.into_iter().filter(is_reported));
    section.notes.extend(counts.notes);
    let mean = |used: &[f64]| used.iter().sum::<f64>() / used.len().max(1) as f64;
    let a_core = cores.each_ref().map(|used| n as f64 / mean(used));
    for (value, n_here) in a_core.into_iter().zip([1, n_hubs]) {
        section.figures.push(Figure::new(format!("hubs {n_here}: sessions a core"), Unit::Count, value, n));
    }
    let times = Figure::new(format!("sessions a core, {n_hubs} hubs against 1"), Unit::Times, a_core[1] / a_core[0], n);
    section.figures.push(if plan.quick { times } else { times.at_least(SESSIONS_TIMES) });
    let idle = Figure::new("a hub without sessions", Unit::PercentOfCore, 100.0 * mean(&idle), idle.len());
    section.figures.push(idle);
    for (used, n_here) in cores.iter().zip([1, n_hubs]) {
        let each: Vec<_> = used.iter().map(|used| format!("{used:.3}")).collect();
        section.notes.push(format!("hubs {n_here}: cores used in each round: {}", each.join(", ")));
    }
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}

/// Whether a count has a gate, and something to count or a miss.
fn is_reported(figure: &Figure) -> bool {
    figure.gate.is_some() && (figure.n > 0 || figure.passes() == Some(false))
}

/// Adds the counts of a round to those of the rounds before.
fn add_up(counts: &mut Section, round: Section) {
    for figure in round.figures {
        match counts.figures.iter_mut().find(|counted| counted.name == figure.name) {
            Some(counted) => {
                counted.value += figure.value;
                counted.n += figure.n;
            }
            None => counts.figures.push(figure),
        }
    }
    counts.notes.extend(round.notes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_gate_is_reported_though_nothing_was_to_be_counted() {
        let misplaced = |n_frames: f64| Figure::new("misplaced frames", Unit::Count, n_frames, 0).at_most(0.0);
        assert!(is_reported(&misplaced(5.0)) && !is_reported(&misplaced(0.0)));
    }
}
