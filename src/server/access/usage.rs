//! `GET /api/usage`: what API keys have used, of this hub.
//!
//! A key sees its own usage; one with the scope `metrics` or `admin`, and everybody where the hub has no keys, sees that of all.

use super::caller::Identity;
use super::limits::KeyUsage;
use super::parts::AccessParts;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;

/// The answer.
#[derive(Serialize)]
pub(in crate::server) struct Usage {
    object: &'static str,
    /// By name.
    data: Vec<KeyUsage>,
}

/// The handler.
pub(in crate::server) async fn usage(State(access): State<Arc<AccessParts>>, identity: Identity) -> Json<Usage> {
    let of = if identity.sees_all_usage() { None } else { Some(identity.owner) };
    Json(Usage { object: "list", data: access.limits.usage(of) })
}
