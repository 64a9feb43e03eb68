//! Load generator: N concurrent conversations with a Realtime server in real time, behind `antiphon-bench voice`.
//!
//! Each session ([`talk`]) speaks its clips, 20 ms every 20 ms, over a simulated [`Network`], plays the response from
//! its first sample on, interrupts some responses, and records what its listener experiences ([`turn`]). It uses the GA
//! protocol and assumes nothing about the server, so any server can be measured; only the binary modes are specific to
//! this hub. One additional session runs before the load: one-time initialization is not charged to the load, and an
//! unreachable server is detected immediately. Nothing here prints.
//!
//! Voice-to-voice latency is measured from the moment the frame with the last loud sample (above 5 % of the clip's
//! peak) was spoken, to the playback of the first response sample above -50 dBFS. It includes the delay of the network.

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
pub use outcome::{Outcome, Refusal, Sample};
pub use page::page;
pub use search::{Search, Step, search};
pub use talk::{Conversation, Length, Return};
pub use turn::{HeardQuestion, TurnRecord, Words};

use super::machine::Machine;
use super::{BenchError, Process, Progress};
use antiphon_client::{ClientError, ConnectOptions};
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use talk::SessionRecord;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

/// Interval at which the server's process is sampled and progress is reported.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Parameters of a load.
#[derive(Debug)]
pub struct Load {
    /// The server, and how audio is transported.
    pub connect: ConnectOptions,
    /// The `session.update` sent at the start of each session.
    pub session: Value,
    /// Clips to speak.
    pub clips: Arc<Clips>,
    /// Number of concurrent sessions.
    pub n_sessions: usize,
    /// Whether one session of one turn runs before the load, so that one-time initialization is not part of it.
    pub one_first: bool,
    /// Duration of the load.
    pub length: Length,
    /// Turns after which a session ends and another begins in its place, drawn for each; `None`: sessions stay.
    pub call_turns: Option<Range<usize>>,
    /// Once it is cancelled, no session asks another question, whatever the length says.
    pub stop: CancellationToken,
    /// Turns at the start of each session that are left out of the figures.
    pub warm_up: usize,
    /// Delay between the starts of two sessions.
    pub stagger: Duration,
    /// Fraction of responses that are interrupted, 0 to 1.
    pub barge_in: f64,
    /// The simulated network between clients and server.
    pub network: Network,
    /// The server's process, if it runs on this machine.
    pub process: Option<Process>,
    /// Timeout for the complete response, from the end of its question.
    pub patience: Duration,
    /// Seed of pauses, interruptions and network faults.
    pub seed: u64,
    /// Turns ended so far, for the progress line.
    pub n_turns: AtomicUsize,
    /// Times that a session was resumed so far.
    pub n_returns: Arc<AtomicUsize>,
}

impl Load {
    /// Whether sessions are replaced, and the load is not over yet.
    fn has_next_call(&self, now: Instant, began: Instant) -> bool {
        let goes_on = match self.length {
            Length::Turns(_) => false,
            Length::For(time) => now < began + time,
        };
        self.call_turns.is_some() && goes_on && !self.stop.is_cancelled()
    }
}

/// Runs the load. Takes as long as its sessions; dropping the future ends them immediately. A session that fails is
/// part of the outcome; an error means that the server is unreachable or that the first session got no response.
pub async fn run(load: Load, progress: Progress<'_>) -> Result<Outcome, BenchError> {
    if load.one_first {
        progress("voice: one session to begin with");
        first(&load).await?;
    }
    let before = load.process.map(|process| Sample::take(process, Duration::ZERO)).transpose()?;
    let machine = Machine::now();
    let load = Arc::new(load);
    let began = Instant::now();
    let mut sessions = JoinSet::new();
    for session in 0..load.n_sessions {
        let at = began + load.stagger * session as u32;
        let load = load.clone();
        sessions.spawn(async move {
            sleep_until(at).await;
            let mut calls = Vec::new();
            loop {
                let record = talk::hold(load.clone(), session, calls.len(), began).await;
                let is_last = record.broke.is_some() || !load.has_next_call(Instant::now(), began);
                calls.push(record);
                if is_last {
                    return calls;
                }
            }
        });
    }
    let mut outcome = Outcome { n_sessions: load.n_sessions, stagger: load.stagger, before, ..Outcome::default() };
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut records = Vec::new();
    let mut n_over = 0;
    let mut shown = None;
    while n_over < load.n_sessions {
        tokio::select! {
            Some(ended) = sessions.join_next() => {
                outcome.first_end.get_or_insert(began.elapsed());
                records.extend(ended?);
                n_over += 1;
            }
            _ = looks.tick() => {
                if let Some(process) = load.process {
                    outcome.samples.push(Sample::take(process, began.elapsed())?);
                }
                let left = load.n_sessions - n_over;
                let turns = load.n_turns.load(Relaxed);
                if shown.replace((left, turns)) != Some((left, turns)) {
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

/// Runs a session of one turn that is not part of the load.
async fn first(load: &Load) -> Result<(), BenchError> {
    let alone = Load {
        connect: load.connect.clone(),
        session: load.session.clone(),
        clips: load.clips.clone(),
        n_sessions: 1,
        one_first: false,
        length: Length::Turns(1),
        call_turns: None,
        stop: CancellationToken::new(),
        warm_up: 0,
        stagger: Duration::ZERO,
        barge_in: 0.0,
        network: Network::default(),
        process: None,
        patience: load.patience,
        seed: load.seed,
        n_turns: AtomicUsize::new(0),
        n_returns: Arc::default(),
    };
    let SessionRecord { turns, broke, .. } = talk::hold(Arc::new(alone), 0, 0, Instant::now()).await;
    if let Some(error) = broke {
        return Err(error.into());
    }
    match turns.first() {
        Some(turn) if turn.wait.is_some() => Ok(()),
        Some(turn) => Err(BenchError::First(turn.trouble.clone().unwrap_or_default())),
        None => Err(ClientError::TimedOut { what: "the first turn", after: load.patience }.into()),
    }
}
