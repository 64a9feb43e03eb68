//! Barge-in: how fast a reply stops when somebody speaks, in the paced mode and with the offline engines.
//!
//! A story is asked for in text; when it has sounded for 0.4 to 0.8 s, a flite voice interrupts. The waits run from the
//! moment before the frame with the first loud sample (above 5 % of the clip's peak) was written to the arrival of
//! `output_audio_buffer.held` and of `output_audio_buffer.cleared`. The clips begin anywhere within a frame. Reply
//! audio that arrives within half a second after the second event is counted: there must be none.

use super::hub::{Engines, Hub};
use super::questions::{Spoken, VOICES, loud, speak, speaker};
use super::talker::Talker;
use super::voice_to_voice::{open, server_said, session};
use super::{BenchError, Figure, Measure, Plan, Progress, Section, Taken, Unit, Waits};
use crate::client::{AudioMode, ClientError, Connection, Event, FRAME, RATE, Received, Receiver, Reply};
use crate::units::ItemId;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interruptions of a full run.
const N_INTERRUPTIONS: usize = 20;
const ASKED_FOR: &str = "Tell me a story.";
const SAID: [&str; 5] =
    ["Stop, please.", "Wait a moment.", "No, that is enough.", "Hold on, please.", "Okay, thank you."];

/// How often what was heard is reported, as a page does.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// How long after the cancel audio is listened for.
const WATCH: Duration = Duration::from_millis(500);
/// How long a reply may take to begin, and an interruption to be noticed.
const PATIENCE: Duration = Duration::from_secs(5);

const HELD_P95_MS: f64 = 60.0;
const CLEARED_P95_MS: f64 = 150.0;

/// What came of the interruptions.
#[derive(Default)]
struct Waited {
    held: Waits,
    cleared: Waits,
    /// Pieces of audio that came after the hold, and after the cancel.
    after_held: usize,
    after_cleared: usize,
}

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Taken, BenchError> {
    let n = plan.turns(N_INTERRUPTIONS);
    progress("barge-in: speaking the interruptions");
    let clips = clips(n).await?;
    let hub = Hub::start(&plan.hub, Engines::Offline).await?;
    let mut waited = Waited::default();
    for (i, clip) in clips.iter().enumerate() {
        progress(&format!("barge-in: interruption {} of {n}", i + 1));
        // After 0.4 to 0.8 s of the reply, and anywhere within a frame: both steps reach every value.
        let after = Duration::from_millis(400 + (i as u64 * 137) % 400);
        Interruption::open(&hub.url, clip, (i * 211) % FRAME).await?.run(after, &mut waited).await?;
    }
    let hub_cpu_s = hub.cpu_s()?;
    hub.stop().await;
    Ok(Taken { section: section(&waited), hub_cpu_s })
}

async fn clips(n: usize) -> Result<Vec<Spoken>, BenchError> {
    let speaker = speaker().await?;
    let mut clips = Vec::new();
    for i in 0..n {
        clips.push(speak(&*speaker, SAID[i % SAID.len()], VOICES[i % VOICES.len()]).await?);
    }
    Ok(clips)
}

fn section(waited: &Waited) -> Section {
    let how = "offline engines, paced PCM, a flite voice interrupts; from its first loud sample sent";
    let mut section = Section::new(Measure::BargeIn.name(), how);
    section.percentile("to the hold", &waited.held, 50.0, None);
    section.percentile("to the hold", &waited.held, 95.0, Some(HELD_P95_MS));
    section.percentile("to the cancel", &waited.cleared, 50.0, None);
    section.percentile("to the cancel", &waited.cleared, 95.0, Some(CLEARED_P95_MS));
    let count = |name: &str, n: usize| Figure::new(name, Unit::Count, n as f64, waited.cleared.len());
    section.figures.push(count("audio frames after the hold", waited.after_held));
    section.figures.push(count("audio frames after the cancel", waited.after_cleared).at_most(0.0));
    section
}

/// One session in which a reply is interrupted.
struct Interruption {
    talker: Talker,
    receiver: Receiver,
    /// The interrupting clip, shifted within a frame.
    clip: Vec<i16>,
    first_loud: usize,
    reply: Reply,
    spoken: Option<Instant>,
    held: Option<Instant>,
    cleared: Option<Instant>,
    n_after_held: usize,
    n_after_cleared: usize,
}

impl Interruption {
    async fn open(url: &str, clip: &Spoken, shift: usize) -> Result<Self, ClientError> {
        // Nothing is answered: what comes after the cancel would be another reply.
        let Connection { sender, receiver } = open(url, AudioMode::Pcm16, &session(false)).await?;
        let clip = [vec![0; shift], clip.samples.clone()].concat();
        let (first_loud, _) = loud(&clip).ok_or(ClientError::Silent)?;
        Ok(Self {
            talker: Talker::new(sender),
            receiver,
            clip,
            first_loud,
            reply: Reply::default(),
            spoken: None,
            held: None,
            cleared: None,
            n_after_held: 0,
            n_after_cleared: 0,
        })
    }

    async fn run(mut self, after: Duration, waited: &mut Waited) -> Result<(), ClientError> {
        self.talker.sender.say_in_text(ASKED_FOR).await?;
        let opened = Instant::now();
        let (mut speaks, mut report_at, mut end) = (false, opened, opened + PATIENCE);
        loop {
            tokio::select! {
                biased;
                () = sleep_until(end) => break,
                received = self.receiver.next() => {
                    let first = self.cleared.is_none();
                    self.take(received?, Instant::now())?;
                    if let (true, Some(cleared)) = (first, self.cleared) {
                        end = cleared + WATCH;
                    }
                }
                () = self.talker.due() => {
                    let now = Instant::now();
                    if !speaks && self.reply.audible().is_some_and(|at| now >= at + after) {
                        self.talker.say(std::mem::take(&mut self.clip));
                        (speaks, end) = (true, now + PATIENCE);
                    }
                    let (at, n_said) = self.talker.step().await?;
                    if speaks && n_said > self.first_loud {
                        self.spoken.get_or_insert(at);
                    }
                    if now >= report_at {
                        report_at = now + REPORT_EVERY;
                        self.report(now).await?;
                    }
                }
            }
        }
        self.talker.sender.close().await;
        if self.spoken.is_none() {
            return Err(ClientError::TimedOut { what: "the reply to interrupt", after: PATIENCE });
        }
        self.count(waited);
        Ok(())
    }

    fn take(&mut self, received: Received, now: Instant) -> Result<(), ClientError> {
        match received {
            Received::Audio { item_id, samples } => {
                self.n_after_cleared += usize::from(self.cleared.is_some());
                self.n_after_held += usize::from(self.held.is_some());
                self.reply.take(&item_id, &samples, now);
            }
            Received::Event(Event::Held { .. }) => {
                self.held.get_or_insert(now);
                self.reply.hold(now);
            }
            Received::Event(Event::Resumed { .. }) => {
                // What stopped the reply in the end is another hold.
                self.held = None;
                self.n_after_held = 0;
                self.reply.resume(now);
            }
            Received::Event(Event::Cleared {}) => {
                self.cleared.get_or_insert(now);
                self.reply.clear(now);
            }
            Received::Event(Event::Error { error }) => return Err(server_said(error)),
            Received::Event(_) => {}
        }
        Ok(())
    }

    async fn report(&mut self, now: Instant) -> Result<(), ClientError> {
        if let Some((item_id, heard)) = self.reply.heard(now) {
            self.talker.sender.played(&ItemId::from(item_id), heard.as_ms(RATE)).await?;
        }
        Ok(())
    }

    fn count(self, waited: &mut Waited) {
        let spoken = self.spoken.expect("somebody spoke");
        let add = |waits: &mut Waits, at: Option<Instant>| match at {
            Some(at) => waits.push(at.saturating_duration_since(spoken)),
            None => waits.push_endless(),
        };
        add(&mut waited.held, self.held);
        add(&mut waited.cleared, self.cleared);
        waited.after_held += self.n_after_held;
        waited.after_cleared += self.n_after_cleared;
    }
}
