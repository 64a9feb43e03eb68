//! Works on jobs: one after the other, a chunk at a time, from where each stands.
//!
//! A job has one chunk at a time in the voice engine's queue, so that sessions wait for one
//! chunk of it at most. When the server stops, the job keeps its progress and continues at the next start, or on another hub.

use super::Jobs;
use super::cluster_store::Stop;
use super::job::{Failure, Job, now};
use super::keeper::{Held, kept};
use super::store::{StoreError, file_name, private_file, read_spool};
use crate::server::speech::chosen;
use crate::server::speech::metering::count_compute;
use crate::server::speech::names::own_voice;
use crate::server::speech::parts::SpeechParts;
use crate::server::speech::speaking::{SpeechPiece, SpeechSource};
use crate::server::speech::spec::SpeechSpec;
use crate::server::speech::waiting::{JOB, Retry, is_busy};
use antiphon_audio::encode::{Encoder, FileFormat, RATE};
use antiphon_audio::wav;
use antiphon_engine_api::ENGINE_UNAVAILABLE;
use antiphon_engine_api::tts::{TtsError, is_uploaded_id};
use antiphon_telemetry::Endpoint;
use antiphon_types::sealed::{BlockWriter, Sealing};
use antiphon_types::{Meter, Requester, Samples};
use futures_util::StreamExt;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Samples that are encoded in one go.
const BLOCK: usize = 1 << 15;

/// Works on the jobs until the server stops.
pub(in crate::server) async fn run(speech: &Arc<SpeechParts>) {
    let jobs = &speech.jobs;
    let stop = &speech.sessions.setup.drain;
    if jobs.is_off() {
        return;
    }
    if let Some(shared) = &jobs.shared {
        let workers = futures_util::future::join_all((0..jobs.at_once).map(|_| take_jobs(speech)));
        tokio::select! {
            () = shared.follow() => {}
            _ = workers => {}
        }
        return;
    }
    if jobs.are_some().await.unwrap_or_default() {
        // The reason is reported where it occurs.
        let _ = jobs.opened().await;
    }
    while jobs.store.get().is_none() {
        tokio::select! {
            () = jobs.opened.notified() => {}
            () = stop.cancelled() => return,
        }
    }
    let workers = (0..jobs.at_once).map(|_| take_jobs(speech));
    futures_util::future::join_all(workers).await;
    // The folder is free for the next hub when this one has ended.
    if let Some(pool) = jobs.store.get()
        && let Ok(mut lease) = pool.lease().await
    {
        let _ = lease.run(|store| drop(store.take())).await;
    }
}

/// One worker, until the server stops.
async fn take_jobs(speech: &Arc<SpeechParts>) {
    let jobs = &speech.jobs;
    while let Some((held, wish)) = jobs.next(&speech.sessions.setup.drain).await {
        work(speech, held, wish).await;
    }
}

async fn work(speech: &Arc<SpeechParts>, mut held: Held, wish: SpeechSpec) {
    let jobs = &speech.jobs;
    let (Job { id, owner, .. }, begun, moved) = (held.job(), Instant::now(), held.moved());
    // Without keys, all jobs are one client's.
    let meter = Meter::requested_by(Requester::of(&owner.as_deref().unwrap_or("jobs")));
    let encoding = CancellationToken::new();
    let _stops_encoding = encoding.clone().drop_guard();
    let heartbeat = held.heartbeat();
    let end = tokio::select! {
        end = speak(speech, &mut held, (wish, &meter), &encoding) => Some(end),
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
            held.fail(jobs, failure).await;
            Some("failed")
        }
    };
    held.let_go(jobs);
    count_compute(&speech.sessions.setup.metrics, "tts", meter.compute());
    speech.sessions.access.limits.count_compute(owner.as_deref(), meter.compute());
    if let Some(outcome) = outcome {
        speech.sessions.setup.metrics.request(Endpoint::Job, outcome, begun.elapsed());
    }
}

async fn speak(
    speech: &Arc<SpeechParts>,
    held: &mut Held,
    (mut wish, meter): (SpeechSpec, &Meter),
    cancel: &CancellationToken,
) -> Result<(), Stop> {
    let jobs = &speech.jobs;
    let mut retry = Retry::within(JOB);
    let failed = |code: &str, message: String| Err(Stop::Failed(Failure::new(code, message)));
    while held.job().n_done < wish.chunks.len() {
        let tts = match chosen::for_job(speech, wish.model.as_deref()).await {
            Ok(tts) => tts,
            Err(error) if error.is_busy() && retry.pause().await => continue,
            Err(error) => return failed(error.code, error.message),
        };
        // The engine may be another than was asked for, or than spoke so far.
        if let Err(why) = tts.check_voice(&wish.voice) {
            if is_uploaded_id(&wish.voice) {
                return Err(Stop::Failed(removed(&wish.voice)));
            }
            if !wish.is_own_voice {
                return failed("voice_not_found", format!("Invalid 'voice': {why}."));
            }
            wish.voice = own_voice(tts.as_ref(), &speech.sessions.setup().voice);
            held.revoice(jobs, &wish.voice).await?;
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
        let seed = wish.seed.map(|seed| seed.wrapping_add(from as u64));
        let mut sound = pin!(speaking.speak(&SpeechSpec { seed, ..wish.clone() }, from));
        let mut chunk = Vec::new();
        let stopped = loop {
            match sound.next().await {
                Some(Ok(SpeechPiece::Sound(samples))) => chunk.extend(samples),
                Some(Ok(SpeechPiece::ChunkEnd)) => {
                    held.append(jobs, std::mem::take(&mut chunk)).await?;
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
            Some(TtsError::NoVoice(_)) => return Err(Stop::Failed(removed(&wish.voice))),
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
    held.finish(jobs, cancel).await
}

fn removed(voice: &str) -> Failure {
    Failure::new("voice_not_found", format!("The voice {voice} was removed before the whole text was spoken."))
}

/// The samples of the hub's store to a file of the format asked for.
pub(super) async fn finish(jobs: &Jobs, job: &Job, cancel: &CancellationToken) -> Result<(), Stop> {
    let id = job.id.clone();
    let place = jobs.with(move |store| Ok((store.spool(&id), store.job(&id)?.pcm_bytes, store.sealing()))).await;
    let Ok((spool, n_bytes, sealing)) = place else { return Err(Stop::Gone) };
    // A name of its own: an encoder of a hub before this one may not have noticed yet that it is to stop.
    let part = Part(spool.with_extension(format!("{:08x}.part", rand::random::<u32>())));
    let id = job.id.clone();
    let format = job.format;
    let cancel = cancel.clone();
    let of = id.clone();
    let encode = move || encode(Source { spool: &spool, id: &of, n_bytes, format, sealing }, part, &cancel);
    let encoded = tokio::task::spawn_blocking(encode)
        .await
        .unwrap_or_else(|error| Err(StoreError::File(std::io::Error::other(error))));
    match encoded {
        Err(error) => {
            tracing::warn!(%error, "a job's file could not be written");
            Err(Stop::Failed(error.failure()))
        }
        Ok(part) => kept(jobs, move |store| store.finish(&id, &part.0, now())).await,
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

/// What a job's file is made of.
struct Source<'a> {
    spool: &'a Path,
    id: &'a str,
    /// Bytes of samples in the spool; what is behind them does not count.
    n_bytes: u64,
    format: FileFormat,
    /// Opens the spool and seals the file.
    sealing: Option<Arc<dyn Sealing>>,
}

fn encode(source: Source<'_>, part: Part, cancel: &CancellationToken) -> Result<Part, StoreError> {
    let Source { spool, id, n_bytes, format, sealing } = source;
    let from = read_spool(spool, id, sealing.as_ref())?;
    let mut to = BufWriter::new(private_file().truncate(true).open(&part.0)?);
    match sealing {
        None => encode_to(from, &mut to, (n_bytes, format), cancel)?,
        Some(sealing) => {
            let mut sealed = BlockWriter::new(to, sealing, file_name(id));
            encode_to(from, &mut sealed, (n_bytes, format), cancel)?;
            to = sealed.finish()?;
        }
    }
    to.into_inner().map_err(|error| error.into_error())?.sync_data()?;
    Ok(part)
}

fn encode_to(
    from: impl Read,
    to: &mut impl Write,
    (n_bytes, format): (u64, FileFormat),
    cancel: &CancellationToken,
) -> Result<(), StoreError> {
    let failed = |error: antiphon_audio::encode::EncodeError| std::io::Error::other(error);
    let mut encoder = Encoder::new(format).map_err(failed)?;
    let mut from = from.take(n_bytes);
    // The encoder's own header does not say how long the file is.
    let mut header = (format == FileFormat::Wav).then(|| wav::header(RATE, Some(Samples(n_bytes / 2))));
    let mut put = |bytes: &mut Vec<u8>| {
        if let Some(header) = header.take() {
            bytes[..header.len()].copy_from_slice(&header);
        }
        to.write_all(bytes)
    };
    let mut block = Vec::new();
    let mut bytes = Vec::new();
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
        put(&mut bytes)?;
    }
    if from.limit() > 0 {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    encoder.finish(&mut bytes).map_err(failed)?;
    Ok(put(&mut bytes)?)
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
        let spool = folder.path().join("job_a.pcm");
        let part = Part(folder.path().join("job_a.0.part"));
        std::fs::write(&spool, vec![7; 48_000 + 99]).expect("written");
        let source = Source { spool: &spool, id: "job_a", n_bytes: 48_000, format, sealing: None };
        let done = encode(source, part, cancel);
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
