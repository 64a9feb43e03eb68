//! `/v1/audio/speech/jobs`: ask, look, fetch, remove.

use super::job::{Job, PREFIX, Status};
use super::{Jobs, Store, now};
use crate::server::app::App;
use crate::server::auth::Identity;
use crate::server::speech::error::ApiError;
use crate::server::speech::request::{self, Longest};
use crate::server::speech::{MAX_JSON_BYTES, body_of, chosen};
use antiphon_types::IdMint;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// Jobs of one page of the list, where the request does not say, and at most.
const PAGE: usize = 20;
const LARGEST_PAGE: usize = 100;
/// What is read of a file at once.
const BLOCK: usize = 64 << 10;

/// The routes.
pub(in crate::server::speech) fn routes() -> Router<Arc<App>> {
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
async fn create(State(app): State<Arc<App>>, identity: Identity, request: Request) -> Result<Response, ApiError> {
    let (speech, jobs) = (&app.speech, &app.speech.jobs);
    speech.check_place()?;
    let (body, _held) = body_of(request, speech, MAX_JSON_BYTES).await?;
    let _place = speech.admit()?;
    let longest = Longest { chars: speech.config.max_job_chars, if_longer: " (speech.max_job_chars)" };
    let chosen = chosen::for_body(&app, &body, identity.voices()).await?;
    let (_, wish) = request::read(chosen, body, longest).await?;
    let id = IdMint::new(rand::random()).next(PREFIX.trim_end_matches('_'));
    let job = jobs.with(move |store| store.add(&id, identity.owner, &wish, now())).await?;
    jobs.work.notify_one();
    let location = [(header::LOCATION, format!("/v1/audio/speech/jobs/{}", job.id))];
    Ok((StatusCode::ACCEPTED, location, Json(job.json(jobs.bounds.keep_s))).into_response())
}

async fn look(State(app): State<Arc<App>>, identity: Identity, Path(id): Path<String>) -> Result<Response, ApiError> {
    let jobs = &app.speech.jobs;
    let job = jobs.with_those(move |store| store.job_for(identity.viewer, &id)).await?;
    Ok(Json(job.json(jobs.bounds.keep_s)).into_response())
}

async fn list(
    State(app): State<Arc<App>>,
    identity: Identity,
    Query(wanted): Query<Wanted>,
) -> Result<Response, ApiError> {
    let jobs = &app.speech.jobs;
    let n = wanted.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
    // One extra entry shows whether there are more.
    let list = move |store: &mut Store| store.list(identity.viewer, wanted.after.as_deref(), n + 1);
    let mut found = if jobs.are_some().await? { jobs.with(list).await? } else { Vec::new() };
    let has_more = found.len() > n;
    found.truncate(n);
    let data: Vec<_> = found.iter().map(|job| job.json(jobs.bounds.keep_s)).collect();
    Ok(Json(json!({"object": "list", "data": data, "has_more": has_more})).into_response())
}

/// Ends a job that is not finished, and removes it.
async fn remove(State(app): State<Arc<App>>, identity: Identity, Path(id): Path<String>) -> Result<Response, ApiError> {
    let jobs = &app.speech.jobs;
    let (asked, deleted) = (id.clone(), json!({"id": id, "object": "audio.speech.job", "deleted": true}));
    jobs.with_those(move |store| {
        store.job_for(identity.viewer, &asked)?;
        store.delete(&asked)
    })
    .await?;
    if let Some(running) = jobs.running.lock().expect("no panic while locked").get(&id) {
        running.cancel();
    }
    Ok(Json(deleted).into_response())
}

/// The finished file.
async fn fetch(State(app): State<Arc<App>>, identity: Identity, Path(id): Path<String>) -> Result<Response, ApiError> {
    let jobs: &Jobs = &app.speech.jobs;
    let (job, path) = jobs
        .with_those(move |store| {
            store.job_for(identity.viewer, &id).map(|job| (job.clone(), store.file(&job.id, job.format)))
        })
        .await?;
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
    let file = File::open(path).await.map_err(|error| {
        tracing::warn!(%error, "a finished job's file is gone");
        ApiError::failed("The job's file is gone.")
    })?;
    Ok(served(&job, file))
}

fn served(job: &Job, mut file: File) -> Response {
    let bytes = async_stream::stream! {
        loop {
            let mut block = vec![0; BLOCK];
            match file.read(&mut block).await {
                Ok(0) => return,
                Ok(n) => {
                    block.truncate(n);
                    yield Ok(Bytes::from(block));
                }
                Err(error) => {
                    yield Err(error);
                    return;
                }
            }
        }
    };
    let headers = [
        (header::CONTENT_TYPE, job.format.media_type().to_owned()),
        (header::CONTENT_LENGTH, job.file_bytes.to_string()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}.{}\"", job.id, job.format.name())),
    ];
    (headers, Body::from_stream(bytes)).into_response()
}
