//! Load: N people who talk to a Realtime server at the same time, at real time: what `antiphon-bench voice` runs.
//!
//! Each session ([`talk`]) speaks its clips, 20 ms every 20 ms, over a network as bad as [`Network`] says, plays the answer
//! from its first sample on, talks over some answers, and records what its listener lived through ([`turn`]). It speaks
//! the GA protocol and knows nothing of the server behind it, so any can be measured; only the binary modes are this hub's
//! own. One more session talks before the load begins: what is made once in a process is not the load's to pay, and a
//! server that cannot be reached is noticed at once. Nothing here prints.
//!
//! Voice-to-voice runs from the moment the frame with the last loud sample (above 5 % of the clip's peak) was spoken, to
//! the moment the first reply sample above -50 dBFS would sound. The network's lateness is in it: a listener feels it.

mod belonging;
mod clips;
mod network;
mod outcome;
pub(crate) mod page;
pub(crate) mod plot;
mod search;
mod talk;
mod turn;

pub use clips::{Clip, Clips, Sign};
pub use network::Network;
pub use outcome::{Outcome, Sample};
pub use page::page;
pub use search::{Search, Step, search};
pub use talk::Length;
pub use turn::TurnRecord;

use super::machine::Machine;
use super::{BenchError, Process, Progress};
use antiphon_client::{ClientError, ConnectOptions};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use talk::SessionRecord;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// How often the server's process is looked at, and progress is told.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Debug)]
pub struct Load {
    /// The server, and how audio travels.
    pub connect: ConnectOptions,
    /// The `session.update` each session begins with.
    pub session: Value,
    /// What is said.
    pub clips: Arc<Clips>,
    /// How many people talk at the same time.
    pub n_sessions: usize,
    /// How long.
    pub length: Length,
    /// Turns at the beginning of each session that are left out of the figures.
    pub warm_up: usize,
    /// From one session's beginning to the next one's.
    pub stagger: Duration,
    /// The share of answers that are talked over, 0 to 1.
    pub barge_in: f64,
    /// The network between them and the server.
    pub network: Network,
    /// The server's process, where it is one of this machine.
    pub process: Option<Process>,
    /// How long an answer may take to begin and end, from the end of its question.
    pub patience: Duration,
    /// The same one makes the same pauses, interruptions and mishaps.
    pub seed: u64,
    /// Turns ended so far, for the progress line.
    pub n_turns: AtomicUsize,
}

/// Runs it. As long as its sessions talk; dropping the future ends them at once. A session that fails is in the outcome;
/// an error is a server out of reach, or a first session that came to nothing.
pub async fn run(load: Load, progress: Progress<'_>) -> Result<Outcome, BenchError> {
    progress("voice: one session to begin with");
    first(&load).await?;
    let before = load.process.map(|process| Sample::take(process, Duration::ZERO)).transpose()?;
    let (machine, load, began) = (Machine::now(), Arc::new(load), Instant::now());
    let mut sessions = JoinSet::new();
    for session in 0..load.n_sessions {
        let (load, at) = (load.clone(), began + load.stagger * session as u32);
        sessions.spawn(async move {
            sleep_until(at).await;
            talk::hold(load, session, began).await
        });
    }
    let mut outcome = Outcome { n_sessions: load.n_sessions, stagger: load.stagger, before, ..Outcome::default() };
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut records, mut n_over, mut told) = (Vec::new(), 0, None);
    while n_over < load.n_sessions {
        tokio::select! {
            Some(ended) = sessions.join_next() => {
                outcome.first_end.get_or_insert(began.elapsed());
                records.push(ended?);
                n_over += 1;
            }
            _ = looks.tick() => {
                if let Some(process) = load.process {
                    outcome.samples.push(Sample::take(process, began.elapsed())?);
                }
                let (left, turns) = (load.n_sessions - n_over, load.n_turns.load(Relaxed));
                if told.replace((left, turns)) != Some((left, turns)) {
                    let s = began.elapsed().as_secs();
                    progress(&format!("voice: {left} sessions talk, {turns} turns are over, {s} s"));
                }
            }
        }
    }
    outcome.took = began.elapsed();
    outcome.take(records);
    let cpu_s = outcome.cpu_s();
    outcome.others = machine.zip(Machine::now()).map(|(before, after)| after.others_since(&before, cpu_s));
    Ok(outcome)
}

/// A session of one turn that is none of the load's.
async fn first(load: &Load) -> Result<(), BenchError> {
    let alone = Load {
        connect: load.connect.clone(),
        session: load.session.clone(),
        clips: load.clips.clone(),
        n_sessions: 1,
        length: Length::Turns(1),
        warm_up: 0,
        stagger: Duration::ZERO,
        barge_in: 0.0,
        network: Network::default(),
        process: None,
        patience: load.patience,
        seed: load.seed,
        n_turns: AtomicUsize::new(0),
    };
    let SessionRecord { turns, broke, .. } = talk::hold(Arc::new(alone), 0, Instant::now()).await;
    if let Some(error) = broke {
        return Err(error.into());
    }
    match turns.first() {
        Some(turn) if turn.wait.is_some() => Ok(()),
        Some(turn) => Err(BenchError::First(turn.trouble.clone().unwrap_or_default())),
        None => Err(ClientError::TimedOut { what: "the first turn", after: load.patience }.into()),
    }
}
