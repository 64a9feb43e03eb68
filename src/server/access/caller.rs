//! Who sends a request: the key that it carries, and what that key is known to grant.
//!
//! [`super::auth`] decides; the handlers read the result. A key is sent in `Authorization`, or, by a browser's
//! WebSocket, which cannot set headers, in the subprotocol `openai-insecure-api-key.<key>`. This module compares no
//! key.

use super::live_keys::LiveKeys;
use super::scopes::{Scope, Scopes};
use antiphon_engine_api::tts::VoiceScope;
use antiphon_protocol::SessionUpdate;
use antiphon_session::Viewer;
use antiphon_types::{KeyId, language_code};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Prefix of the subprotocol that carries a browser's key.
const SUBPROTOCOL_KEY: &str = "openai-insecure-api-key.";

/// The caller of a WebSocket request.
#[derive(Debug, PartialEq)]
pub(in crate::server) struct Caller {
    /// The API key; for a client secret, the key that created it; `None` if the hub has no keys.
    pub(in crate::server) owner: Option<KeyId>,
    /// The session settings that a client secret is bound to.
    pub(in crate::server) settings: Option<Arc<SessionUpdate>>,
    /// What authenticated it.
    pub(in crate::server) credential: Credential,
    /// ISO-639-1 code of the language that its request prefers, as a browser sends the user's, or that is likely at its
    /// telephone number; `None`: not known.
    pub(in crate::server) language: Option<&'static str>,
}

/// What authenticated a caller, and with that what ends its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Credential {
    /// Its API key or client secret; on a hub without keys, nothing. The session ends when a reload makes the key invalid.
    Key,
    /// Proof of a phone call: Twilio's signature, an AudioSocket UUID that has a route, or `telephony.unauthenticated`. No key
    /// stands for it, so no reload of the keys ends the session.
    Call,
}

impl Caller {
    /// A token that is cancelled when the caller may not go on.
    pub(in crate::server) fn lease(&self, keys: &LiveKeys) -> CancellationToken {
        match self.credential {
            Credential::Key => keys.lease(self.owner),
            Credential::Call => CancellationToken::new(),
        }
    }
}

/// The caller of an HTTP request; [`super::auth::check`] adds it to the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Identity {
    /// The API key; `None` if the hub has no keys.
    pub(in crate::server) owner: Option<KeyId>,
    /// Whose turns and jobs it may see: its own; all, with an admin key or if the hub has no keys.
    pub(in crate::server) viewer: Viewer,
    /// What the key may do.
    pub(in crate::server) scopes: Scopes,
}

impl Identity {
    /// Whether it may see what all keys use.
    pub(in crate::server) fn sees_all_usage(self) -> bool {
        self.viewer == Viewer::All || self.scopes.has(Scope::Metrics)
    }

    /// Whose uploaded voices it may see, use and remove.
    pub(in crate::server) fn voices(self) -> VoiceScope {
        match self.viewer {
            Viewer::All => VoiceScope::All,
            Viewer::Key(key) => VoiceScope::Key(key),
            Viewer::Nobody => VoiceScope::Nobody,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Identity {
    type Rejection = std::convert::Infallible;

    /// [`super::auth::check`] always sets it; without it, the caller sees nothing.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let nobody = Self { owner: None, viewer: Viewer::Nobody, scopes: Scopes::NONE };
        Ok(parts.extensions.get::<Self>().copied().unwrap_or(nobody))
    }
}

/// The key in an HTTP request.
pub(in crate::server) fn credentials_of(headers: &HeaderMap) -> Option<String> {
    bearer(headers).or_else(|| password(headers))
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    credentials(headers, "bearer")
}

/// Whether a request carries the password of HTTP Basic, which a browser adds to requests of any page.
pub(in crate::server) fn has_password(headers: &HeaderMap) -> bool {
    credentials(headers, "basic").is_some()
}

/// The password of HTTP Basic, with any user name, as a browser sends it after its prompt.
fn password(headers: &HeaderMap) -> Option<String> {
    let decoded = STANDARD.decode(credentials(headers, "basic")?).ok()?;
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(password.to_owned())
}

fn credentials(headers: &HeaderMap, wanted: &str) -> Option<String> {
    let (scheme, rest) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    (scheme.eq_ignore_ascii_case(wanted) && !rest.is_empty()).then(|| rest.to_owned())
}

fn subprotocol(headers: &HeaderMap) -> Option<String> {
    let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let key = offers.flat_map(|offer| offer.split(',')).find_map(|offer| offer.trim().strip_prefix(SUBPROTOCOL_KEY))?;
    (!key.is_empty()).then(|| key.to_owned())
}

/// The language of the highest quality in `Accept-Language`, the first of several; `None` where it is unknown here.
pub(super) fn preferred_language(headers: &HeaderMap) -> Option<&'static str> {
    let accepted = headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?;
    let mut best: Option<(f32, &str)> = None;
    for range in accepted.split(',') {
        let (tag, parameters) = range.split_once(';').unwrap_or((range, ""));
        let quality = parameters.trim().strip_prefix("q=").map_or(Some(1.0), |quality| quality.parse().ok());
        let quality = quality.unwrap_or(0.0);
        if quality > best.map_or(0.0, |(best, _)| best) {
            best = Some((quality, tag));
        }
    }
    language_code(best?.1)
}

/// The key in a WebSocket request.
pub(in crate::server) fn presented(headers: &HeaderMap) -> Option<String> {
    bearer(headers).or_else(|| subprotocol(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_clients_put_them() {
        let headers = |name: header::HeaderName, value: &str| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        let auth = |value: &str| headers(header::AUTHORIZATION, value);
        assert_eq!(bearer(&auth("bearer  k1 ")).as_deref(), Some("k1"));
        assert_eq!(bearer(&auth("Bearer ")), None);
        assert_eq!(bearer(&auth("Basic eDprMQ==")), None);
        assert_eq!(password(&auth("Basic eDprMQ==")).as_deref(), Some("k1"));
        assert_eq!(password(&auth("Basic ?")), None);
        let offered = |value: &str| subprotocol(&headers(header::SEC_WEBSOCKET_PROTOCOL, value));
        assert_eq!(offered("realtime, openai-insecure-api-key.k1, openai-agents-sdk.v1").as_deref(), Some("k1"));
        assert_eq!(offered("realtime"), None);
        assert_eq!(offered("realtime, openai-insecure-api-key."), None);
    }
}
