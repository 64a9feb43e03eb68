//! The speech API: OpenAI's `/v1/audio/speech`, `/v1/audio/transcriptions`, `/v1/audio/voices` and `/v1/models`, and jobs for
//! long texts.
//!
//! `server` mounts [`routes`] behind its checks of keys, hosts and origins. Requests use the engines of the sessions through
//! the same ports, and wait for them as sessions do; how many are worked on at once is bounded here, and how much of their bodies
//! is in memory, and for how long one may come, in [`upload`]. Nothing of what is spoken or written down is logged.

mod chosen;
mod create;
mod cutting;
mod error;
mod fields;
mod form;
mod jobs;
mod listening;
pub(super) mod live;
mod metering;
mod models;
mod names;
mod parts;
mod request;
mod request_times;
mod speaking;
mod spec;
mod transcriptions;
mod upload;
mod voices;
mod waiting;
mod written;

pub(super) use jobs::worker::run as work_on_jobs;
pub use jobs::{JOBS_VERSION, version_in as jobs_version_in};
pub(super) use parts::SpeechParts;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use parts::MAX_JSON_BYTES;
use std::sync::Arc;

/// The routes.
pub(super) fn routes<S>(speech: Arc<SpeechParts>) -> Router<S> {
    let upload = form::largest_file(&speech).body_bytes();
    Router::new()
        .route("/v1/audio/speech", post(create::create).layer(DefaultBodyLimit::max(MAX_JSON_BYTES)))
        .route("/v1/audio/transcriptions", post(transcriptions::create).layer(DefaultBodyLimit::max(upload)))
        .route("/v1/audio/translations", post(transcriptions::translate).layer(DefaultBodyLimit::max(upload)))
        .merge(jobs::routes())
        .merge(voices::routes())
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::one))
        .with_state(speech)
}
