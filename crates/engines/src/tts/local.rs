//! A synchronous [`TtsEngine`] behind the port [`Tts`]: an engine pool, one chunk a replica at a time.
//!
//! The root package's assembly makes it. A chunk leases a replica and its PCM comes through a bounded channel. Dropping the
//! stream cancels the synthesis and releases the replica as soon as the engine has stopped.

use super::TtsEngine;
use super::deadline::with_deadline;
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::pool::{Lease, Overloaded, Pool, PoolError};
use antiphon_types::Pcm;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, Stream};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Pieces that wait between a replica and its reader. Enough for all of a chunk (30 s in pieces of 20 ms, 960 KB at 16
/// kHz), so that a reader who plays in real time does not keep a replica from the other sessions; when it is full, the
/// replica waits. Memory is allocated as pieces arrive.
const MAX_PIECES: usize = 1_500;

/// Chunks that may wait, for each replica: at 30 to 200 ms a chunk the last one waits a few seconds.
const WAITING_PER_REPLICA: usize = 32;

/// See the module.
pub struct LocalTts<E> {
    name: String,
    voices: Vec<Voice>,
    pool: Pool<E>,
    n_replicas: usize,
    /// Of each voice, whether it repeats itself.
    repeats: Vec<Repeats>,
    deadline: Duration,
}

/// The size of the pool, how its engines are started, and how long a chunk may wait.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// Chunks synthesized at once, at least 1.
    pub n_replicas: usize,
    /// Whether the engines are started one after the other: those that share a GPU.
    pub in_turn: bool,
    /// The longest wait for a chunk's first sound, including the wait for a replica, and for each further piece.
    pub deadline: Duration,
}

impl<E: TtsEngine + 'static> LocalTts<E> {
    /// Starts an engine on each replica; blocks until all run. The first failure is returned. `make` gets the replica's number,
    /// from 0, and is called again, with the same number, when an engine panicked or failed by itself (see
    /// [`TtsError::Engine`]).
    pub fn start<F>(name: &str, settings: PoolSettings, make: F) -> Result<Self, TtsError>
    where
        F: Fn(usize) -> Result<E, TtsError> + Send + Sync + 'static,
    {
        let traits: Arc<OnceLock<(Vec<Voice>, Vec<Repeats>)>> = Arc::default();
        let known = traits.clone();
        let make = move |replica| {
            let engine = make(replica)?;
            known.get_or_init(|| {
                let voices = engine.voices().to_vec();
                let repeats = voices.iter().map(|voice| engine.repeats(&voice.id)).collect();
                (voices, repeats)
            });
            Ok(engine)
        };
        let n_replicas = settings.n_replicas.max(1);
        let max_waiting = n_replicas * WAITING_PER_REPLICA;
        let pool = if settings.in_turn {
            Pool::start_in_turn(name, n_replicas, max_waiting, make)?
        } else {
            Pool::start(name, n_replicas, max_waiting, make)?
        };
        let (voices, repeats) = traits.get().expect("an engine was started on each replica").clone();
        Ok(Self { name: name.into(), voices, pool, n_replicas, repeats, deadline: settings.deadline })
    }
}

impl<E: TtsEngine + 'static> Tts for LocalTts<E> {
    fn name(&self) -> &str {
        &self.name
    }

    fn concurrency(&self) -> usize {
        self.n_replicas
    }

    fn repeats(&self, request: &SpeechRequest) -> Repeats {
        // A name that is none means the default voice.
        let voice = self.voices.iter().position(|voice| voice.id == request.voice).unwrap_or_default();
        self.repeats.get(voice).copied().unwrap_or_default()
    }

    fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    fn in_service(&self) -> usize {
        self.pool.in_service()
    }

    fn voices(&self) -> Vec<Voice> {
        self.voices.clone()
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let pool = self.pool.clone();
        with_deadline(spoken(async move { pool.lease().await }, request), self.deadline)
    }

    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        let pool = self.pool.clone();
        let deadline = self.deadline;
        async move {
            let place = pool.enqueue().await;
            with_deadline(spoken(place.lease().map(Ok), request), deadline)
        }
        .boxed()
    }
}

/// The sound of a chunk, synthesized on the replica that is leased for it.
fn spoken<E: TtsEngine + 'static>(
    lease: impl Future<Output = Result<Lease<E>, Overloaded>> + Send + 'static,
    request: SpeechRequest,
) -> impl Stream<Item = Result<Pcm, TtsError>> + Send + 'static {
    async_stream::stream! {
        let cancel = CancellationToken::new();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let mut lease = match lease.await {
            Ok(lease) => lease,
            Err(Overloaded { waiting }) => {
                yield Err(TtsError::Overloaded { waiting });
                return;
            }
        };
        let (pieces, mut made) = mpsc::channel(MAX_PIECES);
        let speak = move |engine: &mut E| {
            let begun = Instant::now();
            let mut waited = Duration::ZERO;
            let result = engine.synthesize(&request, &cancel, &mut |pcm| {
                let waits = Instant::now();
                let sent = pieces.blocking_send(pcm);
                waited += waits.elapsed();
                match sent {
                    Ok(()) => ControlFlow::Continue(()),
                    // The stream was dropped.
                    Err(_) => ControlFlow::Break(()),
                }
            });
            request.meter.add(engine.runs_on(), begun.elapsed().saturating_sub(waited));
            result
        };
        let mut job = std::pin::pin!(lease.run_judged(speak, breaks));
        let mut outcome = None;
        loop {
            tokio::select! {
                biased;
                piece = made.recv() => match piece {
                    Some(pcm) => yield Ok(pcm),
                    None => break,
                },
                result = &mut job, if outcome.is_none() => outcome = Some(result),
            }
        }
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => job.await,
        };
        if let Err(error) = settle(outcome) {
            yield Err(error);
        }
    }
}

/// Whether the engine is restarted after this result.
fn breaks(result: &Result<(), TtsError>) -> bool {
    result.as_ref().is_err_and(super::is_breakage)
}

/// The job's result as the port's.
fn settle(outcome: Result<Result<(), TtsError>, PoolError>) -> Result<(), TtsError> {
    outcome.unwrap_or_else(|error| {
        let message = error.to_string();
        Err(TtsError::Engine { message, source: Some(Box::new(error)) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_inference::onnx::OnnxError;
    use antiphon_types::SampleRate;
    use futures_util::StreamExt;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// Makes a piece on demand; panics or fails on demand.
    struct Puppet {
        steps: Arc<Mutex<Receiver<()>>>,
        ended: SyncSender<&'static str>,
        voices: Vec<Voice>,
    }

    impl TtsEngine for Puppet {
        fn voices(&self) -> &[Voice] {
            &self.voices
        }

        fn synthesize(
            &mut self,
            request: &SpeechRequest,
            cancel: &CancellationToken,
            sink: &mut dyn FnMut(Pcm) -> ControlFlow<()>,
        ) -> Result<(), TtsError> {
            match request.text.as_str() {
                "panic" => panic!("on purpose"),
                "fail" => return Err(TtsError::Unavailable("no tongue".into())),
                "break" => return Err(TtsError::Engine { message: "no device".into(), source: None }),
                "misfit" => {
                    let wrong = OnnxError::Inputs { path: "voice.onnx".into(), message: "too long".into() };
                    return Err(TtsError::Engine { message: wrong.to_string(), source: Some(Box::new(wrong)) });
                }
                _ => {}
            }
            for _ in request.text.chars() {
                if self.steps.lock().unwrap().recv().is_err() || cancel.is_cancelled() {
                    self.ended.send("cancelled").unwrap();
                    return Ok(());
                }
                if sink(Pcm { rate: SampleRate::HZ_16000, samples: vec![1; 320] }).is_break() {
                    self.ended.send("broken").unwrap();
                    return Ok(());
                }
            }
            self.ended.send("done").unwrap();
            Ok(())
        }
    }

    struct Rig {
        tts: LocalTts<Puppet>,
        step: SyncSender<()>,
        ended: Receiver<&'static str>,
        n_made: Arc<AtomicUsize>,
    }

    fn rig() -> Rig {
        let (step, steps) = sync_channel(100);
        let (ended, has_ended) = sync_channel(100);
        let steps = Arc::new(Mutex::new(steps));
        let settings = PoolSettings { n_replicas: 1, in_turn: false, deadline: Duration::from_secs(2) };
        let n_made: Arc<AtomicUsize> = Arc::default();
        let counts = n_made.clone();
        let voices = vec![Voice { id: "v".into(), name: "V".into(), language: "en".into() }];
        let make = move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            Ok(Puppet { steps: steps.clone(), ended: ended.clone(), voices: voices.clone() })
        };
        Rig { tts: LocalTts::start("puppet", settings, make).expect("started"), step, ended: has_ended, n_made }
    }

    fn say(text: &str) -> SpeechRequest {
        SpeechRequest { text: text.into(), voice: "v".into(), ..SpeechRequest::default() }
    }

    #[tokio::test]
    async fn pieces_come_as_they_are_made() {
        let rig = rig();
        let mut stream = rig.tts.speak(say("ab"));
        rig.step.send(()).unwrap();
        assert_eq!(stream.next().await.expect("a piece").expect("no error").samples.len(), 320);
        rig.step.send(()).unwrap();
        assert!(stream.next().await.expect("a piece").is_ok());
        assert!(stream.next().await.is_none());
        assert_eq!(rig.ended.recv(), Ok("done"));
        assert_eq!(rig.tts.voices()[0].id, "v");
        assert_eq!((rig.tts.concurrency(), rig.tts.repeats(&say("ab"))), (1, Repeats::Never));
    }

    #[tokio::test]
    async fn dropping_the_stream_cancels_and_frees_the_replica() {
        let rig = rig();
        let mut stream = rig.tts.speak(say("abcdef"));
        rig.step.send(()).unwrap();
        assert!(stream.next().await.expect("a piece").is_ok());
        drop(stream);
        rig.step.send(()).unwrap();
        assert_eq!(rig.ended.recv(), Ok("cancelled"));
        let mut next = rig.tts.speak(say("a"));
        rig.step.send(()).unwrap();
        assert!(next.next().await.expect("the replica is free again").is_ok());
    }

    #[tokio::test]
    async fn a_failure_and_a_panic_end_one_chunk_only() {
        let rig = rig();
        let failed = rig.tts.speak(say("fail")).next().await.expect("an error").expect_err("asked to fail");
        assert_eq!(failed.to_string(), "no tongue");
        let panicked = rig.tts.speak(say("panic")).next().await.expect("an error").expect_err("asked to panic");
        assert!(matches!(panicked, TtsError::Engine { .. }));
        rig.step.send(()).unwrap();
        assert!(rig.tts.speak(say("a")).next().await.expect("a piece").is_ok());
    }

    #[tokio::test]
    async fn an_engine_that_breaks_is_restarted_and_one_with_a_wrong_request_is_not() {
        let rig = rig();
        for (text, n_made) in [("fail", 1), ("misfit", 1), ("break", 2), ("panic", 3), ("fail", 3)] {
            assert!(rig.tts.speak(say(text)).next().await.expect("an error").is_err(), "{text}");
            // The next chunk runs after the restart.
            rig.step.send(()).unwrap();
            assert!(rig.tts.speak(say("a")).next().await.expect("a piece").is_ok());
            assert_eq!(rig.n_made.load(Ordering::Relaxed), n_made, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_first_sound_in_time_is_a_timeout() {
        let rig = rig();
        let late = rig.tts.speak(say("a")).next().await.expect("an error").expect_err("nothing was made");
        assert!(matches!(late, TtsError::Timeout(after) if after == Duration::from_secs(2)));
        // The replica is still stuck in the first chunk: the wait for it counts as well.
        let late = rig.tts.speak(say("a")).next().await.expect("an error").expect_err("no replica is free");
        assert!(matches!(late, TtsError::Timeout(_)));
    }

    #[tokio::test]
    async fn too_many_waiting_is_reported() {
        let rig = rig();
        let mut streams: Vec<_> = (0..=WAITING_PER_REPLICA).map(|_| rig.tts.speak(say("a"))).collect();
        for stream in &mut streams {
            assert!(futures_util::poll!(stream.next()).is_pending());
        }
        let refused = rig.tts.speak(say("a")).next().await.expect("an error").expect_err("full");
        assert!(matches!(refused, TtsError::Overloaded { waiting: WAITING_PER_REPLICA }), "{refused}");
    }

    #[tokio::test]
    async fn a_chunk_that_waits_for_room_is_spoken_as_soon_as_there_is_some() {
        let rig = rig();
        let mut streams: Vec<_> = (0..=WAITING_PER_REPLICA).map(|_| rig.tts.speak(say("a"))).collect();
        for stream in &mut streams {
            assert!(futures_util::poll!(stream.next()).is_pending());
        }
        let mut queued = rig.tts.speak_queued(say("a"));
        assert!(futures_util::poll!(&mut queued).is_pending(), "full");
        // A quarter of the queue is kept for those who cannot wait for room.
        streams.truncate(1 + WAITING_PER_REPLICA - WAITING_PER_REPLICA / 4);
        assert!(futures_util::poll!(&mut queued).is_pending(), "nearly full");
        streams.pop();
        let mut stream = queued.await;
        // The chunk under way ends with its next step.
        streams.clear();
        rig.step.send(()).unwrap();
        rig.step.send(()).unwrap();
        assert!(stream.next().await.expect("a piece").is_ok());
    }

    #[test]
    fn an_engine_that_cannot_be_made_is_named() {
        let settings = PoolSettings { n_replicas: 2, in_turn: false, deadline: Duration::from_secs(1) };
        let result = LocalTts::<Puppet>::start("x", settings, |_| Err(TtsError::Unavailable("no library".into())));
        assert_eq!(result.err().expect("it failed").to_string(), "no library");
    }
}
