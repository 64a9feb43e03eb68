//! Who runs the hub, and so may change what it is made of: whoever has an admin key or, where there are no such keys, somebody
//! at this machine. A proxy on this machine that tells nothing of those behind it makes everybody somebody at this machine:
//! behind one there should be admin keys.
//!
//! `/api/models` asks before it pulls or removes a model. It stands behind [`super::auth`] and [`super::guard`]: where keys
//! are on, whoever gets here has one already, and a foreign page does not get here at all.

use super::app::App;
use super::auth::credentials_of;
use super::guard::refused;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a connection comes from; `accepting` puts it into every request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Whether the caller runs the hub.
pub(super) struct MayChange(pub(super) bool);

/// A caller who does; others are refused.
pub(super) struct Admin;

/// What a proxy in front of the hub tells of those behind it: then the peer is the proxy, whoever asks.
const FORWARDED: &[&str] = &["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

impl FromRequestParts<Arc<App>> for MayChange {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0.ip());
        let has_key = credentials_of(&parts.headers).is_some_and(|key| app.keys.hold_admin(&key));
        Ok(Self(has_key || !app.keys.have_admin() && is_here(peer, &parts.headers)))
    }
}

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Self::Rejection> {
        let Ok(MayChange(may)) = MayChange::from_request_parts(parts, app).await;
        if may {
            return Ok(Self);
        }
        let message = if app.keys.have_admin() {
            "Only whoever runs the hub may do this: with a key of those in the variable that server.admin_keys_env names."
        } else {
            "Only whoever runs the hub may do this: from its own machine (http://127.0.0.1), or with a key of those in the \
             variable that server.admin_keys_env names."
        };
        Err(refused(StatusCode::FORBIDDEN, "forbidden", message))
    }
}

/// Whether the request was made on this machine, and not by a proxy for somebody else.
fn is_here(peer: Option<IpAddr>, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    let named_here = name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let behind_a_proxy = FORWARDED.iter().any(|name| headers.contains_key(*name));
    peer.is_some_and(|peer| peer.to_canonical().is_loopback()) && named_here && !behind_a_proxy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_direct_caller_on_this_machine_is_here() {
        let check = |peer: &str, host: &str, more: &[(&str, &str)], expect: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            for (name, value) in more {
                headers.insert(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            assert_eq!(is_here(Some(peer.parse().unwrap()), &headers), expect, "{peer} {host} {more:?}");
        };
        check("127.0.0.1", "127.0.0.1:8080", &[], true);
        check("127.0.0.1", "localhost:8080", &[], true);
        check("::1", "[::1]:8080", &[], true);
        check("::ffff:127.0.0.1", "localhost", &[], true);
        check("192.168.1.9", "127.0.0.1:8080", &[], false);
        check("127.0.0.1", "voice.example", &[], false);
        check("127.0.0.1", "localhost:8080", &[("x-forwarded-for", "203.0.113.9")], false);
        check("127.0.0.1", "localhost:8080", &[("forwarded", "for=203.0.113.9")], false);
        assert!(!is_here(None, &HeaderMap::new()));
    }
}
