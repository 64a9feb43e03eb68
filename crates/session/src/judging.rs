//! The requests to the turn model: tasks that report a probability.
//!
//! [`super::hearing`] starts one at each pause where the wait adapts and there is a model; the next pause replaces it. The answer is
//! a hint for the wait of that pause only: a late one is dropped, and a failure only loses the hint. It starts others, one at a time,
//! while speech over a reply may be a backchannel, for models that judge it.

use super::transcription_input::Report;
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_types::{ItemId, Samples};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The longest useful delay of an answer: the second longest wait for the end of a turn.
const JUDGED_WITHIN: Duration = Duration::from_secs(2);

/// Asks the turn model about the pause that began at `pause_start`; `pcm` is the audio of the turn so far.
pub(super) async fn judge(
    model: Arc<dyn TurnModel>,
    pcm: Vec<i16>,
    pause_start: Samples,
    reports: mpsc::Sender<Report>,
) {
    match timeout(JUDGED_WITHIN, model.judge(pcm)).await {
        // The actor is gone only when the session is.
        Ok(Ok(probability)) => drop(reports.send(Report::Judged { pause_start, probability }).await),
        Ok(Err(error)) => tracing::warn!(%error, "the wait at this pause goes without the turn model"),
        Err(_) => tracing::warn!("the turn model gave no answer within {JUDGED_WITHIN:?}"),
    }
}

/// Reports the turn model's answer about speech over a reply, which is the beginning of `item`.
pub(super) async fn judge_overlap(
    answer: BoxFuture<'static, Result<f32, TurnModelError>>,
    item: ItemId,
    reports: mpsc::Sender<Report>,
) {
    let claim = match timeout(JUDGED_WITHIN, answer).await {
        Ok(Ok(claim)) => Some(claim),
        Ok(Err(error)) => {
            tracing::warn!(%error, "speech over a reply is judged without the turn model");
            None
        }
        Err(_) => {
            tracing::warn!("the turn model gave no answer within {JUDGED_WITHIN:?}");
            None
        }
    };
    // The actor is gone only when the session is.
    drop(reports.send(Report::OverlapJudged { item, claim }).await);
}
