//! Hubs that end without a word (SIGKILL), one after the other, under conversations, and are started again.
//!
//! Their sessions come back at another hub from the last checkpoint: the client goes back to what it had received then and sends
//! again what it has sent since. A question that was asked meanwhile is answered in the end, and is in the conversation once: the
//! utterances and responses that a client has in its conversation, without what was void, are as many as its questions, except
//! that one response may answer two questions that the client had to send again without the time between them. A reply
//! that was being played is not played to its end where its checkpoint was before its end and the next question was asked
//! meanwhile, so that words have no gate here.

use super::site::{NO_LONGER, Site, add_gaps, add_sessions, gaps, returned};
use super::{BenchError, ClusterPlan, Figure, Measurement, Part, Progress, Section, Unit, add_counts};
use crate::Process;
use crate::load::Return;
use antiphon_cluster::testing::NatsServer;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const N_SESSIONS: usize = 50;
const N_KILLS: usize = 9;
const GAP_MS: f64 = 2_000.0;

/// The longest wait for clients to be back.
const BACK_WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_SESSIONS, 6);
    let n_kills = plan.sessions(N_KILLS, 2);
    let how = format!("{n} sessions on {} hubs, one of which is killed, {n_kills} times", plan.n_hubs);
    let mut section = Section::new(Part::KillHub.section(), how);
    let server = NatsServer::start().await?;
    let mut site = Site::start(plan, vec![server.url()], 1, vec![None; plan.n_hubs]).await?;
    let stop = CancellationToken::new();
    let n_returns = Arc::<AtomicUsize>::default();
    let talk = Site::talk(plan, site.balancer.url(), n, NO_LONGER, stop.clone(), n_returns.clone(), progress);
    let (outcome, killed) = tokio::join!(talk, async {
        let _stop = stop.clone().drop_guard();
        sleep(plan.begins()).await;
        for kill in 0..n_kills {
            // At any moment of the turns, which are about 4 s long.
            sleep(Duration::from_secs_f64(rand::random_range(1.0..plan.takes(5, 2).as_secs_f64()))).await;
            site.kill(kill % site.hubs.len()).await?;
            returned(&n_returns, BACK_WITHIN).await;
        }
        sleep(plan.takes(3, 1)).await;
        Ok::<_, BenchError>(())
    });
    killed?;
    let outcome = outcome?;
    add_gaps(&mut section, "gap", &gaps(&outcome.returns), Some(GAP_MS));
    section.percentile("voice-to-voice", &outcome.waits(), 95.0, None);
    add_sessions(&mut section, &outcome);
    // A response in whose session nothing was void loses no word.
    let goes_back = |back: &&Return| back.resumed.back_to.is_some();
    let gone_back: Vec<usize> = outcome.returns.iter().filter(goes_back).map(|back| back.session).collect();
    let mut counts = Section::default();
    add_counts(&mut counts, "", &outcome);
    section.figures.extend(counts.figures.into_iter().map(|figure| match figure.name.starts_with("words") {
        true => Figure { gate: None, ..figure },
        false => figure,
    }));
    section.notes.extend(counts.notes);
    let undisturbed = outcome.turns.iter().filter(|turn| !gone_back.contains(&turn.session));
    let wrong: usize = undisturbed.filter_map(|turn| turn.words).map(|words| words.lost + words.doubled).sum();
    let name = "words lost or doubled in sessions that did not go back";
    section.figures.push(Figure::new(name, Unit::Count, wrong as f64, outcome.turns.len()).at_most(0.0));
    let cpu_s = Process(server.process_id().unwrap_or(0)).cpu_s()? + site.end().await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}
