//! Speaks clips into a call in real time and records what its listener hears.

use super::client::{Client, Received, Speech};
use super::recording::Recording;
use crate::BenchError;
use crate::voice_to_voice::server_said;
use antiphon_client::Event;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// A frame of the microphone.
pub(super) const FRAME_TIME: Duration = Duration::from_millis(20);
/// The silence after which a reply is over.
const QUIET: Duration = Duration::from_millis(700);
/// From the end of a question to the end of its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Talker {
    pub(super) client: Client,
    pub(super) recording: Recording,
    ticks: Interval,
    room: Arc<Vec<Bytes>>,
    clip: Arc<Vec<Bytes>>,
    /// Frames sent of the clip, and of all.
    n_said: usize,
    n_sent: u64,
}

/// What happened in a call.
#[derive(Debug)]
pub(super) enum Step {
    /// A frame was sent; `n_said` frames of the clip so far.
    Said { at: Instant, n_said: usize },
    /// An event came.
    Event(Event),
    /// Sound came.
    Sound,
    /// What was not played was discarded, on the hub's request.
    Cleared,
}

/// A question and what was heard after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    /// From the frame with the last loud sample to the first sound; `None`: there was none after it.
    pub(super) wait: Option<Duration>,
    /// Where the hub heard the end of the question, in milliseconds of turn time, less where the client sent it.
    pub(super) skew_ms: Option<f64>,
    /// The words of the answer; empty without events.
    pub(super) answer: String,
    /// What went wrong.
    pub(super) trouble: Option<String>,
}

impl Talker {
    /// `period`: of the microphone's frames by this machine's clock.
    pub(super) fn new(client: Client, room: Arc<Vec<Bytes>>, period: Duration) -> Self {
        let mut ticks = interval(period);
        // A late microphone catches up.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let clip = Arc::default();
        let recording = Recording::default();
        Self { client, recording, ticks, room, clip, n_said: 0, n_sent: 0 }
    }

    /// Speaks a clip from the next frame on.
    pub(super) fn say(&mut self, speech: &Speech) {
        self.clip = speech.frames.clone();
        self.n_said = 0;
    }

    /// Waits for what happens next. An `error` event of the hub is an error.
    pub(super) async fn step(&mut self) -> Result<Step, BenchError> {
        let received = tokio::select! {
            biased;
            received = self.client.next() => received?,
            _ = self.ticks.tick() => {
                let room = &self.room[self.n_sent as usize % self.room.len()];
                let frame = self.clip.get(self.n_said).unwrap_or(room).clone();
                let at = Instant::now();
                self.client.speak(&frame).await?;
                self.n_sent += 1;
                self.n_said += 1;
                return Ok(Step::Said { at, n_said: self.n_said.min(self.clip.len()) });
            }
        };
        let now = Instant::now();
        Ok(match received {
            Received::Event(Event::Cleared {}) => {
                // A WebRTC peer's audio ends by itself.
                if matches!(self.client, Client::WebSocket(_)) {
                    self.recording.clear(now);
                }
                Step::Cleared
            }
            Received::Event(Event::Error { error }) => return Err(server_said(error).into()),
            Received::Event(event) => {
                match &event {
                    Event::Held { .. } => self.recording.hold(now),
                    Event::Resumed { .. } => self.recording.resume(now),
                    _ => {}
                }
                Step::Event(event)
            }
            Received::Sound { samples, rate, plays_at: Some(at) } => {
                self.recording.at(&samples, rate, at);
                Step::Sound
            }
            Received::Sound { samples, rate, plays_at: None } => {
                self.recording.queue(&samples, rate, now);
                Step::Sound
            }
            Received::Clear => {
                self.recording.clear(now);
                Step::Cleared
            }
        })
    }

    /// Sends quiet frames for a time.
    pub(super) async fn pause(&mut self, time: Duration) -> Result<(), BenchError> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step().await?;
        }
        Ok(())
    }

    /// Waits until a reply that was not asked for has sounded to its end; gives when it began.
    pub(super) async fn listen(&mut self) -> Result<Option<Instant>, BenchError> {
        self.recording.reset();
        let until = Instant::now() + ANSWER_TIMEOUT;
        while !self.is_over() && Instant::now() < until {
            self.step().await?;
        }
        Ok(self.recording.first())
    }

    /// Asks a question and listens to the answer to its end.
    pub(super) async fn turn(&mut self, speech: &Speech) -> Result<Turn, BenchError> {
        self.recording.reset();
        self.say(speech);
        let mut turn = Turn::default();
        let mut spoken = None;
        let mut stopped_ms = None;
        let mut until = Instant::now() + FRAME_TIME * speech.frames.len() as u32 + ANSWER_TIMEOUT;
        while Instant::now() < until {
            match self.step().await? {
                Step::Said { at, n_said } if n_said > speech.loud.1 && spoken.is_none() => {
                    spoken = Some((at, self.n_sent));
                    until = at + ANSWER_TIMEOUT;
                }
                Step::Event(Event::SpeechStopped { audio_end_ms, .. }) => stopped_ms = Some(audio_end_ms),
                Step::Event(Event::TranscriptDelta { delta, .. }) => turn.answer.push_str(&delta),
                _ => {}
            }
            if spoken.is_some() && self.is_over() {
                break;
            }
        }
        let first = self.recording.first();
        turn.wait = first.zip(spoken).and_then(|(first, (spoken, _))| first.checked_duration_since(spoken));
        let sent_ms = spoken.map(|(_, n_sent)| n_sent as f64 * FRAME_TIME.as_secs_f64() * 1e3);
        turn.skew_ms = stopped_ms.zip(sent_ms).map(|(stopped, sent)| stopped as f64 - sent);
        turn.trouble = match (turn.wait, first) {
            (Some(_), _) => None,
            (None, None) => Some("there was no answer".into()),
            (None, Some(_)) => Some("it was answered before the question was over".into()),
        };
        Ok(turn)
    }

    /// Whether a reply has sounded and ended.
    fn is_over(&self) -> bool {
        self.recording.last().is_some_and(|last| Instant::now() > last + QUIET)
    }
}
