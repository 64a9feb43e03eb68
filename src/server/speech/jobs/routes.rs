//! `/v1/audio/speech/jobs`: ask, look, fetch, remove.

use super::job::{PREFIX, Status};
use super::job_store::{AddedJob, JobOwner};
use crate::server::access::caller::Identity;
use crate::server::access::limits::{Count, Resource, Spender};
use crate::server::speech::error::ApiError;
use crate::server::speech::parts::{MAX_JSON_BYTES, SpeechParts, check};
use crate::server::speech::request::{self, Longest};
use crate::server::speech::{chosen, upload};
use antiphon_types::{BrownoutLevel, IdMint, KeyId};
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Jobs of one page of the list, where the request does not say, and at most.
const PAGE: usize = 20;
const LARGEST_PAGE: usize = 100;
/// The header of a request that may be repeated, and its length at most.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_KEY_CHARACTERS: usize = 255;

/// The routes.
pub(in crate::server::speech) fn routes() -> Router<Arc<SpeechParts>> {
    Router::new()
        .route("/v1/audio/speech/jobs", post(create).layer(DefaultBodyLimit::max(MAX_JSON_BYTES)).get(list))
        .route("/v1/audio/speech/jobs/{id}", get(look).delete(remove))
        .route("/v1/audio/speech/jobs/{id}/audio", get(fetch))
}

/// What is asked of the list.
#[derive(Deserialize)]
struct Wanted {
    limit: Option<usize>,
    after: Option<String>,
}

/// Takes a job: 202, and where to look for it. A task of the server stores and charges it, so that both happen even
/// if the client goes away meanwhile.
async fn create(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    request: Request,
) -> Result<Response, ApiError> {
    let jobs = &speech.jobs;
    let spender = Spender::of(&request);
    speech.check_place(&spender, BrownoutLevel::NoJobs)?;
    let key = idempotency_key(request.headers())?;
    let account = speech.uploads.for_json(speech.holder(&spender));
    let (body, held) = upload::whole(request.into_body(), account, MAX_JSON_BYTES).await?;
    let place = speech.admit(&spender)?;
    let digest = key.is_some().then(|| hex(&Sha256::digest(&body)));
    let longest = Longest { chars: speech.config.max_job_chars, if_longer: " (speech.max_job_chars)" };
    let chosen = chosen::for_body(&speech, &body, identity.voices()).await?;
    let (_, spec) = request::read(chosen, body, longest).await?;
    let store = jobs.store()?;
    let id = match key {
        Some(key) => id_of(identity.owner, &key),
        None => IdMint::new(rand::random()).next(PREFIX.trim_end_matches('_')),
    };
    let n_chars = spec.n_chars as u64;
    let charges = [(Resource::Jobs, Count::Jobs, 1), (Resource::Characters, Count::Characters, n_chars)];
    // A request that is repeated costs nothing more.
    let is_repeated = digest.is_some() && store.job_for(identity.viewer, &id).await.is_ok();
    if !is_repeated {
        charges.iter().try_for_each(|(resource, ..)| check(&speech, &spender, *resource))?;
    }
    // Half of the queue stays for other keys, if there are any.
    let max_open = match speech.sessions.access.keys.current().n_clients() {
        0 | 1 => jobs.bounds.n_open,
        _ => jobs.bounds.n_open.div_ceil(2),
    };
    let owner = JobOwner { key: identity.owner, max_open };
    let storing = speech.clone();
    let stored = speech.sessions.setup.tasks.spawn(async move {
        let AddedJob { job, is_new } = storing.jobs.store()?.add(&id, owner, &spec, digest).await?;
        // Of requests with one idempotency key that come at once, the first one pays.
        for (resource, count, amount) in charges.into_iter().filter(|_| is_new) {
            spender.consumer.spend(resource, amount);
            spender.consumer.count(count, amount);
        }
        drop(place);
        drop(held);
        Ok::<_, ApiError>(job)
    });
    let job = stored.await.map_err(|error| ApiError::internal("The storing of the job", &error))??;
    let location = [(header::LOCATION, format!("/v1/audio/speech/jobs/{}", job.id))];
    Ok((StatusCode::ACCEPTED, location, Json(job.json(jobs.bounds.keep_s))).into_response())
}

async fn look(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let jobs = &speech.jobs;
    let job = jobs.store()?.job_for(identity.viewer, &id).await?;
    Ok(Json(job.json(jobs.bounds.keep_s)).into_response())
}

async fn list(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    Query(wanted): Query<Wanted>,
) -> Result<Response, ApiError> {
    let jobs = &speech.jobs;
    let n = wanted.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
    // One extra entry shows whether there are more.
    let mut found = jobs.store()?.list(identity.viewer, wanted.after.as_deref(), n + 1).await?;
    let has_more = found.len() > n;
    found.truncate(n);
    let data: Vec<_> = found.iter().map(|job| job.json(jobs.bounds.keep_s)).collect();
    Ok(Json(json!({"object": "list", "data": data, "has_more": has_more})).into_response())
}

/// Ends a job that is not finished, and removes it.
async fn remove(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let deleted = json!({"id": id, "object": "audio.speech.job", "deleted": true});
    speech.jobs.store()?.remove(identity.viewer, &id).await?;
    Ok(Json(deleted).into_response())
}

/// The finished file.
async fn fetch(
    State(speech): State<Arc<SpeechParts>>,
    identity: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let store = speech.jobs.store()?;
    let job = store.job_for(identity.viewer, &id).await?;
    match job.status {
        Status::Completed => {}
        Status::Failed => {
            let why = job.failure.map(|failure| failure.message).unwrap_or_default();
            return Err(ApiError::with(StatusCode::CONFLICT, "job_failed", format!("The job failed: {why}")));
        }
        Status::Queued | Status::Running => {
            return Err(ApiError::with(StatusCode::CONFLICT, "job_not_completed", "The job is not finished yet."));
        }
    }
    let sound = store.sound(identity.viewer, &job).await?;
    let headers = [
        (header::CONTENT_TYPE, job.format.media_type().to_owned()),
        (header::CONTENT_LENGTH, job.file_bytes.to_string()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}.{}\"", job.id, job.format.name())),
    ];
    Ok((headers, Body::from_stream(sound)).into_response())
}

/// The request's `Idempotency-Key`: 1 to 255 visible ASCII characters. Requests of one API key with one such key make one job.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| {
        (1..=MAX_KEY_CHARACTERS).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
    });
    key.map(|key| Some(key.to_owned())).ok_or_else(|| {
        let message = "Invalid 'Idempotency-Key': expected 1 to 255 visible ASCII characters.";
        ApiError::invalid("invalid_value", None, message)
    })
}

/// The id of the job that requests of this owner with this key make.
fn id_of(owner: Option<KeyId>, key: &str) -> String {
    let owner = owner.map(|owner| owner.to_string()).unwrap_or_default();
    let digest = Sha256::digest(format!("{owner}\n{key}"));
    format!("{PREFIX}{}", hex(&digest[..16]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, SpeechConfig};
    use crate::server::access::keys::Keys;
    use crate::server::access::scopes::Scopes;
    use crate::server::edge::client::Client;
    use crate::server::sessions::SessionParts;
    use crate::server::speech::jobs::Jobs;
    use crate::server::speech::jobs::job::Job;
    use crate::server::speech::jobs::job_store::{HeldJob, JobStore, Sound};
    use crate::server::speech::jobs::refusal::failure_of_store;
    use crate::server::speech::jobs::store::{Bounds, StoreError};
    use crate::server::speech::spec::SpeechSpec;
    use antiphon_engine_api::Engines;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use antiphon_session::Viewer;
    use async_trait::async_trait;
    use axum::http::HeaderValue;
    use futures_util::future::BoxFuture;
    use std::sync::Mutex;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};
    use tokio_util::sync::CancellationToken;

    /// How long the store takes for a new job.
    const ADDING: Duration = Duration::from_secs(1);

    /// A store that takes its time, and the jobs that were added to it.
    #[derive(Default)]
    struct SlowStore(Arc<Mutex<Vec<String>>>);

    #[async_trait]
    impl JobStore for SlowStore {
        async fn add(&self, id: &str, _: JobOwner, spec: &SpeechSpec, _: Option<String>) -> Result<AddedJob, ApiError> {
            sleep(ADDING).await;
            let mut added = self.0.lock().expect("no panic");
            let is_new = !added.iter().any(|known| known == id);
            if is_new {
                added.push(id.to_owned());
            }
            let job = Job {
                id: id.to_owned(),
                status: Status::Queued,
                created: 0,
                started: None,
                ended: None,
                n_chunks: spec.chunks.len(),
                n_done: 0,
                n_chars: spec.n_chars,
                voice: spec.voice.clone(),
                speed: spec.speed,
                format: spec.format,
                pcm_bytes: 0,
                file_bytes: 0,
                failure: None,
                model: None,
                owner: None,
            };
            Ok(AddedJob { job, is_new })
        }

        async fn job_for(&self, _: Viewer, id: &str) -> Result<Job, ApiError> {
            assert!(!self.0.lock().expect("no panic").iter().any(|known| known == id), "jobs are added only");
            Err(failure_of_store(&StoreError::Gone))
        }

        async fn list(&self, _: Viewer, _: Option<&str>, _: usize) -> Result<Vec<Job>, ApiError> {
            unreachable!("jobs are added only")
        }

        async fn remove(&self, _: Viewer, _: &str) -> Result<(), ApiError> {
            unreachable!("jobs are added only")
        }

        async fn sound(&self, _: Viewer, _: &Job) -> Result<Sound, ApiError> {
            unreachable!("jobs are added only")
        }

        async fn depth(&self) -> Option<usize> {
            unreachable!("jobs are added only")
        }

        async fn serve(&self, _: BoxFuture<'_, ()>, _: &CancellationToken) {
            unreachable!("jobs are added only")
        }

        async fn next(&self, _: &CancellationToken) -> Option<(Box<dyn HeldJob>, SpeechSpec)> {
            unreachable!("jobs are added only")
        }
    }

    /// The speech API of a hub with this store of jobs.
    fn hub(store: SlowStore) -> Arc<SpeechParts> {
        let engines = Engines {
            vad: Arc::new(FakeVad),
            turn: None,
            speaker: None,
            stt: Arc::new(FakeStt::default()),
            llm: Arc::new(FakeLlm::default()),
            tts: Arc::new(FakeTts::default()),
        };
        let without_jobs = SpeechConfig { jobs_dir: String::new(), ..SpeechConfig::default() };
        let config = Config { speech: without_jobs, ..Config::default() };
        let sessions = SessionParts::for_tests(config.clone(), Keys::default(), engines);
        let mut speech = SpeechParts::new(sessions, &config, None);
        let bounds = Bounds { n_open: 3, bytes: 10_000, keep_s: 100 };
        speech.jobs = Jobs { bounds, at_once: 1, store: Some(Arc::new(store)) };
        Arc::new(speech)
    }

    /// Asks for a job of four characters.
    async fn asked(speech: &Arc<SpeechParts>, idempotency: Option<&'static str>) -> Result<Response, ApiError> {
        let client = Client::direct([127, 0, 0, 1].into(), false);
        let mut request = Request::new(Body::from(r#"{"input": "One."}"#));
        if let Some(key) = idempotency {
            request.headers_mut().insert(IDEMPOTENCY_KEY, HeaderValue::from_static(key));
        }
        let consumer = speech.sessions.access.limits.consumer(None, client);
        request.extensions_mut().insert(Spender { consumer, client, owner: None });
        let identity = Identity { owner: None, viewer: Viewer::All, scopes: Scopes::ALL };
        create(State(speech.clone()), identity, request).await
    }

    /// Jobs and characters that were charged.
    fn charged(speech: &SpeechParts) -> [u64; 2] {
        let usage = serde_json::to_value(speech.sessions.access.limits.usage(None)).expect("JSON");
        ["jobs", "characters"].map(|name| usage[0]["total"][name].as_u64().expect("a number"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_whose_client_has_gone_is_stored_and_charged() {
        let store = SlowStore::default();
        let added = store.0.clone();
        let speech = hub(store);
        assert!(timeout(ADDING / 2, asked(&speech, None)).await.is_err(), "the client goes");
        sleep(ADDING).await;
        assert_eq!(added.lock().expect("no panic").len(), 1);
        assert_eq!(charged(&speech), [1, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_once_with_one_idempotency_key_are_charged_once() {
        let store = SlowStore::default();
        let added = store.0.clone();
        let speech = hub(store);
        let (first, second) = tokio::join!(asked(&speech, Some("one")), asked(&speech, Some("one")));
        let statuses = [first, second].map(|answer| answer.expect("accepted").status());
        assert_eq!(statuses, [StatusCode::ACCEPTED; 2]);
        assert_eq!(added.lock().expect("no panic").len(), 1);
        assert_eq!(charged(&speech), [1, 4]);
    }
}
