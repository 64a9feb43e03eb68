//! One pause on a worker: its audio, then the probability that the turn is over.

use super::WorkerAttempt;
use super::admission::StageSlot;
use crate::frame::{Kind, pcm_samples};
use crate::message::{Answer, Failure, to_json};
use antiphon_engine_api::turn::TurnModel;
use std::sync::Arc;

/// Runs to the answer.
pub(super) async fn run(mut served: WorkerAttempt, model: Arc<dyn TurnModel>, admitted: StageSlot) {
    served.exchange.send_now(Kind::Accepted, bytes::Bytes::from_static(b"{}"));
    let span = usize::try_from(model.span().0).unwrap_or(usize::MAX);
    let mut pcm: Vec<i16> = Vec::new();
    loop {
        let (frame, at) = match served.exchange.receive().await {
            Ok(received) => received,
            Err(ended) => return served.ended(ended),
        };
        match frame.kind {
            Kind::Audio => {
                pcm.extend(pcm_samples(&frame.payload));
                // Of more than the model considers, the end counts.
                if pcm.len() > 2 * span {
                    pcm.drain(..pcm.len() - span);
                }
            }
            Kind::Finish => {
                served.exchange.answers(at);
                break;
            }
            _ => {}
        }
    }
    let judged = tokio::select! {
        biased;
        judged = model.judge(pcm) => judged,
        ended = served.exchange.ended() => return served.ended(ended),
    };
    drop(admitted);
    match judged {
        Ok(probability) => served.end(Kind::Answer, to_json(&Answer::Probability { probability })).await,
        Err(error) => served.end(Kind::Failed, to_json(&Failure::of_turn(&error))).await,
    }
}
