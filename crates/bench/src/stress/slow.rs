//! Clients that send at real time and read slowly: a page in a background tab, a phone whose program is busy.

use super::StressPlan;
use crate::load::Clips;
use crate::voice_to_voice::open_with;
use antiphon_client::{ClientError, FRAME};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// A message is read so often: a tenth of what a reply sends.
const READS_EVERY: Duration = Duration::from_millis(200);

/// Pause between two questions.
const PAUSE: Duration = Duration::from_secs(3);

const FRAME_TIME: Duration = Duration::from_millis(20);

/// What happened to slow readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowReaders {
    /// How many there were.
    pub sessions: usize,
    /// Sessions that the server closed or refused.
    pub closed: usize,
    /// Messages that they read.
    pub messages: usize,
}

/// Runs this number of them for this time. Dropping the future ends them.
pub(super) async fn read(plan: &StressPlan, n_sessions: usize, time: Duration) -> SlowReaders {
    let mut sessions = JoinSet::new();
    for session in 0..n_sessions {
        let wait = plan.spread / n_sessions as u32 * session as u32;
        let connect = plan.connect.clone();
        let settings = plan.session.clone();
        let clips = plan.clips.clone();
        sessions.spawn(async move {
            let mut messages = 0;
            sleep(wait).await;
            let talked = async {
                let connection = open_with(&connect, &settings).await?;
                talk(connection, &clips, session, time, &mut messages).await
            };
            (talked.await.is_err(), messages)
        });
    }
    let mut all = SlowReaders { sessions: n_sessions, ..SlowReaders::default() };
    while let Some(ended) = sessions.join_next().await {
        let (is_closed, messages) = ended.unwrap_or((true, 0));
        all.closed += usize::from(is_closed);
        all.messages += messages;
    }
    all
}

async fn talk(
    connection: antiphon_client::Connection,
    clips: &Arc<Clips>,
    session: usize,
    time: Duration,
    messages: &mut usize,
) -> Result<(), ClientError> {
    let antiphon_client::Connection { mut sender, mut receiver } = connection;
    let end = Instant::now() + time;
    let speech = &clips[session % clips.len()].samples;
    let silence = PAUSE.as_millis() as usize / FRAME_TIME.as_millis() as usize;
    let n_frames = speech.len().div_ceil(FRAME) + silence;
    let mut ticks = interval(FRAME_TIME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut at = 0;
    let mut read_at = Instant::now();
    while Instant::now() < end {
        ticks.tick().await;
        let mut frame = vec![0; FRAME];
        let left = speech.get(at * FRAME..).unwrap_or_default();
        let n = left.len().min(FRAME);
        frame[..n].copy_from_slice(&left[..n]);
        at = (at + 1) % n_frames;
        sender.audio(&frame).await?;
        if read_at.elapsed() >= READS_EVERY {
            read_at = Instant::now();
            // A message that is not there yet is read at the next time.
            if let Ok(received) = tokio::time::timeout(Duration::from_millis(1), receiver.next()).await {
                received?;
                *messages += 1;
            }
        }
    }
    sender.close().await;
    Ok(())
}
