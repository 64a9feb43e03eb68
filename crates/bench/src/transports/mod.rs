//! `antiphon-bench transports`: calls by WebRTC and by phone, beside sessions on a WebSocket.
//!
//! Clients, relay and mock engines are the benchmark's, over real sockets of this machine; the hub is a process of its own. The
//! parts ([`Part`]) are one file each, whose head describes the method. A WebRTC client is a peer on str0m whose playout buffer
//! is a browser's on a quiet path; a phone speaks Twilio's protocol, or SIP. Clips are coded before the measurement. What a listener
//! hears is a [`recording`] by the client's clock, and every figure about sound is taken from it.

mod caller;
mod calls;
mod client;
mod drift;
mod interruptions;
mod loss;
mod phones;
mod recording;
mod relay;
mod sip;
mod turns;

use super::machine::Machine;
use super::mock::{self, Latencies};
use super::mocks::{SOUND, clips};
use super::pinning::LoadAffinity;
use super::voice_to_voice::session;
use super::{BenchError, Figure, Hub, HubCommand, Measurement, Plan, Progress, Report, Section, Unit, Waits, name_of};
use crate::load::{Clip, Clips, Sign};
use crate::mocks::Pair;
use crate::questions::{speak, speaker};
use caller::{FRAME_TIME, Talker, Turn};
use clap::ValueEnum;
use client::{Client, Speech, Transport, Webrtc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A part of the measure, in the order in which they are run. The comments are the help of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Voice-to-voice latency by WebRTC beside a WebSocket
    Turns,
    /// Many calls by WebRTC on one port
    Calls,
    /// Words recognized behind a network that loses, delays and reorders datagrams
    Loss,
    /// Whether turn time and latency drift in a long call
    Drift,
    /// How fast a reply stops, and whether the hub knows where
    BargeIn,
    /// Many phone calls
    Phones,
    /// Many calls by SIP
    Sip,
}

impl Part {
    fn section(self) -> String {
        format!("transports {}", name_of(self))
    }
}

/// What to measure and how.
#[derive(Clone, Debug)]
pub struct TransportsPlan {
    /// The parts, in this order.
    pub parts: Vec<Part>,
    /// A few turns and two calls for each part: a quick check, not a result.
    pub quick: bool,
    /// Duration of the call whose time is watched.
    pub drift_for: Duration,
    /// Concurrent calls by WebRTC, and by phone.
    pub n_calls: (usize, usize),
    /// Folder of WAV files of speech with their texts, for words behind a bad network; `None`: flite asks questions.
    pub clips: Option<PathBuf>,
    /// Command that starts a hub.
    pub hub: HubCommand,
    /// Command that starts mock engines.
    pub mock: HubCommand,
}

impl TransportsPlan {
    fn of(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Mock engines without latency, and a hub that uses them; each chunk of a reply sounds for `sound`.
    async fn pair(
        &self,
        sound: Duration,
        settings: &[&str],
        pinned: Option<&LoadAffinity>,
    ) -> Result<Pair, BenchError> {
        let plan = Plan {
            measures: Vec::new(),
            quick: self.quick,
            clips: None,
            speech_models: Vec::new(),
            listeners: Vec::new(),
            hub: self.hub.clone(),
            mock: self.mock.clone(),
        };
        Pair::start(&plan, Latencies { sound, ..Latencies::default() }, settings, pinned).await
    }
}

/// Runs the parts one after the other. Dropping the future stops the processes it started. A part that fails is reported with
/// its reason, and the others still run.
pub async fn run(plan: &TransportsPlan, progress: Progress<'_>) -> Report {
    let mut report = Report::new(plan.quick);
    for part in &plan.parts {
        let before = Machine::now();
        let taken = match part {
            Part::Turns => turns::measure(plan, progress).await,
            Part::Calls => calls::measure(plan, progress).await,
            Part::Loss => loss::measure(plan, progress).await,
            Part::Drift => drift::measure(plan, progress).await,
            Part::BargeIn => interruptions::measure(plan, progress).await,
            Part::Phones => phones::measure(plan, progress).await,
            Part::Sip => sip::measure(plan, progress).await,
        };
        let (mut section, cpu_s) = match taken {
            Ok(taken) => (taken.section, taken.hub_cpu_s),
            Err(error) => (Section::failed(part.section(), &error), 0.0),
        };
        section.others = before.zip(Machine::now()).map(|(before, after)| after.others_since(&before, cpu_s));
        report.sections.push(section);
    }
    report
}

/// Pause between the end of a reply and the next question, in seconds.
const PAUSE_S: std::ops::Range<f64> = 0.3..0.7;
/// Number of failures that are reported individually.
const MOST_NOTED: usize = 5;

/// A question without a pause, so that 200 ms of silence are its end for every detector and codec.
const SAID: &str = "Can you help me with this please?";

/// The questions for the mock engines: each call has a mark of its own.
async fn questions(transport: Transport, n: usize) -> Result<Vec<Speech>, BenchError> {
    let samples = speak(&*speaker().await?, SAID, "slt").await?.samples;
    let said = Clip::new(SAID, Sign::Unknown, samples);
    let clips = clips(&said.ok_or_else(|| BenchError::Clips("flite said nothing".into()))?);
    (0..n).map(|i| Speech::new(transport, &clips[i % clips.len()].samples)).collect()
}

/// A call by WebRTC, in which 200 ms of silence end a turn.
async fn call(http: &reqwest::Client, hub: &Hub) -> Result<Client, BenchError> {
    Ok(Client::Webrtc(Box::new(Webrtc::open(http, &hub.url, &session(true), None).await?)))
}

/// An HTTP client for offers and turn records.
fn http() -> Result<reqwest::Client, BenchError> {
    reqwest::Client::builder().build().map_err(|error| BenchError::Method(format!("an HTTP client: {error}")))
}

/// Asks until there were `n` questions; the pauses in between come from `seed`.
async fn converse(talker: &mut Talker, speech: &Speech, n: usize, seed: u64) -> Result<Vec<Turn>, BenchError> {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut turns = Vec::new();
    for _ in 0..n {
        talker.pause(Duration::from_secs_f64(dice.random_range(PAUSE_S))).await?;
        turns.push(talker.turn(speech).await?);
    }
    Ok(turns)
}

/// Voice-to-voice latencies of turns.
fn waits<'a>(turns: impl Iterator<Item = &'a Turn>) -> Waits {
    let mut waits = Waits::default();
    turns.for_each(|turn| waits.push_option(turn.wait));
    waits
}

/// Adds the turns without an answer; there may be none.
fn add_failed(section: &mut Section, turns: &[(usize, Turn)]) {
    let failed: Vec<_> = turns.iter().filter_map(|(call, turn)| Some((call, turn.trouble.as_ref()?))).collect();
    section.figures.push(Figure::new("turns failed", Unit::Count, failed.len() as f64, turns.len()).at_most(0.0));
    section.notes.extend(failed.into_iter().take(MOST_NOTED).map(|(call, why)| format!("call {call}: {why}")));
}

/// A microphone on this machine's clock.
fn talker(client: Client, transport: Transport) -> Result<Talker, BenchError> {
    Ok(Talker::new(client, transport.room()?, FRAME_TIME))
}

/// The wait at a percentile in milliseconds; infinite without waits.
fn at(waits: &Waits, percent: f64) -> f64 {
    waits.percentile(percent).unwrap_or(f64::INFINITY)
}

/// The name that the mock engines know a call by.
fn is_own(turn: &Turn, call: usize) -> bool {
    turn.answer.contains(&mock::name(call))
}
