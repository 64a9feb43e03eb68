//! Plays a recording as microphone input: one frame of 20 ms every 20 ms, then silence.

use super::RATE;
use super::connection::Sender;
use super::error::ClientError;
use antiphon_types::Samples;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// Samples per frame: 20 ms.
pub const FRAME: usize = 480;

const FRAME_TIME: Duration = Duration::from_millis(20);

/// A recording sent in real time. Its clock starts with the first [`Microphone::step`].
pub struct Microphone {
    samples: Vec<i16>,
    /// Index after the last sample above 5 % of the peak.
    loud_end: usize,
    at: usize,
    ticks: Option<Interval>,
    loud_sent: Option<Instant>,
}

impl Microphone {
    /// A microphone that sends `samples`, mono at [`super::RATE`]. Fails with [`ClientError::Silent`] if they are
    /// silent.
    pub fn new(samples: Vec<i16>) -> Result<Self, ClientError> {
        let peak = samples.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
        let loud = |sample: &i16| u32::from(sample.unsigned_abs()) * 20 > u32::from(peak);
        let loud_end = samples.iter().rposition(loud).ok_or(ClientError::Silent)? + 1;
        Ok(Self { samples, loud_end, at: 0, ticks: None, loud_sent: None })
    }

    /// Waits until the next frame is due; dropping the future loses nothing. A late sender catches up, so that the
    /// recording keeps its length.
    pub async fn due(&mut self) {
        let ticks = self.ticks.get_or_insert_with(|| {
            let mut ticks = interval(FRAME_TIME);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            ticks
        });
        ticks.tick().await;
    }

    /// Sends the next frame of the recording, or of the silence after it. Call it when a frame is [`Self::due`].
    pub async fn step(&mut self, to: &mut Sender) -> Result<(), ClientError> {
        let mut frame = [0; FRAME];
        let left = self.samples.get(self.at..).unwrap_or_default();
        let n = left.len().min(FRAME);
        frame[..n].copy_from_slice(&left[..n]);
        to.audio(&frame).await?;
        self.at += FRAME;
        if self.at >= self.loud_end && self.loud_sent.is_none() {
            self.loud_sent = Some(Instant::now());
        }
        Ok(())
    }

    /// When the frame with the last loud sample (above 5 % of the peak) was sent.
    pub fn loud_sent(&self) -> Option<Instant> {
        self.loud_sent
    }

    /// Whether the complete recording was sent.
    pub fn is_over(&self) -> bool {
        self.at >= self.samples.len()
    }

    /// Playing time of the recording.
    pub fn duration(&self) -> Duration {
        Samples(self.samples.len() as u64).duration(RATE)
    }
}
