//! A query of a turn model on its way to the model's thread and back. Answers come in the order of the queries.

use antiphon_engine_api::turn::TurnModelError;
use antiphon_inference::pool::Overloaded;
use antiphon_inference::pool::batch::{BatchFailure, BatchScheduler, Entry};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Queries that wait; past it the answer is [`TurnModelError::Busy`], for an answer would come too late to help.
pub(super) const MAX_WAITING: usize = 64;

/// See the module.
pub(super) struct Query {
    /// Mono, at 16 kHz.
    pub(super) pcm: Vec<i16>,
    /// Which of the model's classes is asked for; 0 where it has one.
    pub(super) class: usize,
    asked: Instant,
    pub(super) answer: oneshot::Sender<Result<f32, TurnModelError>>,
}

/// Asks the model for the probability of a class. Dropping the future abandons the query.
pub(super) fn query(
    scheduler: BatchScheduler<Query>,
    class: usize,
    pcm: Vec<i16>,
) -> BoxFuture<'static, Result<f32, TurnModelError>> {
    async move {
        let (answer, answered) = oneshot::channel();
        let submitted = scheduler.submit(Query { pcm, class, asked: Instant::now(), answer });
        submitted.map_err(|(Overloaded { waiting }, _)| TurnModelError::Busy { waiting })?;
        answered.await.unwrap_or_else(|_| Err(TurnModelError::Failed("the query was lost".into())))
    }
    .boxed()
}

impl Entry for Query {
    fn bucket(&self) -> u32 {
        0
    }

    fn deadline(&self) -> Instant {
        self.asked
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn fail(self, failure: BatchFailure) {
        // The session may have gone on without the answer.
        let _ = self.answer.send(Err(TurnModelError::Failed(failure.to_string())));
    }
}
