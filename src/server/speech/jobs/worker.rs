//! Works on jobs: one after the other, a chunk at a time, from where each stands.
//!
//! A job has one chunk at a time in the voice engine's queue, so that sessions wait for one
//! chunk of it at most. When the server stops, the job keeps its progress and continues at the next start.

use super::job::{Failure, Job};
use super::store::StoreError;
use super::{Jobs, now};
use crate::server::app::App;
use crate::server::speech::chosen;
use crate::server::speech::names::own_voice;
use crate::server::speech::request::SpeechSpec;
use crate::server::speech::speaking::{Speaking, Spoken};
use crate::server::speech::waiting::{JOB, Retry, is_busy};
use antiphon_audio::encode::{Encoder, FileFormat, RATE};
use antiphon_audio::wav;
use antiphon_engine_api::ENGINE_UNAVAILABLE;
use antiphon_engine_api::tts::{TtsError, is_uploaded_id};
use antiphon_telemetry::Endpoint;
use antiphon_types::Samples;
use futures_util::StreamExt;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long an idle worker sleeps before it looks for what has been kept too long.
const SWEEP: Duration = Duration::from_secs(600);
/// How long an idle worker sleeps when the store failed.
const AGAIN: Duration = Duration::from_secs(30);
/// Samples that are encoded in one go.
const BLOCK: usize = 1 << 15;

/// Until the server stops.
pub(super) async fn run(jobs: &Jobs, app: &Arc<App>) {
    let stop = &app.setup.drain;
    while !stop.is_cancelled() {
        let idle = match jobs.with(|store| store.take(now())).await {
            Ok(Some((job, wish))) => {
                work(jobs, app, job, wish).await;
                continue;
            }
            Ok(None) => SWEEP,
            // Told where it happened; another try may find the disk in a better state.
            Err(_) => AGAIN,
        };
        tokio::select! {
            _ = timeout(idle, jobs.work.notified()) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// How work on a job ended, where it did.
enum End {
    Done,
    Failed(Failure),
    /// It was deleted.
    Gone,
}

async fn work(jobs: &Jobs, app: &Arc<App>, job: Job, wish: SpeechSpec) {
    let (id, begun, deleted) = (job.id.clone(), Instant::now(), CancellationToken::new());
    let _stops_encoding = deleted.clone().drop_guard();
    jobs.running.lock().expect("no panic while locked").insert(id.clone(), deleted.clone());
    let end = tokio::select! {
        end = speak(jobs, app, job, wish, &deleted) => Some(end),
        () = deleted.cancelled() => Some(End::Gone),
        () = app.setup.drain.cancelled() => None,
    };
    jobs.running.lock().expect("no panic while locked").remove(&id);
    let outcome = match end {
        // It continues at the next start.
        None => return,
        Some(End::Done) => "ok",
        Some(End::Gone) => "cancelled",
        Some(End::Failed(failure)) => {
            tracing::warn!(job = id, code = failure.code, "a job failed");
            // Whether that could be written down is the store's affair.
            let _ = jobs
                .with(move |store| {
                    store.fail(&id, failure, now());
                    Ok(())
                })
                .await;
            "failed"
        }
    };
    app.setup.metrics.request(Endpoint::Job, outcome, begun.elapsed());
}

async fn speak(jobs: &Jobs, app: &Arc<App>, mut job: Job, mut wish: SpeechSpec, cancel: &CancellationToken) -> End {
    let mut retry = Retry::within(JOB);
    while job.n_done < wish.chunks.len() {
        let tts = match chosen::for_job(app, wish.model.as_deref()).await {
            Ok(tts) => tts,
            Err(error) if error.is_busy() && retry.pause().await => continue,
            Err(error) => return End::Failed(Failure::new(error.code, error.message)),
        };
        // The engine may be another than was asked for, or than spoke so far.
        if let Err(why) = tts.check_voice(&wish.voice) {
            if is_uploaded_id(&wish.voice) {
                return End::Failed(removed(&wish.voice));
            }
            if !wish.is_own_voice {
                return End::Failed(Failure::new("voice_not_found", format!("Invalid 'voice': {why}.")));
            }
            wish.voice = own_voice(tts.as_ref(), &app.setup().voice);
            let (id, voice) = (job.id.clone(), wish.voice.clone());
            if let Some(end) = kept(jobs, move |store| store.revoice(&id, &voice)).await {
                return end;
            }
            job.n_done = 0;
        }
        let speaking = Speaking { tts, tasks: app.setup.tasks.clone(), ahead: 0, is_heard: false };
        let mut sound = pin!(speaking.speak(&wish, job.n_done));
        let mut chunk = Vec::new();
        let stopped = loop {
            match sound.next().await {
                Some(Ok(Spoken::Sound(samples))) => chunk.extend(samples),
                Some(Ok(Spoken::ChunkEnd)) => {
                    let (id, pcm) = (job.id.clone(), std::mem::take(&mut chunk));
                    if let Some(end) = kept(jobs, move |store| store.append(&id, &pcm, now())).await {
                        return end;
                    }
                    (job.n_done, retry) = (job.n_done + 1, Retry::within(JOB));
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        match stopped {
            None => {}
            Some(error) if (is_busy(&error) || matches!(error, TtsError::Away(_))) && retry.pause().await => {}
            Some(TtsError::NoVoice(_)) => return End::Failed(removed(&wish.voice)),
            Some(error) => {
                tracing::warn!(
                    job = job.id,
                    error = &error as &dyn std::error::Error,
                    "a job's text could not be spoken"
                );
                let code = if matches!(error, TtsError::Away(_)) { ENGINE_UNAVAILABLE } else { "server_error" };
                return End::Failed(Failure::new(code, error.client_message()));
            }
        }
    }
    finish(jobs, &job, cancel).await
}

fn removed(voice: &str) -> Failure {
    Failure::new("voice_not_found", format!("The voice {voice} was removed before the whole text was spoken."))
}

/// The samples to a file of the format asked for.
async fn finish(jobs: &Jobs, job: &Job, cancel: &CancellationToken) -> End {
    let id = job.id.clone();
    let place = jobs.with(move |store| Ok((store.spool(&id), store.job(&id)?.pcm_bytes))).await;
    let Ok((spool, n_bytes)) = place else { return End::Gone };
    // A name of its own: an encoder of a hub before this one may not have noticed yet that it is to stop.
    let part = Part(spool.with_extension(format!("{:08x}.part", rand::random::<u32>())));
    let (id, format, cancel) = (job.id.clone(), job.format, cancel.clone());
    let encode = move || encode(&spool, part, (n_bytes, format), &cancel);
    let encoded = tokio::task::spawn_blocking(encode)
        .await
        .unwrap_or_else(|error| Err(StoreError::File(std::io::Error::other(error))));
    match encoded {
        Err(error) => {
            tracing::warn!(%error, "a job's file could not be written");
            End::Failed(error.failure())
        }
        Ok(part) => kept(jobs, move |store| store.finish(&id, &part.0, now())).await.unwrap_or(End::Done),
    }
}

/// A file that is being written. Dropping it removes the file unless it was renamed to its final name; any task may be the
/// last owner, because the waiting one may be cancelled.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // It may never have been there.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn encode(
    spool: &Path,
    part: Part,
    (n_bytes, format): (u64, FileFormat),
    cancel: &CancellationToken,
) -> Result<Part, StoreError> {
    let failed = |error: antiphon_audio::encode::EncodeError| std::io::Error::other(error);
    let mut encoder = Encoder::new(format).map_err(failed)?;
    let mut from = File::open(spool)?.take(n_bytes);
    let mut to = BufWriter::new(File::create(&part.0)?);
    let (mut block, mut bytes) = (Vec::new(), Vec::new());
    loop {
        block.clear();
        bytes.clear();
        if from.by_ref().take(2 * BLOCK as u64).read_to_end(&mut block)? == 0 {
            break;
        }
        if cancel.is_cancelled() {
            return Err(StoreError::Gone);
        }
        let samples: Vec<i16> = block.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        encoder.push(&samples, &mut bytes).map_err(failed)?;
        to.write_all(&bytes)?;
    }
    encoder.finish(&mut bytes).map_err(failed)?;
    to.write_all(&bytes)?;
    let mut file = to.into_inner().map_err(|error| error.into_error())?;
    if format == FileFormat::Wav {
        // The header left before the length was known.
        let n_samples = Samples((n_bytes - from.limit()) / 2);
        file.rewind()?;
        file.write_all(&wav::header(RATE, Some(n_samples)))?;
    }
    file.sync_data()?;
    Ok(part)
}

/// Does it, and says how the job ends where it could not be done.
async fn kept<F>(jobs: &Jobs, work: F) -> Option<End>
where
    F: FnOnce(&mut super::Store) -> Result<(), StoreError> + Send + 'static,
{
    let done = jobs
        .with(move |store| {
            Ok(work(store).map_err(|error| {
                let gone = matches!(error, StoreError::Gone);
                (gone, error.failure())
            }))
        })
        .await;
    match done {
        Ok(Ok(())) => None,
        Ok(Err((true, _))) => Some(End::Gone),
        Ok(Err((false, failure))) => Some(End::Failed(failure)),
        Err(error) => Some(End::Failed(Failure::new(error.code, error.message))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<String> {
        let files = std::fs::read_dir(folder).expect("there");
        files.map(|entry| entry.expect("one").file_name().to_string_lossy().into_owned()).collect()
    }

    /// A second of sound that is encoded; the folder it is in.
    fn encoded(format: FileFormat, cancel: &CancellationToken) -> (tempfile::TempDir, Result<Part, StoreError>) {
        let folder = tempfile::tempdir().expect("a folder");
        let (spool, part) = (folder.path().join("job_a.pcm"), Part(folder.path().join("job_a.0.part")));
        std::fs::write(&spool, vec![7; 48_000 + 99]).expect("written");
        let done = encode(&spool, part, (48_000, format), cancel);
        (folder, done)
    }

    #[test]
    fn a_file_that_nobody_takes_is_removed() {
        let (folder, done) = encoded(FileFormat::Mp3, &CancellationToken::new());
        assert_eq!(files(folder.path()).len(), 2);
        // As when the job is deleted while its file is written: the result is not needed.
        drop(done);
        assert_eq!(files(folder.path()), ["job_a.pcm"]);
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let (folder, done) = encoded(FileFormat::Mp3, &cancelled);
        assert!(matches!(done, Err(StoreError::Gone)));
        assert_eq!(files(folder.path()), ["job_a.pcm"]);
    }

    #[test]
    fn a_finished_wav_file_says_how_long_it_is() {
        let (_folder, done) = encoded(FileFormat::Wav, &CancellationToken::new());
        let reader = hound::WavReader::open(&done.expect("encoded").0).expect("a header");
        assert_eq!((reader.duration(), reader.spec().sample_rate), (24_000, 24_000));
    }
}
