//! Decides which callers are the hub's operators, who may change its models: callers with an admin key or, if there are
//! no such keys and `server.local_admin` allows it, callers on this machine. A request with any sign of a proxy is not
//! local. A proxy on this machine that leaves no sign, and addresses the hub by a loopback address, is
//! indistinguishable from a local caller: behind such a proxy, configure admin keys or `server.local_admin = false`.
//!
//! `/api/models` checks it before it pulls or removes a model. It runs after [`super::auth`] and [`super::guard`]: if
//! keys are configured, every caller has already presented one, and requests from foreign pages have already been
//! rejected.

use super::caller::credentials_of;
use super::parts::AccessParts;
use super::scopes::{Scope, Scopes};
use crate::server::edge::client::Client;
use crate::server::edge::refusal::refused;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::Response;
use std::net::IpAddr;
use std::sync::Arc;

/// Extractor: whether the caller is an operator.
pub(in crate::server) struct MayChange(pub(in crate::server) bool);

/// Extractor that requires an operator; other callers get 403.
pub(in crate::server) struct Admin;

/// Headers that proxies add to forwarded requests; any header with a prefix in [`FORWARDED_BY`] counts too.
const FORWARDED: &[&str] = &[
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-proxyuser-ip",
    "x-real-ip",
];
const FORWARDED_BY: &[&str] = &["cf-", "x-forwarded"];

impl<S> FromRequestParts<S> for MayChange
where
    Arc<AccessParts>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<Client>().map(|client| client.peer);
        let access = Arc::<AccessParts>::from_ref(state);
        let keys = access.keys.current();
        let key = credentials_of(&parts.headers).filter(|_| keys.are_on());
        let scopes = key.and_then(|key| keys.grant(&key)).map(|grant| grant.scopes);
        let has_key = scopes.is_some_and(|scopes| scopes.has(Scope::Models));
        // A key with a list of scopes may do what is listed, wherever it is used.
        let local = access.edge.config.local_admin && !keys.have_admin() && scopes.is_none_or(Scopes::are_usual);
        Ok(Self(has_key || local && is_here(peer, parts.version, &parts.headers)))
    }
}

impl<S> FromRequestParts<S> for Admin
where
    Arc<AccessParts>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let Ok(MayChange(may)) = MayChange::from_request_parts(parts, state).await;
        if may {
            return Ok(Self);
        }
        let access = Arc::<AccessParts>::from_ref(state);
        let message = if access.keys.current().have_admin() || !access.edge.config.local_admin {
            "Only the hub's operator may do this: with a key that has the scope 'models' or 'admin', or one of the variable \
             that server.admin_keys_env names."
        } else {
            "Only the hub's operator may do this: from its own machine (http://127.0.0.1) and not through a proxy, or with \
             a key that has the scope 'models' or 'admin', or one of the variable that server.admin_keys_env names."
        };
        if let Some(client) = parts.extensions.get::<Client>() {
            access.security.refused(*client, parts.uri.path(), 403, "not an admin");
        }
        Err(refused(StatusCode::FORBIDDEN, "forbidden", message))
    }
}

/// Whether the request was made on this machine and not by a proxy. HTTP/1.0 counts as a sign of a proxy: old proxies
/// use it towards their upstream, current browsers and tools do not.
fn is_here(peer: Option<IpAddr>, version: Version, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    let named_here = name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    let of_proxy = |name: &str| FORWARDED.contains(&name) || FORWARDED_BY.iter().any(|begin| name.starts_with(begin));
    let behind_a_proxy = version < Version::HTTP_11 || headers.keys().any(|name| of_proxy(name.as_str()));
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
            assert_eq!(
                is_here(Some(peer.parse().unwrap()), Version::HTTP_11, &headers),
                expect,
                "{peer} {host} {more:?}"
            );
        };
        check("127.0.0.1", "127.0.0.1:8080", &[], true);
        check("127.0.0.1", "localhost:8080", &[], true);
        check("::1", "[::1]:8080", &[], true);
        check("::ffff:127.0.0.1", "localhost", &[], true);
        check("192.168.1.9", "127.0.0.1:8080", &[], false);
        check("127.0.0.1", "voice.example", &[], false);
        check("127.0.0.1", "localhost:8080", &[("x-forwarded-for", "203.0.113.9")], false);
        check("127.0.0.1", "localhost:8080", &[("forwarded", "for=203.0.113.9")], false);
        for name in
            ["via", "x-real-ip", "x-forwarded-proto", "x-forwarded-server", "cf-connecting-ip", "true-client-ip"]
        {
            check("127.0.0.1", "localhost:8080", &[(name, "x")], false);
        }
        assert!(!is_here(None, Version::HTTP_11, &HeaderMap::new()));
        let local = HeaderMap::from_iter([(header::HOST, "127.0.0.1:8080".parse().unwrap())]);
        assert!(!is_here(Some([127, 0, 0, 1].into()), Version::HTTP_10, &local), "as nginx asks unless told otherwise");
    }
}
