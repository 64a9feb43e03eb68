//! `/v1/audio/speech/jobs`: ask, look, fetch, remove.

use super::job::{PREFIX, Status};
use super::job_store::JobOwner;
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

/// Takes a job: 202, and where to look for it.
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
    let (body, _held) = upload::whole(request.into_body(), account, MAX_JSON_BYTES).await?;
    let _place = speech.admit(&spender)?;
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
    let is_new = digest.is_none() || store.job_for(identity.viewer, &id).await.is_err();
    if is_new {
        charges.iter().try_for_each(|(resource, ..)| check(&speech, &spender, *resource))?;
    }
    // Half of the queue stays for other keys, if there are any.
    let max_open = match speech.sessions.access.keys.current().n_clients() {
        0 | 1 => jobs.bounds.n_open,
        _ => jobs.bounds.n_open.div_ceil(2),
    };
    let job = store.add(&id, JobOwner { key: identity.owner, max_open }, &spec, digest).await?;
    for (resource, count, amount) in charges.into_iter().filter(|_| is_new) {
        spender.consumer.spend(resource, amount);
        spender.consumer.count(count, amount);
    }
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
