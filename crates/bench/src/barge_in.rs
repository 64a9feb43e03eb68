//! Barge-in latency: how fast a response stops when the user speaks, in the paced mode and with engines that need no model.
//!
//! The client requests a story by text and interrupts it with another flite voice after 0.4 to 0.8 s of playback. Latency is
//! measured from the moment before the frame with the first loud sample (above 5 % of the clip's peak) is written, to
//! the arrival of the first `output_audio_buffer.held` and of `output_audio_buffer.cleared`. Clips start at any offset
//! within a frame. Response audio that arrives within half a second after the second event is counted and must be zero.
//! The recognizer follows a script ([`super::scripted`]). If Silero is installed, the measure is repeated with it.

use super::hub_process::Hub;
use super::noise::best_vad;
use super::questions::{SpokenText, VOICES, loud, replies_to, speak, speaker};
use super::talker::Talker;
use super::voice_to_voice::{open, scripted_session, server_said};
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, Waits, name_of};
use antiphon_client::{AudioMode, ClientError, Connection, Event, FRAME, RATE, ReceivedMessage, Receiver, Reply};
use antiphon_types::ItemId;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interruptions of a full run.
const N_INTERRUPTIONS: usize = 20;
const ASKED_FOR: &str = "Tell me a story.";
const SAID: [&str; 5] =
    ["Stop, please.", "Wait a moment.", "No, that is enough.", "Hold on, please.", "Okay, thank you."];

/// Interval of playback reports, the same as the web page's.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// How long audio is watched for after the cancel.
const WATCH: Duration = Duration::from_millis(500);
/// Timeout for the start of a response, and for the detection of an interruption.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

const HELD_P95_MS: f64 = 60.0;
const CLEARED_P95_MS: f64 = 150.0;
/// Silero's windows are twice as long as earshot's.
const SILERO_HELD_P95_MS: f64 = 110.0;
const SILERO_CLEARED_P95_MS: f64 = 180.0;

/// Results of the interruptions.
#[derive(Default)]
struct InterruptionWaits {
    held: Waits,
    cleared: Waits,
    /// Holds before the first loud sample; holds that ended although speech continued.
    early: usize,
    resumed: usize,
    /// Audio frames received during a hold, and after the cancel.
    while_held: usize,
    after_cleared: usize,
    /// Late interruptions, with their latency.
    late: Vec<String>,
}

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.turns(N_INTERRUPTIONS);
    progress("barge-in: speaking the interruptions");
    let clips = clips(n).await?;
    let how = "a recognizer that costs no time, paced PCM, a flite voice interrupts; from its first loud sample sent";
    let mut section = Section::new(name_of(Measure::BargeIn), how);
    let (plain, mut hub_cpu_s) = interrupted(plan, "earshot", &clips, progress).await?;
    plain.figures(&mut section, "", true);
    if best_vad().await?.name() == "silero" {
        let (silero, cpu_s) = interrupted(plan, "silero", &clips, progress).await?;
        silero.figures(&mut section, "with Silero ", false);
        hub_cpu_s += cpu_s;
    }
    Ok(Measurement { section, hub_cpu_s })
}

/// Runs all interruptions on one hub with this detector; returns the results and the hub's CPU seconds.
async fn interrupted(
    plan: &Plan,
    vad: &str,
    clips: &[SpokenText],
    progress: Progress<'_>,
) -> Result<(InterruptionWaits, f64), BenchError> {
    let hub = Hub::scripted(&plan.hub, vad).await?;
    let mut waited = InterruptionWaits::default();
    for (i, clip) in clips.iter().enumerate() {
        progress(&format!("barge-in, {vad}: interruption {} of {}", i + 1, clips.len()));
        // After 0.4 to 0.8 s of the response, at varying offsets within a frame: both steps reach every value.
        let after = Duration::from_millis(400 + (i as u64 * 137) % 400);
        let came = Interruption::open(&hub.url, clip, (i * 211) % FRAME).await?.run(after).await?;
        waited.take(clip, &came);
    }
    let hub_cpu_s = hub.process.cpu_s()?;
    hub.stop().await;
    Ok((waited, hub_cpu_s))
}

async fn clips(n: usize) -> Result<Vec<SpokenText>, BenchError> {
    let speaker = speaker().await?;
    let mut clips = Vec::new();
    for i in 0..n {
        clips.push(speak(&*speaker, SAID[i % SAID.len()], VOICES[i % VOICES.len()]).await?);
    }
    Ok(clips)
}

impl InterruptionWaits {
    fn take(&mut self, clip: &SpokenText, came: &Came) {
        let add = |waits: &mut Waits, wait: Option<Duration>| match wait {
            Some(wait) => waits.push(wait),
            None => waits.push_endless(),
        };
        add(&mut self.held, came.held);
        add(&mut self.cleared, came.cleared);
        self.early += came.n_early;
        self.resumed += came.n_resumed;
        self.while_held += came.n_while_held;
        self.after_cleared += came.n_after_cleared;
        let ms = |wait: Option<Duration>| wait.map_or(f64::INFINITY, |wait| wait.as_secs_f64() * 1e3);
        let held = ms(came.held);
        let cleared = ms(came.cleared);
        if held > HELD_P95_MS || cleared > CLEARED_P95_MS {
            self.late.push(format!(
                "late: {}, {:?}: held after {held:.0} ms, cancelled after {cleared:.0} ms",
                clip.voice, clip.text
            ));
        }
    }

    fn figures(self, section: &mut Section, prefix: &str, is_earshot: bool) {
        let (held_p95_ms, cleared_p95_ms) =
            if is_earshot { (HELD_P95_MS, CLEARED_P95_MS) } else { (SILERO_HELD_P95_MS, SILERO_CLEARED_P95_MS) };
        section.percentile(&format!("{prefix}to the hold"), &self.held, 50.0, None);
        section.percentile(&format!("{prefix}to the hold"), &self.held, 95.0, Some(held_p95_ms));
        section.percentile(&format!("{prefix}to the cancel"), &self.cleared, 50.0, None);
        section.percentile(&format!("{prefix}to the cancel"), &self.cleared, 95.0, Some(cleared_p95_ms));
        let count =
            |name: &str, n: usize| Figure::new(format!("{prefix}{name}"), Unit::Count, n as f64, self.cleared.len());
        section.figures.push(count("holds before the first loud sample", self.early));
        section.figures.push(count("holds given up during speech", self.resumed));
        section.figures.push(count("audio frames during a hold", self.while_held));
        section.figures.push(count("audio frames after the cancel", self.after_cleared).at_most(0.0));
        section.notes.extend(self.late.into_iter().map(|late| format!("{prefix}{late}")));
    }
}

/// The result of one interruption, from its first loud sample.
struct Came {
    held: Option<Duration>,
    cleared: Option<Duration>,
    n_early: usize,
    n_resumed: usize,
    n_while_held: usize,
    n_after_cleared: usize,
}

/// A session in which a response is interrupted.
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
    is_held: bool,
    n_early: usize,
    n_resumed: usize,
    n_while_held: usize,
    n_after_cleared: usize,
}

impl Interruption {
    async fn open(url: &str, clip: &SpokenText, shift: usize) -> Result<Self, ClientError> {
        // Responses are disabled: audio after the cancel would otherwise belong to a new response.
        let mut session = scripted_session(false, clip);
        session["session"]["audio"]["output"] = json!({"voice": replies_to(clip.voice)});
        let Connection { sender, receiver } = open(url, AudioMode::Pcm16, &session).await?;
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
            is_held: false,
            n_early: 0,
            n_resumed: 0,
            n_while_held: 0,
            n_after_cleared: 0,
        })
    }

    async fn run(mut self, after: Duration) -> Result<Came, ClientError> {
        self.talker.sender.say_in_text(ASKED_FOR).await?;
        let opened = Instant::now();
        let mut speaks = false;
        let mut report_at = opened;
        let mut end = opened + RESPONSE_TIMEOUT;
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
                        speaks = true;
                        end = now + RESPONSE_TIMEOUT;
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
        let late = ClientError::TimedOut { what: "the reply to interrupt", after: RESPONSE_TIMEOUT };
        let spoken = self.spoken.ok_or(late)?;
        let wait = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(spoken));
        Ok(Came {
            held: wait(self.held),
            cleared: wait(self.cleared),
            n_early: self.n_early,
            n_resumed: self.n_resumed,
            n_while_held: self.n_while_held,
            n_after_cleared: self.n_after_cleared,
        })
    }

    fn take(&mut self, received: ReceivedMessage, now: Instant) -> Result<(), ClientError> {
        match received {
            ReceivedMessage::Audio { item_id, samples } => {
                self.n_after_cleared += usize::from(self.cleared.is_some());
                self.n_while_held += usize::from(self.is_held);
                self.reply.take(&item_id, &samples, now);
            }
            ReceivedMessage::Event(Event::Held { .. }) => {
                // The quiet start of the clip may suffice for a hold; a hold before it would be an error of the hub.
                self.n_early += usize::from(self.spoken.is_none());
                self.held.get_or_insert(now);
                self.is_held = true;
                self.reply.hold(now);
            }
            ReceivedMessage::Event(Event::Resumed { .. }) => {
                match self.spoken {
                    Some(_) => self.n_resumed += 1,
                    // The hold had another cause.
                    None => self.held = None,
                }
                self.is_held = false;
                self.reply.resume(now);
            }
            ReceivedMessage::Event(Event::Cleared {}) => {
                self.cleared.get_or_insert(now);
                self.is_held = false;
                self.reply.clear(now);
            }
            ReceivedMessage::Event(Event::Error { error }) => return Err(server_said(error)),
            ReceivedMessage::Event(_) | ReceivedMessage::Resumed(_) => {}
        }
        Ok(())
    }

    async fn report(&mut self, now: Instant) -> Result<(), ClientError> {
        if let Some((item_id, heard)) = self.reply.heard(now) {
            self.talker.sender.played(&ItemId::from(item_id), heard.as_ms(RATE)).await?;
        }
        Ok(())
    }
}
