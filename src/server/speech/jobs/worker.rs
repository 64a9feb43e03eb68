//! Works on jobs: one after the other, a chunk at a time, from where each stands.
//!
//! A job has one chunk at a time in the voice engine's queue, so that sessions wait for one
//! chunk of it at most. When the server stops, the job keeps its progress and continues at the next start, or on another hub.

use super::job::{Failure, Job};
use super::job_store::{HeldJob, JobStore, Stop};
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
use antiphon_types::{Meter, Requester};
use futures_util::{FutureExt, StreamExt};
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
