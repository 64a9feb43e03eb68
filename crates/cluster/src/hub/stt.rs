//! Speech to text on workers.
//!
//! An utterance keeps its audio, so that it is transcribed again on another worker where its own dies, or where the
//! engine there fails before there were words. The session bounds its length, and with it this memory: 32 KB a second.

use super::attempt::{Attempt, AttemptLoss, AttemptRequest, MAX_ATTEMPTS, NotOpened, failure};
use super::directory::Worker;
use super::{Cluster, Counters};
use crate::frame::{Frame, Kind, MAX_AUDIO_SAMPLES, pcm_payload};
use crate::message::{Answer, Failure, Request, Stage, StageDescription, SttRequest, of_json};
use antiphon_engine_api::Hop;
use antiphon_engine_api::stt::{OpeningUtterance, SpeakerState, Stt, SttError, SttOptions, SttUtterance, Transcript};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

/// See the module. One for each hub.
pub(super) struct ClusterStt {
    cluster: Cluster,
}

impl ClusterStt {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// Whether there are workers, and all of them can do this.
    fn all_workers(&self, can: impl Fn(&StageDescription) -> bool) -> bool {
        let serving = self.cluster.0.directory.serving(Stage::Stt);
        !serving.is_empty() && serving.iter().all(|worker| worker.stage(Stage::Stt).is_some_and(&can))
    }
}

impl Stt for ClusterStt {
    fn name(&self) -> &str {
        "cluster"
    }

    fn translates(&self) -> bool {
        self.all_workers(|stage| stage.translates)
    }

    /// Those that all workers know; a fallback model counts only while there is no other.
    fn languages(&self) -> Option<Vec<String>> {
        let serving = self.cluster.0.directory.representative(Stage::Stt);
        let known =
            serving.iter().filter_map(|worker| worker.stage(Stage::Stt)).filter_map(|stage| stage.languages.clone());
        known.reduce(|all, other| all.into_iter().filter(|language| other.contains(language)).collect())
    }

    fn detects_language(&self) -> bool {
        self.all_workers(|stage| stage.detects_language)
    }

    fn takes_long_stretches(&self, _: bool) -> bool {
        self.all_workers(|stage| stage.takes_long_stretches)
    }

    fn concurrency(&self) -> usize {
        self.cluster.slots(Stage::Stt)
    }

    fn waiting(&self) -> usize {
        self.cluster.requests(Stage::Stt).1
    }

    fn in_service(&self) -> usize {
        self.cluster.requests(Stage::Stt).0
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let cluster = self.cluster.clone();
        Box::pin(async move {
            let request = Request::Stt(SttRequest::of(&options));
            let attempt = open(&cluster, &request, &[]).await?;
            let utterance = ClusterUtterance::new(cluster, request, options.hop, attempt);
            Ok(Box::new(utterance) as Box<dyn SttUtterance>)
        })
    }

    #[allow(clippy::async_yields_async, reason = "there are two waits: for room, and for a decoder")]
    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        let cluster = self.cluster.clone();
        Box::pin(async move {
            let first_in_line = cluster.0.queues[Stage::Stt as usize].acquire().await;
            let mut request = SttRequest::of(&options);
            request.queued = true;
            let request = Request::Stt(request);
            let attempt = open_when_there_is_room(&cluster, &request, &[]).await;
            drop(first_in_line);
            let opened = attempt.map(|attempt| {
                Box::new(ClusterUtterance::new(cluster.clone(), request, options.hop, attempt)) as Box<dyn SttUtterance>
            });
            Box::pin(std::future::ready(opened)) as OpeningUtterance
        })
    }
}

/// Opens an attempt once a worker has room for it: adverts say when.
async fn open_when_there_is_room(cluster: &Cluster, request: &Request, except: &[String]) -> Result<Attempt, SttError> {
    let mut changes = cluster.0.directory.changes();
    loop {
        changes.borrow_and_update();
        match open(cluster, request, except).await {
            Err(SttError::Busy { .. }) if changes.changed().await.is_ok() => {}
            opened => return opened,
        }
    }
}

async fn open(cluster: &Cluster, request: &Request, except: &[String]) -> Result<Attempt, SttError> {
    let opened = cluster.open(&AttemptRequest::of(request), except).await;
    opened.map_err(|error| match error {
        NotOpened::Busy(waiting) => SttError::Busy { waiting },
        NotOpened::Away(why) => SttError::Away(why),
        NotOpened::Failed(failure, worker) => failure.stt(&worker.name),
    })
}

struct ClusterUtterance {
    cluster: Cluster,
    request: Request,
    hop: Hop,
    /// `None` once it has ended.
    attempt: Option<Attempt>,
    /// All audio of the utterance.
    pcm: Vec<i16>,
    /// Samples of it that the attempt has.
    n_sent: usize,
    n_attempts: u32,
    /// Workers whose engine failed at it since the last answer.
    except: Vec<String>,
    /// The error of the last of them: the result, unless another worker takes the utterance.
    failure: Option<SttError>,
    /// The worker whose attempt was given up, until another attempt is open.
    given_up: Option<String>,
    /// Words of it were passed on.
    has_words: bool,
    n_requests: u32,
    /// A result was asked for, and the caller stopped waiting for it.
    awaited: bool,
}

impl ClusterUtterance {
    fn new(cluster: Cluster, request: Request, hop: Hop, attempt: Attempt) -> Self {
        Self {
            cluster,
            request,
            hop,
            attempt: Some(attempt),
            pcm: Vec::new(),
            n_sent: 0,
            n_attempts: 1,
            except: Vec::new(),
            failure: None,
            given_up: None,
            has_words: false,
            n_requests: 0,
            awaited: false,
        }
    }

    /// Gives up the attempt, so that another worker takes the utterance from its beginning; an error if none may.
    fn give_up(&mut self, lost: &AttemptLoss) -> Result<(), SttError> {
        if matches!(lost, AttemptLoss::Worker)
            && let Some(attempt) = &mut self.attempt
            && let Some(failed) = attempt.unread_failure()
        {
            let worker = attempt.worker.clone();
            return self.fail_over(failed, &worker);
        }
        match lost {
            AttemptLoss::Worker | AttemptLoss::Missing if self.n_attempts < MAX_ATTEMPTS => {}
            AttemptLoss::Worker | AttemptLoss::Missing => {
                Counters::count(&self.cluster.0.counters.failed);
                let lost = format!("{} workers failed or were lost, one after the other", self.n_attempts);
                return Err(SttError::Away(lost));
            }
            AttemptLoss::Away => return Err(SttError::Away("the connection to NATS is lost".into())),
            AttemptLoss::TooLarge(n) => return Err(Failure::too_large(*n).stt(self.worker())),
        }
        self.n_attempts += 1;
        self.given_up = Some(self.worker().to_owned());
        self.attempt = None;
        Ok(())
    }

    /// Gives up the attempt on `worker`, whose engine failed, so that another worker takes the utterance from its
    /// beginning; the engine's error if none may.
    fn fail_over(&mut self, failure: Failure, worker: &Worker) -> Result<(), SttError> {
        let may_move = failure.kind.is_of_worker() && !self.has_words && self.n_attempts < MAX_ATTEMPTS;
        let error = failure.stt(&worker.name);
        if !may_move {
            return Err(error);
        }
        tracing::warn!(worker = worker.name, %error, "a worker's engine failed");
        self.n_attempts += 1;
        self.except.push(worker.id.clone());
        self.failure = Some(error);
        self.given_up = Some(worker.name.clone());
        self.attempt = None;
        Ok(())
    }

    /// Opens another attempt. A queued request waits for room. Any other waits only after a lost worker, and only if the hub has
    /// no engine of its own.
    async fn reopen(&mut self) -> Result<(), SttError> {
        let waits = self.request.is_queued() || self.failure.is_none() && !self.cluster.0.has_fallback;
        let opened = match waits {
            true => open_when_there_is_room(&self.cluster, &self.request, &self.except).await,
            false => open(&self.cluster, &self.request, &self.except).await,
        };
        match opened {
            Ok(attempt) => {
                if let Some(from) = self.given_up.take() {
                    Counters::count(&self.cluster.0.counters.retried);
                    tracing::info!(from, "the utterance is transcribed again on another worker");
                }
                self.failure = None;
                self.attempt = Some(attempt);
                self.n_sent = 0;
                Ok(())
            }
            Err(error) => {
                let Some(failure) = self.failure.take() else { return Err(error) };
                // The utterance may continue on the worker whose engine failed, with all its attempts.
                self.n_attempts = 1;
                self.except.clear();
                self.given_up = None;
                Err(failure)
            }
        }
    }

    /// Sends the audio that the worker does not have yet; all of it to a new worker. Where it is cancelled, the next call goes
    /// on.
    async fn catch_up(&mut self) -> Result<(), SttError> {
        loop {
            let Some(attempt) = &mut self.attempt else {
                self.reopen().await?;
                continue;
            };
            let Some(samples) = self.pcm[self.n_sent..].chunks(MAX_AUDIO_SAMPLES).next() else { return Ok(()) };
            match attempt.send(Kind::Audio, pcm_payload(samples)).await {
                Ok(()) => self.n_sent += samples.len(),
                Err(lost) => self.give_up(&lost)?,
            }
        }
    }

    fn worker(&self) -> &str {
        self.attempt.as_ref().map_or("", |attempt| &attempt.worker.name)
    }

    /// The attempt; there is one after [`Self::catch_up`].
    fn attempt(&mut self) -> Result<&mut Attempt, SttError> {
        self.attempt.as_mut().ok_or(SttError::Cancelled)
    }

    /// Asks for a result and waits for it; again on another worker if this one dies.
    async fn ask(&mut self, kind: Kind) -> Result<Answer, SttError> {
        loop {
            self.catch_up().await?;
            self.awaited = true;
            self.n_requests += 1;
            let number = self.n_requests;
            let sent_at = Instant::now();
            let payload = Bytes::copy_from_slice(&number.to_be_bytes());
            let attempt = self.attempt()?;
            let answered = match attempt.send(kind, payload).await {
                Ok(()) => answer(attempt, number).await,
                Err(lost) => Err(lost),
            };
            let (frame, at) = match answered {
                Ok(answered) => answered,
                Err(lost) => {
                    self.give_up(&lost)?;
                    continue;
                }
            };
            self.awaited = false;
            let attempt = self.attempt()?;
            let network = Attempt::network(sent_at, &frame, at);
            let worker = attempt.worker.clone();
            let failed = match frame.kind {
                Kind::Failed => match self.fail_over(failure(&frame), &worker) {
                    Ok(()) => continue,
                    Err(error) => Some(error),
                },
                _ => None,
            };
            self.hop.set(&worker.name, network, self.n_attempts - 1);
            // In a long utterance several workers may be replaced.
            self.n_attempts = 1;
            self.except.clear();
            self.failure = None;
            if let Some(error) = failed {
                return Err(error);
            }
            return match of_json(&frame.payload) {
                Ok(Answer::NoTranscript { failure, .. }) => Err(failure.stt(&worker.name)),
                Ok(answer) => Ok(answer),
                Err(error) => Err(SttError::Remote {
                    fault: antiphon_engine_api::Fault::BadAnswer,
                    message: format!("the answer of the worker {} cannot be read", worker.name),
                    source: Some(Box::new(error)),
                }),
            };
        }
    }
}

/// The answer to request `number`; those of earlier requests are dropped.
async fn answer(attempt: &mut Attempt, number: u32) -> Result<(Frame, Instant), AttemptLoss> {
    loop {
        let (frame, at) = attempt.receive().await?;
        let is_mine = match frame.kind {
            Kind::Failed => true,
            Kind::Answer => match of_json(&frame.payload) {
                Ok(Answer::Partial { request, .. } | Answer::Transcript { request, .. }) => request == number,
                Ok(Answer::NoTranscript { request, .. } | Answer::Learnt { request, .. }) => request == number,
                Ok(Answer::Probability { .. }) => false,
                Err(_) => true,
            },
            // A worker that ends an utterance unasked has lost it.
            Kind::End => return Err(AttemptLoss::Worker),
            _ => false,
        };
        if is_mine {
            return Ok((frame, at));
        }
    }
}

impl SttUtterance for ClusterUtterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        Box::pin(async move {
            if std::mem::take(&mut self.awaited)
                && let Some(attempt) = &mut self.attempt
            {
                attempt.try_send(Kind::Stop);
            }
            self.pcm.extend_from_slice(&pcm);
            self.catch_up().await
        })
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        Box::pin(async move {
            match self.ask(Kind::Partial).await? {
                Answer::Partial { transcript, .. } => {
                    self.has_words |= transcript.as_ref().is_some_and(|transcript| !transcript.text.is_empty());
                    Ok(transcript)
                }
                _ => Err(unexpected()),
            }
        })
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        Box::pin(async move {
            match self.ask(Kind::Provisional).await? {
                Answer::Transcript { transcript, .. } => {
                    self.has_words |= !transcript.text.is_empty();
                    Ok(transcript)
                }
                _ => Err(unexpected()),
            }
        })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        Box::pin(async move {
            let answer = self.ask(Kind::Finish).await?;
            self.attempt()?.end();
            match answer {
                Answer::Transcript { transcript, .. } => Ok(transcript),
                _ => Err(unexpected()),
            }
        })
    }

    fn learn(mut self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        Box::pin(async move {
            // A worker that died has taken what it learnt with it.
            let attempt = self.attempt.as_mut()?;
            self.n_requests += 1;
            attempt.send(Kind::Learn, Bytes::copy_from_slice(&self.n_requests.to_be_bytes())).await.ok()?;
            let (frame, _) = answer(attempt, self.n_requests).await.ok()?;
            attempt.end();
            match of_json(&frame.payload) {
                Ok(Answer::Learnt { speaker, .. }) => speaker,
                _ => None,
            }
        })
    }
}

fn unexpected() -> SttError {
    SttError::Remote {
        fault: antiphon_engine_api::Fault::BadAnswer,
        message: "the worker answered another question".into(),
        source: None,
    }
}
