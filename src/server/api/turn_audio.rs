//! `GET /api/turns/{id}/audio`: the sound of a turn's speech, the user left and the reply right, where the hub records sessions
//! with their sound.
//!
//! It needs an admin key, and each request is in the audit log. The recording is opened with the hub's storage key.

use super::parts::ApiParts;
use crate::server::access::caller::Identity;
use crate::server::edge::client::Client;
use crate::server::edge::refusal::refused;
use antiphon_session::recorded_audio;
use antiphon_types::{SampleRate, Samples};
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::path::PathBuf;
use std::sync::Arc;

/// A WAV file, at most [`antiphon_session::MAX_RECORDED`] long. 404: there is no such turn on this hub, or no sound of it.
pub(in crate::server) async fn audio(
    State(api): State<Arc<ApiParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Response {
    let missing = |message: &str| refused(StatusCode::NOT_FOUND, "not_found", message);
    let Some(turn) = api.sessions.setup.turn_history.find(identity.viewer, &id) else {
        return missing("There is no such turn on this hub; older turns are evicted by newer ones.");
    };
    let Some(span) = turn.recording else {
        return missing("The sound of this turn is not recorded.");
    };
    // The sound is in memory until it is sent.
    let _place = match api.readers.place(identity.owner, client).await {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let folder = PathBuf::from(&api.sessions.setup.session.record);
    let sealing = api.sessions.setup.sealing.clone();
    let session = turn.session_id.clone();
    let samples = |ms| Samples::from_ms(ms, SampleRate::HZ_16000);
    let span = samples(span.from_ms)..samples(span.to_ms);
    match tokio::task::spawn_blocking(move || recorded_audio(&folder, &session, span, sealing)).await {
        Ok(Ok(Some(sound))) => ([(header::CONTENT_TYPE, "audio/wav")], sound).into_response(),
        Ok(Ok(None)) => missing("The recording is no longer there."),
        Ok(Err(error)) => unreadable(&id, &error),
        Err(error) => unreadable(&id, &error),
    }
}

fn unreadable(id: &str, error: &dyn std::fmt::Display) -> Response {
    tracing::warn!(turn = id, %error, "a recording cannot be read");
    refused(
        StatusCode::INTERNAL_SERVER_ERROR,
        "recording_unreadable",
        "The recording cannot be read; the log says why.",
    )
}
