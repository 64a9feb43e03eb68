//! A synchronous engine that speaks several chunks in one run, behind the port [`Tts`]: a batch scheduler.
//!
//! Made by `neural::serve`, for families whose graphs take a batch and give a length for each item; the others use
//! [`local`](super::local). Chunks are ordered by how much their listener has left to hear. Dropping a stream removes its
//! chunk from the queue; a chunk that runs alone is stopped, one in a batch runs to the end of that run.

mod job;

pub use job::Job;
use job::Sounds;

use super::TtsConfig;
use super::deadline::with_deadline;
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::onnx::Provider;
use antiphon_inference::pool::Overloaded;
use antiphon_inference::pool::batch::{BatchEngine, BatchScheduler, BatchSettings};
use antiphon_types::{Meter, Pcm, RunsOn};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, Stream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Chunks that may wait, for each replica: at 30 to 200 ms a chunk the last one waits a few seconds.
const WAITING_PER_REPLICA: usize = 32;

/// Chunks in one run on the processor, where nothing else is set. Piper of the true size, two cores, eight listeners
/// (`antiphon-bench --only engines`): 3.98, 4.52, 4.49 and 3.98 chunks a second in batches of 1, 2, 4 and 8. Listeners who
/// are fewer than a batch all wait for its end, which speaks for the smaller one.
const CPU_BATCH: usize = 2;

/// The same on a GPU; not measured yet.
const GPU_BATCH: usize = 8;

/// An engine that speaks several chunks in one run, as a batch scheduler drives it. Each replica has one, on its thread.
pub trait BatchTtsEngine: 'static {
    /// The voices, the default one first.
    fn voices(&self) -> &[Voice];

    /// The size class of a chunk, from its text: only chunks of one class share a run, in which all are padded to the
    /// longest: classes minimise compute wasted on padding. Asked before any replica has the chunk.
    fn bucket(request: &SpeechRequest) -> u32
    where
        Self: Sized;

    /// What a run keeps busy.
    fn runs_on(&self) -> RunsOn {
        RunsOn::default()
    }

    /// Speaks one step of each job, all of one class, in one run: passes its sound to [`Job::sound`], and with
    /// [`Job::go_on_at`] where a longer one continues. The failure of one job is reported to [`Job::fail`]. Blocks for as
    /// long as the run takes.
    ///
    /// # Errors
    /// What failed for all of them: they end with it, and after a [`TtsError::Engine`] the engine is restarted, unless the
    /// request was at fault.
    fn synthesize_batch(&mut self, jobs: &mut [Job], cancel: &CancellationToken) -> Result<(), TtsError>;
}

/// How many replicas and how large their batches.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// Replicas of the engine, at least 1.
    pub n_replicas: usize,
    /// Chunks in one run at most, at least 1.
    pub max_batch: usize,
    /// The longest a free replica waits for a batch to fill.
    pub max_wait: Duration,
    /// The longest wait for a chunk's first sound, including the wait for a run, and for each further piece.
    pub deadline: Duration,
}

/// See the module.
pub struct BatchedTts<E> {
    name: String,
    voices: Vec<Voice>,
    scheduler: BatchScheduler<Job>,
    concurrency: usize,
    deadline: Duration,
    bucket: fn(&SpeechRequest) -> u32,
    _engine: std::marker::PhantomData<fn() -> E>,
}

/// The engine on its replica's thread.
struct ReplicaEngine<E>(E);

impl Batching {
    /// As the `[tts]` section has it, on `n_devices` devices; where that leaves the batch size to the hub, the size
    /// that measured best on the model's provider.
    pub fn of(config: &TtsConfig, provider: Provider, n_devices: usize) -> Self {
        let max_batch = match (config.max_batch_size, provider) {
            (0, Provider::Cpu) => CPU_BATCH,
            (0, _) => GPU_BATCH,
            (given, _) => given,
        };
        let ms = Duration::from_millis;
        Self {
            n_replicas: config.pool_size(n_devices),
            max_batch,
            max_wait: ms(config.max_wait_ms),
            deadline: ms(config.timeout_ms),
        }
    }
}

impl<E: BatchTtsEngine> BatchedTts<E> {
    /// Starts an engine for each replica, one after the other; blocks until all run. `make` gets the replica's number, from 0,
    /// also at each restart, and warms the engine too: a started scheduler is ready. The first failure is returned.
    pub fn start<F>(name: &str, batching: Batching, make: F) -> Result<Self, TtsError>
    where
        F: Fn(usize) -> Result<E, TtsError> + Send + Sync + 'static,
    {
        let n_replicas = batching.n_replicas.max(1);
        let max_batch = batching.max_batch.max(1);
        let max_waiting = n_replicas * WAITING_PER_REPLICA.max(4 * max_batch);
        let settings = BatchSettings { n_replicas, max_batch, max_wait: batching.max_wait, max_waiting };
        let voices: Arc<OnceLock<Vec<Voice>>> = Arc::default();
        let listed = voices.clone();
        let scheduler = BatchScheduler::start(name, settings, move |replica| {
            let engine = make(replica)?;
            listed.get_or_init(|| engine.voices().to_vec());
            Ok::<_, TtsError>(ReplicaEngine(engine))
        })?;
        let voices = voices.get().expect("an engine was started for each replica").clone();
        let deadline = batching.deadline;
        Ok(Self {
            name: name.into(),
            voices,
            scheduler,
            concurrency: n_replicas * max_batch,
            deadline,
            bucket: E::bucket,
            _engine: std::marker::PhantomData,
        })
    }
}

impl<E: BatchTtsEngine> BatchEngine<Job> for ReplicaEngine<E> {
    fn run(&mut self, batch: &mut Vec<Job>) -> Result<(), String> {
        let cancel = match &mut batch[..] {
            [alone] => alone.cancelled(),
            _ => CancellationToken::new(),
        };
        batch.iter_mut().for_each(Job::begin_step);
        let meters: Vec<_> = batch.iter().map(|job| job.request().meter.clone()).collect();
        let begun = Instant::now();
        let result = self.0.synthesize_batch(batch, &cancel);
        Meter::share(&meters, self.0.runs_on(), begun.elapsed());
        match result {
            // The result of a cancelled run is not awaited, and its error is not a failure of the engine.
            _ if cancel.is_cancelled() => batch.clear(),
            Ok(()) => batch.retain(Job::goes_on),
            Err(error) if !super::is_breakage(&error) => {
                let message = error.to_string();
                batch.drain(..).for_each(|mut job| job.fail(TtsError::Unavailable(message.clone())));
            }
            Err(TtsError::Engine { message, .. }) => return Err(message),
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}

impl<E: BatchTtsEngine> Tts for BatchedTts<E> {
    fn name(&self) -> &str {
        &self.name
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    fn in_service(&self) -> usize {
        self.scheduler.in_service()
    }

    fn voices(&self) -> Vec<Voice> {
        self.voices.clone()
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let scheduler = self.scheduler.clone();
        let bucket = (self.bucket)(&request);
        let stream = async_stream::stream! {
            let (job, sounds) = Job::new(request, bucket);
            let refused = scheduler.submit(job).err().map(|(overloaded, _)| overloaded);
            if let Some(Overloaded { waiting }) = refused {
                yield Err(TtsError::Overloaded { waiting });
                return;
            }
            for await piece in spoken(scheduler, sounds) {
                yield piece;
            }
        };
        with_deadline(stream, self.deadline)
    }

    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        let scheduler = self.scheduler.clone();
        let bucket = (self.bucket)(&request);
        let deadline = self.deadline;
        async move {
            let (job, sounds) = Job::new(request, bucket);
            scheduler.enqueue(job).await;
            with_deadline(spoken(scheduler, sounds), deadline)
        }
        .boxed()
    }
}

/// The sound of a submitted chunk. Dropping the stream abandons the chunk, which makes room for another.
fn spoken(
    scheduler: BatchScheduler<Job>,
    sounds: Sounds,
) -> impl Stream<Item = Result<Pcm, TtsError>> + Send + 'static {
    let mut reader = Reader { sounds: Some(sounds), scheduler };
    async_stream::stream! {
        while let Some(piece) = reader.next().await {
            yield piece;
        }
    }
}

/// The reader's end of a chunk. Dropping it makes room in the queue.
struct Reader {
    sounds: Option<Sounds>,
    scheduler: BatchScheduler<Job>,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Pcm, TtsError>> {
        self.sounds.as_mut()?.next().await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.sounds = None;
        self.scheduler.has_abandoned();
    }
}

#[cfg(test)]
mod tests;
