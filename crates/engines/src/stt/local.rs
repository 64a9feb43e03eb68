//! From a blocking [`SttStream`] to the port, once for all local engines.
//!
//! An engine module starts a [`Local`] with as many replicas as may decode at once; an utterance leases one until it is
//! finished or dropped. Pieces pushed while the replica decodes are gathered and passed on in one hop, so that a hop costs
//! nothing when the engine is behind. A partial or provisional transcript is cancelled by the next piece or question, and its
//! failure does not end the utterance. The adapter never reads audio or text.

use super::SttStream;
use antiphon_engine_api::stt::{OpeningUtterance, SpeakerState, Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_inference::pool::{Lease, Overloaded, Pool, PoolError, QueuePosition};
use antiphon_types::Meter;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, poll};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Utterances that may wait, for each replica; past it the answer is [`SttError::Busy`]. A turn waits for the whole speech of
/// its predecessors, so that more would exceed the session's deadline.
const WAITING_PER_REPLICA: usize = 16;

/// Samples gathered while the replica decodes, 1 s; past it a push waits.
const MAX_BEHIND: usize = 16_000;

/// Samples decoded between two checks for cancellation, 100 ms.
const STRIDE: usize = 1_600;

/// The port over a pool of replicas. The threads end when it and its last utterance are gone.
pub struct Local<S> {
    name: &'static str,
    pool: Pool<S>,
    n_replicas: usize,
    languages: Vec<String>,
    takes_long_stretches: bool,
}

impl<S: SttStream + 'static> Local<S> {
    /// Starts `n_replicas` streams, each on its own thread, and blocks until all run. `make` gets the replica's number, from 0,
    /// also at each restart.
    pub fn start<F>(name: &'static str, n_replicas: usize, make: F) -> Result<Self, SttError>
    where
        F: Fn(usize) -> Result<S, SttError> + Send + Sync + 'static,
    {
        let n_replicas = n_replicas.max(1);
        let pool = Pool::start(name, n_replicas, n_replicas * WAITING_PER_REPLICA, make)?;
        Ok(Self { name, pool, n_replicas, languages: vec!["en".to_owned()], takes_long_stretches: false })
    }

    /// The same, with at most `max_replicas` streams, started as utterances need them and stopped when they were not used for
    /// `idle` ([`Pool::start_elastic`]). Blocks until the first runs.
    pub fn start_elastic<F>(name: &'static str, max_replicas: usize, idle: Duration, make: F) -> Result<Self, SttError>
    where
        F: Fn(usize) -> Result<S, SttError> + Send + Sync + 'static,
    {
        let n_replicas = max_replicas.max(1);
        let pool = Pool::start_elastic(name, n_replicas, n_replicas * WAITING_PER_REPLICA, idle, make)?;
        Ok(Self { name, pool, n_replicas, languages: vec!["en".to_owned()], takes_long_stretches: false })
    }

    /// The same, for streams that transcribe these languages, by their codes, where others know English alone. Several of them:
    /// they detect the one spoken, and translate into English.
    pub fn of_languages(self, languages: Vec<String>) -> Self {
        Self { languages, ..self }
    }

    /// The same, for streams that report times and understand words by those around them:
    /// [`Stt::takes_long_stretches`].
    pub fn of_long_stretches(self) -> Self {
        Self { takes_long_stretches: true, ..self }
    }
}

impl<S: SttStream + 'static> Stt for Local<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn translates(&self) -> bool {
        self.languages.len() > 1
    }

    fn languages(&self) -> Option<Vec<String>> {
        Some(self.languages.clone())
    }

    fn detects_language(&self) -> bool {
        self.languages.len() > 1
    }

    fn takes_long_stretches(&self, _: bool) -> bool {
        self.takes_long_stretches
    }

    fn concurrency(&self) -> usize {
        self.n_replicas
    }

    fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    fn in_service(&self) -> usize {
        self.pool.in_service()
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let pool = self.pool.clone();
        async move {
            let lease = pool.lease().await.map_err(|Overloaded { waiting }| SttError::Busy { waiting })?;
            begin(lease, options).await
        }
        .boxed()
    }

    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        let pool = self.pool.clone();
        let opening = |place: QueuePosition<S>| async move { begin(place.lease().await, options).await }.boxed();
        async move { pool.enqueue().await }.map(opening).boxed()
    }
}

/// An utterance on the leased replica.
async fn begin<S: SttStream + 'static>(
    mut lease: Lease<S>,
    options: SttOptions,
) -> Result<Box<dyn SttUtterance>, SttError> {
    let meter = options.meter.clone();
    lease.run(move |stream| stream.begin(&options)).await.map_err(lost)??;
    let cancel = CancellationToken::new();
    let replica = Replica::Idle(lease);
    let asked = cancel.child_token();
    Ok(Box::new(PooledUtterance { replica, gathered: Vec::new(), asked, cancel, meter }))
}

/// The question to the stream after the gathered audio.
#[derive(Clone, Copy)]
enum Ask {
    Nothing,
    Partial,
    Provisional,
    Finish,
    Learn,
}

type Answer = Result<Transcript, SttError>;

/// How a job ended.
enum JobOutcome {
    /// The question was answered, or failed; the utterance goes on.
    Answered(Answer),
    /// The utterance is lost.
    Failed(SttError),
    /// The utterance was dropped meanwhile, and the stream has discarded it.
    Discarded,
}

/// The leased replica.
enum Replica<S: 'static> {
    Idle(Lease<S>),
    /// The lease is with the running job, so that a future dropped midway leaves the utterance intact.
    Busy(BoxFuture<'static, (Lease<S>, JobOutcome)>),
    /// A job failed; the replica is returned to the pool.
    Failed,
}

struct PooledUtterance<S: SttStream + 'static> {
    replica: Replica<S>,
    gathered: Vec<i16>,
    /// Cancels the partial or provisional transcript under way, when something else is asked.
    asked: CancellationToken,
    cancel: CancellationToken,
    meter: Meter,
}

impl<S: SttStream + 'static> PooledUtterance<S> {
    /// Sends the gathered audio and the question to the idle replica; the job runs from the first poll on.
    fn send(&mut self, ask: Ask) {
        self.replica = match std::mem::replace(&mut self.replica, Replica::Failed) {
            Replica::Idle(lease) => {
                let pcm = std::mem::take(&mut self.gathered);
                self.asked = self.cancel.child_token();
                let cancel = self.cancel.clone();
                let asked = self.asked.clone();
                Replica::Busy(job(lease, pcm, ask, cancel, asked, self.meter.clone()).boxed())
            }
            other => other,
        };
    }

    /// Waits for the job under way; gives its answer. An idle replica is settled.
    async fn settle(&mut self) -> Result<Option<Answer>, SttError> {
        let Replica::Busy(job) = &mut self.replica else {
            return self.check();
        };
        let (lease, done) = job.await;
        self.take(lease, done)
    }

    /// Polls the job under way, so that a new one can begin if it has ended.
    async fn nudge(&mut self) -> Result<(), SttError> {
        let Replica::Busy(job) = &mut self.replica else {
            return self.check().map(drop);
        };
        match poll!(job) {
            Poll::Ready((lease, done)) => self.take(lease, done).map(drop),
            Poll::Pending => Ok(()),
        }
    }

    fn take(&mut self, lease: Lease<S>, done: JobOutcome) -> Result<Option<Answer>, SttError> {
        match done {
            JobOutcome::Answered(answer) => {
                self.replica = Replica::Idle(lease);
                Ok(Some(answer))
            }
            JobOutcome::Failed(error) => {
                self.replica = Replica::Failed;
                release(lease);
                Err(error)
            }
            JobOutcome::Discarded => {
                self.replica = Replica::Failed;
                Err(SttError::Cancelled)
            }
        }
    }

    fn check(&self) -> Result<Option<Answer>, SttError> {
        match self.replica {
            Replica::Failed => Err(SttError::Engine { message: "this utterance failed before".into(), source: None }),
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
        match std::mem::replace(&mut self.replica, Replica::Failed) {
            Replica::Idle(lease) => release(lease),
            // A job that still runs sees the cancellation and releases the replica by itself.
            Replica::Busy(mut job) => {
                // It may have ended in this moment: before the cancellation, or with it.
                match unconstrained(&mut job).now_or_never() {
                    Some((_, JobOutcome::Discarded)) | None => {}
                    Some((lease, JobOutcome::Answered(_) | JobOutcome::Failed(_))) => release(lease),
                }
            }
            Replica::Failed => {}
        }
    }
}

/// Has the replica discard its utterance before the next one leases it. Does not wait for it.
fn release<S: SttStream + 'static>(mut lease: Lease<S>) {
    // The first poll sends the job, which keeps the replica until it has ended.
    let _ = unconstrained(pin!(lease.run(S::forget))).now_or_never();
}

/// Decodes on the replica, in strides, and answers the question. `asked` stops a partial and a provisional transcript,
/// `cancel` everything.
async fn job<S: SttStream + 'static>(
    mut lease: Lease<S>,
    pcm: Vec<i16>,
    ask: Ask,
    cancel: CancellationToken,
    asked: CancellationToken,
    meter: Meter,
) -> (Lease<S>, JobOutcome) {
    let work = move |stream: &mut S| {
        let begun = Instant::now();
        let done = answer(stream, &pcm, ask, &cancel, &asked);
        meter.add(stream.runs_on(), begun.elapsed());
        if cancel.is_cancelled() {
            stream.forget();
            return JobOutcome::Discarded;
        }
        done
    };
    let done = lease.run(work).await.unwrap_or_else(|error| JobOutcome::Failed(lost(error)));
    (lease, done)
}

fn answer<S: SttStream>(
    stream: &mut S,
    pcm: &[i16],
    ask: Ask,
    cancel: &CancellationToken,
    asked: &CancellationToken,
) -> JobOutcome {
    for stride in pcm.chunks(STRIDE) {
        if cancel.is_cancelled() {
            return JobOutcome::Failed(SttError::Cancelled);
        }
        if let Err(error) = stream.push(stride, cancel) {
            return JobOutcome::Failed(error);
        }
    }
    let answer = match ask {
        Ask::Nothing => Ok(Transcript::default()),
        Ask::Partial => stream.partial(asked),
        Ask::Provisional => stream.provisional(asked),
        Ask::Finish => stream.finish(cancel),
        Ask::Learn => stream.learn().map(|speaker| Transcript { speaker, ..Transcript::default() }),
    };
    JobOutcome::Answered(answer)
}

fn lost(error: PoolError) -> SttError {
    SttError::Engine { message: error.to_string(), source: Some(Box::new(error)) }
}

impl<S: SttStream + 'static> SttUtterance for PooledUtterance<S> {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        async move {
            self.gathered.extend_from_slice(&pcm);
            // An answer about less audio is out of date.
            self.asked.cancel();
            self.nudge().await?;
            if self.gathered.len() > MAX_BEHIND {
                self.settle().await?;
            }
            if matches!(self.replica, Replica::Idle(_)) {
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
        self.ask(Ask::Provisional).boxed()
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
