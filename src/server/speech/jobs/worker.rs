//! Works on jobs: one after the other, a chunk at a time, from where each stands.
//!
//! A job has one chunk at a time in the voice engine's queue, so that sessions wait for one
//! chunk of it at most. When the server stops, the job keeps its progress and continues at the next start, or on another hub.
//! It ends with its API key; what of it was spoken goes with it.

use super::job::{Failure, Job};
use super::job_store::{HeldJob, JobStore, Stop};
use crate::server::access::live_keys::LiveKeys;
use crate::server::access::scopes::Scope;
use crate::server::speech::chosen;
use crate::server::speech::metering::count_compute;
use crate::server::speech::names::own_voice;
use crate::server::speech::parts::SpeechParts;
use crate::server::speech::speaking::{SpeechPiece, SpeechSource};
use crate::server::speech::spec::SpeechSpec;
use crate::server::speech::waiting::{JOB, Retry, is_busy};
use antiphon_engine_api::ENGINE_UNAVAILABLE;
use antiphon_engine_api::tts::{TtsError, is_uploaded_id};
use antiphon_telemetry::Endpoint;
use antiphon_types::{KeyId, Meter, Requester};
use futures_util::{FutureExt, StreamExt};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Works on the jobs until the server stops.
pub(in crate::server) async fn run(speech: &Arc<SpeechParts>) {
    let Some(store) = &speech.jobs.store else { return };
    let workers = (0..speech.jobs.at_once).map(|_| take_jobs(speech, store.as_ref()));
    let workers = futures_util::future::join_all(workers).map(|_| ());
    store.serve(workers.boxed(), &speech.sessions.setup.drain).await;
}

/// One worker, until the server stops.
async fn take_jobs(speech: &Arc<SpeechParts>, store: &dyn JobStore) {
    while let Some((held, spec)) = store.next(&speech.sessions.setup.drain).await {
        work(speech, held, spec).await;
    }
}

async fn work(speech: &Arc<SpeechParts>, mut held: Box<dyn HeldJob>, spec: SpeechSpec) {
    let Job { id, owner, .. } = held.job();
    let begun = Instant::now();
    let moved = held.moved();
    // Without keys, all jobs are one client's.
    let meter = Meter::requested_by(Requester::of(&owner.as_deref().unwrap_or("jobs")));
    let encoding = CancellationToken::new();
    let _stops_encoding = encoding.clone().drop_guard();
    let heartbeat = held.heartbeat();
    let end = tokio::select! {
        // First, so that no engine is asked for a key that is gone already.
        biased;
        () = key_ended(&speech.sessions.access.keys, owner.as_deref()) => Some(Err(Stop::Revoked)),
        end = speak(speech, held.as_mut(), spec, &meter, &encoding) => Some(end),
        () = moved.cancelled() => None,
        () = speech.sessions.setup.drain.cancelled() => Some(Err(Stop::Moved)),
        () = heartbeat => None,
    };
    let outcome = match end.unwrap_or_else(|| Err(held.why_moved())) {
        Ok(()) => Some("ok"),
        Err(Stop::Gone) => {
            held.forget().await;
            Some("cancelled")
        }
        // It continues on another hub, or at the next start.
        Err(Stop::Moved) => {
            if !moved.is_cancelled() {
                held.release().await;
            }
            None
        }
        Err(Stop::Revoked) => {
            tracing::info!(job = id, "the API key of a job may not use the speech API any more");
            held.revoke().await.then_some("failed")
        }
        Err(Stop::Failed(failure)) => {
            tracing::warn!(job = id, code = failure.code, "a job failed");
            held.fail(failure).await;
            Some("failed")
        }
    };
    drop(held);
    count_compute(&speech.sessions.setup.metrics, "tts", meter.compute());
    speech.sessions.access.limits.count_compute(owner.as_deref(), meter.compute());
    if let Some(outcome) = outcome {
        speech.sessions.setup.metrics.request(Endpoint::Job, outcome, begun.elapsed());
    }
}

/// Resolves when the API key of a job may not use the speech API any more, at once if that is so already; never for a
/// job without a key. Cancel safe.
async fn key_ended(keys: &LiveKeys, owner: Option<&str>) {
    let Some(owner) = owner else { return pending().await };
    let key = KeyId::parse(owner);
    loop {
        let lease = keys.lease(key);
        if !keys.grants(key, Scope::Speech) {
            return;
        }
        // It is also cancelled where the key loses another scope.
        lease.cancelled().await;
    }
}

async fn speak(
    speech: &Arc<SpeechParts>,
    held: &mut dyn HeldJob,
    mut spec: SpeechSpec,
    meter: &Meter,
    cancel: &CancellationToken,
) -> Result<(), Stop> {
    let mut retry = Retry::within(JOB);
    let failed = |code: &str, message: String| Err(Stop::Failed(Failure::new(code, message)));
    while held.job().n_done < spec.chunks.len() {
        let tts = match chosen::for_job(speech, spec.model.as_deref()).await {
            Ok(tts) => tts,
            Err(error) if error.is_busy() && retry.pause().await => continue,
            Err(error) => return failed(error.code, error.message),
        };
        // The engine may be another than was asked for, or than spoke so far.
        if let Err(why) = tts.check_voice(&spec.voice) {
            if is_uploaded_id(&spec.voice) {
                return Err(Stop::Failed(removed(&spec.voice)));
            }
            if !spec.is_own_voice {
                return failed("voice_not_found", format!("Invalid 'voice': {why}."));
            }
            spec.voice = own_voice(tts.as_ref(), &speech.sessions.setup().voice);
            held.revoice(&spec.voice).await?;
        }
        let speaking = SpeechSource {
            tts,
            tasks: speech.sessions.setup.tasks.clone(),
            ahead: 0,
            is_heard: false,
            immediate: false,
            meter: meter.clone(),
            load: speech.sessions.load.tts_api.clone(),
        };
        let from = held.job().n_done;
        let seed = spec.seed.map(|seed| seed.wrapping_add(from as u64));
        let mut sound = pin!(speaking.speak(&SpeechSpec { seed, ..spec.clone() }, from));
        let mut chunk = Vec::new();
        let stopped = loop {
            match sound.next().await {
                Some(Ok(SpeechPiece::Sound(samples))) => chunk.extend(samples),
                Some(Ok(SpeechPiece::ChunkEnd)) => {
                    held.append(&std::mem::take(&mut chunk)).await?;
                    speech.sessions.load.give_way().await;
                    retry = Retry::within(JOB);
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        match stopped {
            None => {}
            Some(error) if (is_busy(&error) || matches!(error, TtsError::Away(_))) && retry.pause().await => {}
            Some(TtsError::NoVoice(_)) => return Err(Stop::Failed(removed(&spec.voice))),
            Some(error) => {
                tracing::warn!(
                    job = held.job().id,
                    error = &error as &dyn std::error::Error,
                    "a job's text could not be spoken"
                );
                let code = if matches!(error, TtsError::Away(_)) { ENGINE_UNAVAILABLE } else { "server_error" };
                return failed(code, error.client_message());
            }
        }
    }
    held.finish(cancel).await
}

fn removed(voice: &str) -> Failure {
    Failure::new("voice_not_found", format!("The voice {voice} was removed before the whole text was spoken."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, SpeechConfig};
    use crate::server::access::keys::{Keys, digest, hex};
    use crate::server::sessions::SessionParts;
    use crate::server::speech::jobs::job::Status;
    use crate::server::speech::jobs::job_store::JobOwner;
    use antiphon_audio::encode::FileFormat;
    use antiphon_engine_api::Engines;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use antiphon_session::Viewer;
    use std::path::Path;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(1);

    /// The speech API of a hub with this voice and these keys, which has its jobs in `folder`.
    fn hub(folder: &Path, keys: Keys, tts: &FakeTts) -> Arc<SpeechParts> {
        let engines = Engines {
            vad: Arc::new(FakeVad),
            turn: None,
            speaker: None,
            stt: Arc::new(FakeStt::default()),
            llm: Arc::new(FakeLlm::default()),
            tts: Arc::new(tts.clone()),
        };
        let jobs_dir = folder.to_str().expect("text").to_owned();
        let config = Config { speech: SpeechConfig { jobs_dir, ..SpeechConfig::default() }, ..Config::default() };
        let sessions = SessionParts::for_tests(config.clone(), keys, engines);
        Arc::new(SpeechParts::new(sessions, &config, None))
    }

    /// Two chunks.
    fn spec(first: &str) -> SpeechSpec {
        SpeechSpec {
            chunks: vec![first.to_owned(), "And more.".to_owned()],
            n_chars: first.len() + 9,
            voice: "tone".into(),
            is_own_voice: true,
            seed: None,
            speed: 1.0,
            instructions: None,
            format: FileFormat::Pcm,
            as_events: false,
            model: None,
        }
    }

    /// Waits until a job is as `right` says.
    async fn until(speech: &SpeechParts, id: &str, right: impl Fn(&Job) -> bool) -> Job {
        let store = speech.jobs.store().expect("there are jobs");
        for _ in 0..4_000 {
            let job = store.job_for(Viewer::All, id).await.expect("there");
            if right(&job) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{id} never gets so far")
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_end_with_their_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = Keys::of(&["gone", "kept"]);
        let tts = FakeTts::default().held(1);
        let speech = hub(folder.path(), keys.clone(), &tts);
        for (id, key) in [("job_a", "gone"), ("job_b", "gone"), ("job_c", "kept")] {
            let owner = JobOwner { key: keys.find(key), max_open: usize::MAX };
            let store = speech.jobs.store().expect("there are jobs");
            store.add(id, owner, &spec(id), None).await.expect("added");
        }
        let checked = async {
            until(&speech, "job_a", |job| job.n_done == 1).await;
            speech.sessions.access.keys.replace(Keys::of(&["kept"]));
            let running = until(&speech, "job_a", |job| job.status == Status::Failed).await;
            tts.gate.add_permits(9);
            until(&speech, "job_c", |job| job.status == Status::Completed).await;
            let queued = until(&speech, "job_b", |job| job.status == Status::Failed).await;
            for job in [running, queued] {
                assert_eq!(job.failure, Some(Failure::key_revoked()), "{}", job.id);
            }
            assert!(!tts.spoken().contains(&"job_b".to_owned()), "{:?}", tts.spoken());
            speech.sessions.setup.drain.cancel();
        };
        tokio::join!(run(&speech), checked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_goes_on_while_its_key_may_speak() {
        let hash = hex(&digest("one"));
        let keys = |scopes: &str| {
            let text = format!("[[key]]\nname = \"one\"\nsha256 = \"{hash}\"\nscopes = {scopes}\n");
            Keys::of_text(&text).expect("keys")
        };
        let live = LiveKeys::new(keys("[\"realtime\", \"speech\"]"));
        let owner = live.current().find("one").expect("a key").to_string();
        let mut ended = pin!(key_ended(&live, Some(&owner)));
        assert!(timeout(SOON, ended.as_mut()).await.is_err());
        live.replace(keys("[\"speech\"]"));
        assert!(timeout(SOON, ended.as_mut()).await.is_err(), "it may still speak");
        live.replace(keys("[\"realtime\"]"));
        timeout(SOON, ended).await.expect("it may not speak any more");
        assert!(timeout(SOON, key_ended(&live, None)).await.is_err(), "a job without a key");
    }
}
