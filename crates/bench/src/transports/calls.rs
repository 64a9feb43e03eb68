//! Many calls by WebRTC on one port: processor time of the hub, and latency.
//!
//! The hub runs on one core, clients and mock engines on the other. Processor time is taken while all calls talk; each call
//! speaks and listens in turn, about half of the time each, and sends packets all the time.

use super::client::Transport;
use super::*;
use crate::Process;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// All calls begin within this time; then they talk for the other one.
const BEGIN: Duration = Duration::from_secs(6);
const TALK: Duration = Duration::from_secs(30);
const QUICK: Duration = Duration::from_secs(2);
const PERCENT_A_CALL: f64 = 1.0;

pub(super) async fn measure(plan: &TransportsPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.n_calls.0;
    let how =
        format!("{n} calls on one port, mock engines that take no time; the hub on one core, its clients on another");
    let mut section = Section::new(Part::Calls.section(), how);
    let pinned = LoadAffinity::load();
    let pair = plan.pair(SOUND, &[], pinned.as_ref().ok()).await?;
    let speech = questions(Transport::Webrtc, n).await?;
    let http = http()?;
    if !plan.quick {
        // One-time initialization is not part of the load.
        let mut first = talker(call(&http, &pair.hub).await?, Transport::Webrtc)?;
        converse(&mut first, &speech[0], 1, 0).await?;
        first.client.close().await;
    }
    let url = pair.hub.url.clone();
    let room = Transport::Webrtc.room()?;
    let open = {
        let http = http.clone();
        let url = url.clone();
        let room = room.clone();
        move |_| {
            let http = http.clone();
            let url = url.clone();
            let room = room.clone();
            async move {
                let webrtc = Webrtc::open(&http, &url, &session(true), None).await?;
                Ok(Talker::new(Client::Webrtc(Box::new(webrtc)), room, FRAME_TIME))
            }
        }
    };
    let outcome = together(plan, open, speech, pair.hub.process, progress).await?;
    outcome.add_to(&mut section, PERCENT_A_CALL, None);
    let not_own = outcome.turns.iter().filter(|(call, turn)| !is_own(turn, *call)).count();
    section.figures.push(Figure::new("not recognized as its own", Unit::Count, not_own as f64, outcome.turns.len()));
    section.notes.extend(pinned.as_ref().err().map(|why| format!("nothing was pinned to a core: {why}")));
    Ok(Measurement { section, hub_cpu_s: pair.stop().await? })
}

/// What many calls at the same time gave.
pub(super) struct Outcome {
    pub(super) n_calls: usize,
    /// Each call's turns.
    pub(super) turns: Vec<(usize, Turn)>,
    /// Of a core and a call, while all talked.
    pub(super) percent: f64,
}

impl Outcome {
    /// Adds processor time, latency and failures.
    pub(super) fn add_to(&self, section: &mut Section, percent: f64, p95_ms: Option<f64>) {
        let figure = Figure::new("processor time a call", Unit::PercentOfCore, self.percent, self.n_calls);
        section.figures.push(figure.at_most(percent));
        let waits = waits(self.turns.iter().map(|(_, turn)| turn));
        section.percentile("voice-to-voice", &waits, 50.0, None);
        section.percentile("voice-to-voice", &waits, 95.0, p95_ms);
        add_failed(section, &self.turns);
    }
}

/// Opens calls, one after the other, and lets each ask its question again and again, once at least.
pub(super) async fn together<F>(
    plan: &TransportsPlan,
    open: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
    speech: Vec<Speech>,
    process: Process,
    progress: Progress<'_>,
) -> Result<Outcome, BenchError>
where
    F: Future<Output = Result<Talker, BenchError>> + Send,
{
    let n = speech.len();
    let (begin, talk) = if plan.quick { (QUICK / 4, QUICK) } else { (BEGIN, TALK) };
    let began = Instant::now();
    let all_talk = began + begin;
    let end = began + begin + talk;
    let mut calls = JoinSet::new();
    for (i, speech) in speech.into_iter().enumerate() {
        let open = open.clone();
        calls.spawn(async move {
            sleep_until(began + begin * i as u32 / n as u32).await;
            let mut turns = Vec::new();
            let talked = async {
                let mut talker = open(i).await?;
                while turns.is_empty() || Instant::now() < end {
                    turns.extend(converse(&mut talker, &speech, 1, (i * 1_000 + turns.len()) as u64).await?);
                }
                talker.client.close().await;
                Ok::<_, BenchError>(())
            };
            if let Err(error) = talked.await {
                turns.push(Turn { trouble: Some(error.to_string()), ..Turn::default() });
            }
            turns.into_iter().map(|turn| (i, turn)).collect::<Vec<_>>()
        });
    }
    sleep_until(all_talk).await;
    progress(&format!("{n} calls talk for {} s", talk.as_secs()));
    let before = process.cpu_s()?;
    sleep_until(end).await;
    let percent = 100.0 * (process.cpu_s()? - before) / talk.as_secs_f64() / n as f64;
    let mut turns = Vec::new();
    while let Some(ended) = calls.join_next().await {
        turns.extend(ended?);
    }
    Ok(Outcome { n_calls: n, turns, percent })
}
