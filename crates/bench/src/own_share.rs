//! The hub's overhead: what it adds to a turn when its engines have zero latency.
//!
//! The hub runs with the fakes of all stages: loud is speech; the transcript and the response, a short tone, are
//! available immediately. The clients use the JSON protocol in real time: 320 ms of a tone, then silence, every 1.28 s.
//! Latency is measured from the moment before the frame is written that completes the silence ending the turn, to the
//! arrival of the first response audio at the client. It includes both sockets and the clients' own work.
//!
//! Which frame completes the silence is computed. `input_audio_buffer.speech_stopped` states where in the stream the
//! last voiced window ended. The turn ends with the first window that ends at least 200 ms later (windows are 16 ms:
//! 208 ms), and that window is full after the first frame for which the resampler from 24 to 16 kHz has produced enough
//! samples; the same resampler runs here. If the event arrives before that frame was sent, the computation is wrong and
//! the measure fails.

use super::hub_process::{Engines, Hub};
use super::talker::Talker;
use super::voice_to_voice::{SILENCE_MS, open, server_said, session};
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, Waits, name_of};
use antiphon_audio::Resampler;
use antiphon_client::{AudioMode, Connection, Event, FRAME, RATE, ReceivedMessage};
use antiphon_engine_api::vad::Vad;
use antiphon_types::Samples;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Concurrent sessions in the second half.
pub(super) const N_SESSIONS: usize = 50;
const TURNS_ALONE: usize = 20;
const TURNS_TOGETHER: usize = 8;

const ALONE_P50_MS: f64 = 5.0;
const TOGETHER_P95_MS: f64 = 20.0;

/// Frames between two questions: 1.28 s. The response, 600 ms of a tone, has ended by then.
const PERIOD: usize = 64;
/// Frames of speech: 320 ms.
const LOUD: usize = 16;
/// How long a session waits for missing events after its last frame.
const MISSING_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how = "zero-latency engines; from the frame that completes the wait to the first reply audio, at the client";
    let mut section = Section::new(name_of(Measure::OwnShare), how);
    let hub = Hub::start(&plan.hub, Engines::Fake).await?;
    // The first turn bears the one-time initialization and is not counted.
    converse(&hub.url, 1, 1).await?;

    let turns = plan.turns(TURNS_ALONE);
    progress(&format!("own-share: one session, {turns} turns"));
    let alone = converse(&hub.url, 1, turns).await?;
    section.percentile("1 session", &alone, 50.0, Some(ALONE_P50_MS));
    section.percentile("1 session", &alone, 95.0, None);

    let turns = plan.turns(TURNS_TOGETHER);
    progress(&format!("own-share: {N_SESSIONS} sessions, {turns} turns each"));
    let started = Instant::now();
    let before = hub.process.cpu_s()?;
    let together = converse(&hub.url, N_SESSIONS, turns).await?;
    let took_s = started.elapsed().as_secs_f64();
    let cpu_s = hub.process.cpu_s()? - before;
    let name = format!("{N_SESSIONS} sessions");
    section.percentile(&name, &together, 50.0, None);
    section.percentile(&name, &together, 95.0, Some(TOGETHER_P95_MS));
    section.percentile(&name, &together, 100.0, None);
    let unanswered = (alone.len() - alone.n_ended()) + (together.len() - together.n_ended());
    section.figures.push(Figure::new(
        "turns not answered",
        Unit::Count,
        unanswered as f64,
        alone.len() + together.len(),
    ));
    let percent = 100.0 * cpu_s / took_s / N_SESSIONS as f64;
    section.figures.push(Figure::new("processor time a session", Unit::PercentOfCore, percent, N_SESSIONS));

    let hub_cpu_s = hub.process.cpu_s()?;
    hub.stop().await;
    Ok(Measurement { section, hub_cpu_s })
}

/// Runs `n_sessions` concurrent conversations, their starts spread over one period; returns the latencies of all turns.
pub(super) async fn converse(url: &str, n_sessions: usize, turns: usize) -> Result<Waits, BenchError> {
    let clock = Arc::new(WindowClock::new(turns * PERIOD));
    let period = Samples((PERIOD * FRAME) as u64).duration(RATE);
    let mut sessions = JoinSet::new();
    for i in 0..n_sessions {
        let url = url.to_owned();
        let clock = clock.clone();
        let wait = period.mul_f64(i as f64 / n_sessions as f64);
        sessions.spawn(async move {
            sleep(wait).await;
            conversation(&url, turns, &clock).await
        });
    }
    let mut waits = Waits::default();
    while let Some(session) = sessions.join_next().await {
        waits.extend(session??);
    }
    Ok(waits)
}

async fn conversation(url: &str, turns: usize, clock: &WindowClock) -> Result<Waits, BenchError> {
    let Connection { sender, mut receiver } = open(url, AudioMode::Ga, &session(true)).await?;
    let mut talker = Talker::new(sender);
    let mut sent = Vec::with_capacity(turns * PERIOD);
    let mut waits = Waits::default();
    // When the frame was sent that completed the silence of a turn not answered yet.
    let mut completed = None;
    let mut deadline = None;
    while waits.n_ended() < turns {
        tokio::select! {
            biased;
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => break,
            received = receiver.next() => match received? {
                ReceivedMessage::Audio { .. } => {
                    let now = Instant::now();
                    completed.take().into_iter().for_each(|at| waits.push(now - at));
                }
                ReceivedMessage::Event(Event::SpeechStopped { audio_end_ms, .. }) => {
                    completed = Some(clock.completing(audio_end_ms, &sent)?);
                }
                ReceivedMessage::Event(Event::Error { error }) => return Err(server_said(error).into()),
                ReceivedMessage::Event(_) | ReceivedMessage::Resumed(_) => {}
            },
            () = talker.due(), if deadline.is_none() => {
                if sent.len() % PERIOD == 0 {
                    talker.say(tone());
                }
                sent.push(talker.step().await?.0);
                deadline = (sent.len() == turns * PERIOD).then(|| Instant::now() + MISSING_TIMEOUT);
            }
        }
    }
    (waits.len()..turns).for_each(|_| waits.push_endless());
    talker.sender.close().await;
    Ok(waits)
}

/// Speech for the fake detector: 1 kHz at a quarter of full scale.
fn tone() -> Vec<i16> {
    let step = std::f64::consts::TAU * 1_000.0 / f64::from(RATE.hz());
    (0..LOUD * FRAME).map(|i| (8_000.0 * (step * i as f64).sin()) as i16).collect()
}

/// Which frame completes which window.
struct WindowClock {
    /// Samples at the detector's rate available after each frame.
    produced: Vec<u64>,
    window: u64,
}

impl WindowClock {
    fn new(n_frames: usize) -> Self {
        let mut resampler = Resampler::new(RATE, antiphon_engine_api::vad::RATE);
        let mut out = Vec::new();
        let mut n = 0;
        let produced = (0..n_frames).map(|_| {
            out.clear();
            resampler.process(&[0; FRAME], &mut out);
            n += out.len() as u64;
            n
        });
        Self { produced: produced.collect(), window: antiphon_engine_api::fakes::vad::FakeVad.window() as u64 }
    }

    /// When the frame was sent that completed the silence after an utterance whose last voiced window ended at
    /// `audio_end_ms`.
    fn completing(&self, audio_end_ms: u64, sent: &[Instant]) -> Result<Instant, BenchError> {
        let silence = Samples::from_ms(SILENCE_MS, antiphon_engine_api::vad::RATE).0.next_multiple_of(self.window);
        let end = Samples::from_ms(audio_end_ms, antiphon_engine_api::vad::RATE).0 + silence;
        let frame = self.produced.partition_point(|n| *n < end);
        sent.get(frame).copied().ok_or_else(|| {
            let n_sent = sent.len();
            BenchError::Method(format!("the turn was over with frame {n_sent}, and by calculation with {}", frame + 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_completing_frame_is_the_first_that_fills_the_window() {
        let clock = WindowClock { produced: vec![300, 620, 940, 1260, 1580, 1900, 3584], window: 256 };
        let start = Instant::now();
        let sent: Vec<_> = (0..7).map(|i| start + Duration::from_millis(20 * i)).collect();
        // Voice up to 16 ms, then 13 windows: 3584 samples.
        assert_eq!(clock.completing(16, &sent).expect("sent"), sent[6]);
        let error = clock.completing(16, &sent[..6]).expect_err("not sent yet").to_string();
        assert_eq!(error, "the measurement is wrong: the turn was over with frame 6, and by calculation with 7");
    }

    #[test]
    fn the_resampler_here_gives_two_samples_for_three() {
        let clock = WindowClock::new(100);
        let last = *clock.produced.last().expect("frames");
        assert!((31_000..=32_000).contains(&last), "{last}");
        assert!(clock.produced.is_sorted());
    }
}
