//! A continuous microphone: it sends clips, and silence otherwise, one frame of 20 ms every 20 ms.
//!
//! Unlike [`antiphon_client::Microphone`] it speaks repeatedly on one stream and reports when each frame was sent.

use antiphon_client::{ClientError, FRAME, Sender};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

const FRAME_TIME: Duration = Duration::from_millis(20);

/// The sending half of a conversation.
pub(super) struct Talker {
    pub(super) sender: Sender,
    ticks: Interval,
    clip: Vec<i16>,
    at: usize,
}

impl Talker {
    /// A silent microphone; the first frame is due immediately. A late talker catches up, like a real microphone.
    pub(super) fn new(sender: Sender) -> Self {
        let mut ticks = interval(FRAME_TIME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Self { sender, ticks, clip: Vec::new(), at: 0 }
    }

    /// Speaks `samples` from the next frame on, mono at [`antiphon_client::RATE`]. Replaces the clip being spoken.
    pub(super) fn say(&mut self, samples: Vec<i16>) {
        self.clip = samples;
        self.at = 0;
    }

    /// Waits until the next frame is due; dropping the future loses nothing.
    pub(super) async fn due(&mut self) {
        self.ticks.tick().await;
    }

    /// Sends the next frame. Returns the moment before it was written, and how much of the clip has been sent.
    pub(super) async fn step(&mut self) -> Result<(Instant, usize), ClientError> {
        let mut frame = [0; FRAME];
        let left = self.clip.get(self.at..).unwrap_or_default();
        let n = left.len().min(FRAME);
        frame[..n].copy_from_slice(&left[..n]);
        self.at += n;
        let now = Instant::now();
        self.sender.audio(&frame).await?;
        Ok((now, self.at))
    }
}
