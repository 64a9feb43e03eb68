//! Memory per session and per idle connection, of a hub with fake engines.
//!
//! Sessions: the difference of peak resident memory (`VmHWM`) after one session and after fifty more concurrent
//! sessions, divided by fifty. Both peaks include temporary memory of the turns, and pages of the program's file: the
//! kernel keeps no peak of anonymous memory. Connections: the difference of anonymous memory (`RssAnon`, `RssShmem`)
//! with one open connection and with five thousand that have sent nothing. Short sessions: the difference of anonymous
//! memory after the first two thousand, by when the hub keeps as many turns as it may, and after ten thousand, each of
//! which asks one typed question and leaves after the answer. Each uses a hub of its own, because freed memory is reused.

use super::hub_process::{Engines, Hub};
use super::own_share::{N_SESSIONS, converse};
use super::voice_to_voice::server_said;
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, name_of};
use antiphon_client::{AudioMode, ClientError, ConnectOptions, Connection, Event, ReceivedMessage, connect};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TURNS: usize = 3;
/// Idle connections beyond the first, and in a quick run.
const N_IDLE: usize = 4_999;
const N_IDLE_QUICK: usize = 200;
/// Short sessions after which memory is compared with that at the end: twice `server.turns_kept`.
const N_SHORT_BEFORE: usize = 2_000;
/// All short sessions.
const N_SHORT: usize = 10_000;
/// Short sessions at a time.
const AT_A_TIME: usize = 8;
/// Time after the last connection until the process is idle.
const SETTLE: Duration = Duration::from_millis(500);
/// Timeout for the start of a session, and for a short one.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

const SESSION_KIB: f64 = 1024.0;
/// Bound of an idle connection, which the planner's profiles assume.
pub(super) const IDLE_KIB: f64 = 48.0;

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how = "zero-latency engines; sessions by peak resident memory of the hub, connections by anonymous memory";
    let mut section = Section::new(name_of(Measure::Memory), how);

    progress(&format!("memory: {N_SESSIONS} sessions"));
    let hub = Hub::start(&plan.hub, Engines::Fake).await?;
    converse(&hub.url, 1, TURNS).await?;
    let one = hub.process.resident_peak()?;
    converse(&hub.url, 1 + N_SESSIONS, TURNS).await?;
    let each = kib_each(one, hub.process.resident_peak()?, N_SESSIONS);
    section.figures.push(Figure::new("a session beyond the first", Unit::KiB, each, N_SESSIONS).at_most(SESSION_KIB));
    section.figures.push(Figure::new("the process after one session", Unit::KiB, one as f64 / 1024.0, 1));
    let mut hub_cpu_s = hub.process.cpu_s()?;
    hub.stop().await;

    let n_idle = if plan.quick { N_IDLE_QUICK } else { N_IDLE };
    progress(&format!("memory: {n_idle} idle connections"));
    let hub = Hub::start(&plan.hub, Engines::Fake).await?;
    let mut open = vec![idle(&hub.url).await?];
    sleep(SETTLE).await;
    let one = hub.process.anonymous()?;
    for _ in 0..n_idle {
        open.push(idle(&hub.url).await?);
    }
    sleep(SETTLE).await;
    let each = kib_each(one, hub.process.anonymous()?, n_idle);
    section.figures.push(Figure::new("an idle connection", Unit::KiB, each, n_idle).at_most(IDLE_KIB));
    hub_cpu_s += hub.process.cpu_s()?;
    drop(open);
    hub.stop().await;

    let hub = Hub::start(&plan.hub, Engines::Fake).await?;
    let n = plan.turns(N_SHORT);
    come_and_ask(&hub.url, N_SHORT_BEFORE, progress).await?;
    sleep(SETTLE).await;
    let before = hub.process.anonymous()?;
    come_and_ask(&hub.url, n - N_SHORT_BEFORE, progress).await?;
    sleep(SETTLE).await;
    let growth = kib_each(before, hub.process.anonymous()?, 1);
    let name = format!("{n} short sessions: memory more than after {N_SHORT_BEFORE}");
    section.figures.push(Figure::new(name, Unit::KiB, growth, n));
    hub_cpu_s += hub.process.cpu_s()?;
    hub.stop().await;
    Ok(Measurement { section, hub_cpu_s })
}

/// Runs `n` short sessions, [`AT_A_TIME`] at a time. The first that gets no answer is an error.
async fn come_and_ask(url: &str, n: usize, progress: Progress<'_>) -> Result<(), BenchError> {
    let one = async |at: usize| {
        if at.is_multiple_of(500) {
            progress(&format!("memory: {at} of {n} short sessions"));
        }
        let late = ClientError::TimedOut { what: "the answer of a short session", after: SESSION_TIMEOUT };
        timeout(SESSION_TIMEOUT, ask(url)).await.unwrap_or(Err(late))
    };
    stream::iter(0..n).map(one).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
    Ok(())
}

/// A session with one typed question, until its answer is complete.
async fn ask(url: &str) -> Result<(), ClientError> {
    let mut connection = idle(url).await?;
    let content = json!([{"type": "input_text", "text": "What time is it?"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    connection.sender.event(&json!({"type": "conversation.item.create", "item": item})).await?;
    connection.sender.event(&json!({"type": "response.create"})).await?;
    loop {
        match connection.receiver.next().await? {
            ReceivedMessage::Event(Event::ResponseDone { response }) if response.status == "completed" => break,
            ReceivedMessage::Event(Event::ResponseDone { response }) => {
                return Err(ClientError::Protocol(format!("a short session's answer is {}", response.status)));
            }
            ReceivedMessage::Event(Event::Error { error }) => return Err(server_said(error)),
            _ => {}
        }
    }
    connection.sender.close().await;
    Ok(())
}

/// Opens a connection whose session has started and that sends nothing.
async fn idle(url: &str) -> Result<Connection, ClientError> {
    let mut connection = connect(&ConnectOptions { mode: AudioMode::Ga, ..ConnectOptions::new(url) }).await?;
    let late = ClientError::TimedOut { what: "the session's beginning", after: SESSION_TIMEOUT };
    match timeout(SESSION_TIMEOUT, connection.receiver.next()).await.unwrap_or(Err(late))? {
        ReceivedMessage::Event(Event::SessionCreated {}) => Ok(connection),
        other => Err(ClientError::Protocol(format!("{other:?} instead of session.created"))),
    }
}

fn kib_each(before: u64, after: u64, n: usize) -> f64 {
    (after as f64 - before as f64) / 1024.0 / n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planner_assumes_the_bound_of_an_idle_connection() {
        for name in antiphon_planner::BUILT_IN {
            let profile = antiphon_planner::Profile::built_in(name).expect("it is listed");
            assert_eq!(profile.hub.idle_kib, IDLE_KIB, "{name}");
        }
    }

    #[test]
    fn growth_is_shared_out() {
        assert_eq!(kib_each(1 << 20, 3 << 20, 4), 512.0);
        assert_eq!(kib_each(4096, 0, 2), -2.0);
    }
}
