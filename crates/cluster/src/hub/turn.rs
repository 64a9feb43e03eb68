//! The turn model on workers: the audio of a pause there, a probability back.

use super::attempt::{Attempt, AttemptLoss, AttemptRequest, MAX_ATTEMPTS, NotOpened, failure};
use super::{Cluster, Counters};
use crate::frame::{Kind, MAX_AUDIO_SAMPLES, pcm_payload};
use crate::message::{Answer, Request, Stage, of_json};
use antiphon_engine_api::turn::{RATE, TurnModel, TurnModelError};
use antiphon_types::Samples;
use bytes::Bytes;
use futures_util::future::BoxFuture;

/// The longest audio that is sent: what no turn model considers is not sent over the network.
const MAX_SPAN: Samples = Samples(16 * RATE.hz() as u64);

/// See the module. One for each hub.
pub(super) struct ClusterTurnModel {
    cluster: Cluster,
}

impl ClusterTurnModel {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }
}

impl TurnModel for ClusterTurnModel {
    fn name(&self) -> &str {
        "cluster"
    }

    fn span(&self) -> Samples {
        let serving = self.cluster.0.directory.serving(Stage::Turn);
        let spans =
            serving.iter().filter_map(|worker| worker.stage(Stage::Turn)).map(|stage| Samples(stage.span_samples));
        spans.max().unwrap_or(MAX_SPAN).min(MAX_SPAN)
    }

    fn concurrency(&self) -> usize {
        self.cluster.slots(Stage::Turn)
    }

    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        let cluster = self.cluster.clone();
        Box::pin(async move {
            for attempt in 1..=MAX_ATTEMPTS {
                let opened = cluster.open(&AttemptRequest::of(&Request::Turn {}), &[]).await;
                let opened = opened.map_err(|error| match error {
                    NotOpened::Busy(waiting) => TurnModelError::Busy { waiting },
                    NotOpened::Away(why) => TurnModelError::Away(why),
                    NotOpened::Failed(failure, worker) => failure.turn(&worker.name),
                })?;
                if attempt > 1 {
                    Counters::count(&cluster.0.counters.retried);
                }
                match judged(opened, &pcm).await {
                    Ok(judged) => return judged,
                    Err(AttemptLoss::Away) => {
                        return Err(TurnModelError::Away("the connection to NATS is lost".into()));
                    }
                    Err(_) => {}
                }
            }
            Counters::count(&cluster.0.counters.failed);
            Err(TurnModelError::Failed(format!("{MAX_ATTEMPTS} workers were lost one after the other")))
        })
    }
}

async fn judged(mut attempt: Attempt, pcm: &[i16]) -> Result<Result<f32, TurnModelError>, AttemptLoss> {
    for samples in pcm.chunks(MAX_AUDIO_SAMPLES) {
        attempt.send(Kind::Audio, pcm_payload(samples)).await?;
    }
    attempt.send(Kind::Finish, Bytes::new()).await?;
    loop {
        let (frame, _) = attempt.receive().await?;
        match frame.kind {
            Kind::Failed => return Ok(Err(failure(&frame).turn(&attempt.worker.name))),
            Kind::End => return Err(AttemptLoss::Worker),
            Kind::Answer => {
                if let Ok(Answer::Probability { probability }) = of_json(&frame.payload) {
                    attempt.end();
                    let is_one = (0.0..=1.0).contains(&probability);
                    let wrong = || TurnModelError::Failed(format!("{probability} is no probability"));
                    return Ok(is_one.then_some(probability).ok_or_else(wrong));
                }
            }
            _ => {}
        }
    }
}
