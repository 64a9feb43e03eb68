//! From a blocking [`SttStream`] to the port, once for all local engines.
//!
//! An engine module makes a [`Local`] with as many replicas as may decode at once; each lives on a lane of its own, and
//! an utterance leases one until it is finished or dropped. Pieces pushed while the lane decodes gather here and go
//! over in one hop, so that a hop costs nothing when the engine is behind. A partial transcript or a guess that nobody waits
//! for any more is cancelled by the next piece or question, and one that fails is none: the utterance goes on. The adapter
//! never looks into audio or text.

use super::SttStream;
use antiphon_engine_api::stt::{SpeakerState, Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_inference::pool::{Lease, Overloaded, Pool, PoolError};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, poll};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::task::coop::unconstrained;
use tokio_util::sync::CancellationToken;

/// Utterances that may wait for a replica, for each replica; past it the answer is [`SttError::Busy`]. A turn waits
/// its predecessors' seconds of speech, so that more would outlive the session's deadline.
const WAITING_PER_REPLICA: usize = 16;

/// Samples that may gather while the lane decodes, 1 s; past it a push waits.
const MAX_BEHIND: usize = 16_000;

/// Samples decoded between two looks at the cancellation, 100 ms.
const STRIDE: usize = 1_600;

/// The port over a pool of replicas. The threads end when it and its last utterance are gone.
pub struct Local<S> {
    name: &'static str,
    pool: Pool<S>,
    translates: bool,
}

impl<S: SttStream + 'static> Local<S> {
    /// Makes `n_replicas` streams, each on its own thread, and blocks until all are made.
    pub fn start<F>(name: &'static str, n_replicas: usize, make: F) -> Result<Self, SttError>
    where
        F: Fn() -> Result<S, SttError> + Send + Sync + 'static,
    {
        let max_waiting = n_replicas.max(1) * WAITING_PER_REPLICA;
        Ok(Self { name, pool: Pool::start(name, n_replicas, max_waiting, make)?, translates: false })
    }

    /// The same, of at most `max_replicas` streams, made as utterances need them and given back when they were not needed for
    /// `idle` ([`Pool::start_elastic`]). Blocks until the first is made.
    pub fn start_elastic<F>(name: &'static str, max_replicas: usize, idle: Duration, make: F) -> Result<Self, SttError>
    where
        F: Fn() -> Result<S, SttError> + Send + Sync + 'static,
    {
        let max_waiting = max_replicas.max(1) * WAITING_PER_REPLICA;
        let pool = Pool::start_elastic(name, max_replicas, max_waiting, idle, make)?;
        Ok(Self { name, pool, translates: false })
    }

    /// The same, of streams that can translate into English or not.
    pub fn translating(self, translates: bool) -> Self {
        Self { translates, ..self }
    }
}

impl<S: SttStream + 'static> Stt for Local<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn translates(&self) -> bool {
        self.translates
    }

    fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let pool = self.pool.clone();
        async move {
            let mut lease = pool.lease().await.map_err(|Overloaded { waiting }| SttError::Busy { waiting })?;
            lease.run(move |stream| stream.begin(&options)).await.map_err(lost)??;
            let cancel = CancellationToken::new();
            let (lane, asked) = (Lane::Idle(lease), cancel.child_token());
            Ok(Box::new(PooledUtterance { lane, gathered: Vec::new(), asked, cancel }) as Box<dyn SttUtterance>)
        }
        .boxed()
    }
}

/// What is asked of the stream after the gathered audio.
#[derive(Clone, Copy)]
enum Ask {
    Nothing,
    Partial,
    Guess,
    Finish,
    Learn,
}

type Answer = Result<Transcript, SttError>;

/// What became of a job.
enum Done {
    /// The question was answered, or not; the utterance goes on.
    Asked(Answer),
    /// The utterance is lost.
    Failed(SttError),
}

/// Where the lease is.
enum Lane<S: 'static> {
    Idle(Lease<S>),
    /// With the job under way, so that a future of ours that is dropped midway leaves the utterance whole.
    Busy(BoxFuture<'static, (Lease<S>, Done)>),
    /// A job failed; the replica is back in the pool.
    Failed,
}

struct PooledUtterance<S: SttStream + 'static> {
    lane: Lane<S>,
    gathered: Vec<i16>,
    /// Of the partial transcript or the guess under way: nobody waits for it once something else is asked.
    asked: CancellationToken,
    cancel: CancellationToken,
}

impl<S: SttStream + 'static> PooledUtterance<S> {
    /// Sends the gathered audio and the question to the idle lane; the job runs from the first poll on.
    fn send(&mut self, ask: Ask) {
        self.lane = match std::mem::replace(&mut self.lane, Lane::Failed) {
            Lane::Idle(lease) => {
                let pcm = std::mem::take(&mut self.gathered);
                self.asked = self.cancel.child_token();
                let (cancel, asked) = (self.cancel.clone(), self.asked.clone());
                Lane::Busy(job(lease, pcm, ask, cancel, asked).boxed())
            }
            other => other,
        };
    }

    /// Waits for the job under way; gives its answer. An idle lane is settled.
    async fn settle(&mut self) -> Result<Option<Answer>, SttError> {
        let Lane::Busy(job) = &mut self.lane else {
            return self.check();
        };
        let done = job.await;
        self.take(done)
    }

    /// Looks whether the job under way has ended, and lets a new one begin.
    async fn nudge(&mut self) -> Result<(), SttError> {
        let Lane::Busy(job) = &mut self.lane else {
            return self.check().map(drop);
        };
        match poll!(job) {
            Poll::Ready(done) => self.take(done).map(drop),
            Poll::Pending => Ok(()),
        }
    }

    fn take(&mut self, (lease, done): (Lease<S>, Done)) -> Result<Option<Answer>, SttError> {
        match done {
            Done::Asked(answer) => {
                self.lane = Lane::Idle(lease);
                Ok(Some(answer))
            }
            Done::Failed(error) => {
                self.lane = Lane::Failed;
                let_go(lease);
                Err(error)
            }
        }
    }

    fn check(&self) -> Result<Option<Answer>, SttError> {
        match self.lane {
            Lane::Failed => Err(SttError::Engine { message: "this utterance failed before".into(), source: None }),
            _ => Ok(None),
        }
    }

    async fn ask(&mut self, ask: Ask) -> Answer {
        self.asked.cancel();
        self.settle().await?;
        self.send(ask);
        self.settle().await?.expect("a job answers")
    }
}

impl<S: SttStream + 'static> Drop for PooledUtterance<S> {
    fn drop(&mut self) {
        self.cancel.cancel();
        match std::mem::replace(&mut self.lane, Lane::Failed) {
            Lane::Idle(lease) => let_go(lease),
            // One that still runs sees the cancellation and lets go by itself.
            Lane::Busy(mut job) => {
                if let Some((lease, _)) = unconstrained(&mut job).now_or_never() {
                    let_go(lease);
                }
            }
            Lane::Failed => {}
        }
    }
}

/// Has the replica forget its utterance before it goes to the next. Does not wait for it.
fn let_go<S: SttStream + 'static>(mut lease: Lease<S>) {
    // The first poll sends the job, which keeps the replica until it has ended.
    let _ = unconstrained(pin!(lease.run(S::forget))).now_or_never();
}

/// Decodes on the lane, in strides, and answers the question. `asked` stops a partial transcript and a guess, `cancel`
/// all of it.
async fn job<S: SttStream + 'static>(
    mut lease: Lease<S>,
    pcm: Vec<i16>,
    ask: Ask,
    cancel: CancellationToken,
    asked: CancellationToken,
) -> (Lease<S>, Done) {
    let work = move |stream: &mut S| {
        let done = answer(stream, &pcm, ask, &cancel, &asked);
        if cancel.is_cancelled() {
            stream.forget();
        }
        done
    };
    let done = lease.run(work).await.unwrap_or_else(|error| Done::Failed(lost(error)));
    (lease, done)
}

fn answer<S: SttStream>(
    stream: &mut S,
    pcm: &[i16],
    ask: Ask,
    cancel: &CancellationToken,
    asked: &CancellationToken,
) -> Done {
    for stride in pcm.chunks(STRIDE) {
        if cancel.is_cancelled() {
            return Done::Failed(SttError::Cancelled);
        }
        if let Err(error) = stream.push(stride, cancel) {
            return Done::Failed(error);
        }
    }
    let answer = match ask {
        Ask::Nothing => Ok(Transcript::default()),
        Ask::Partial => stream.partial(asked),
        Ask::Guess => stream.provisional(asked),
        Ask::Finish => stream.finish(cancel),
        Ask::Learn => stream.learn().map(|speaker| Transcript { speaker, ..Transcript::default() }),
    };
    Done::Asked(answer)
}

fn lost(error: PoolError) -> SttError {
    SttError::Engine { message: error.to_string(), source: Some(Box::new(error)) }
}

impl<S: SttStream + 'static> SttUtterance for PooledUtterance<S> {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        async move {
            self.gathered.extend_from_slice(&pcm);
            // Whoever waited for an answer about less audio does so no more.
            self.asked.cancel();
            self.nudge().await?;
            if self.gathered.len() > MAX_BEHIND {
                self.settle().await?;
            }
            if matches!(self.lane, Lane::Idle(_)) {
                self.send(Ask::Nothing);
                self.nudge().await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        self.ask(Ask::Partial).map(|answer| answer.map(Some)).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.ask(Ask::Guess).boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move { self.ask(Ask::Finish).await }.boxed()
    }

    fn learn(mut self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        async move { self.ask(Ask::Learn).await.ok()?.speaker }.boxed()
    }
}

#[cfg(test)]
mod tests;
