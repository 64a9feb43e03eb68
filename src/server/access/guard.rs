//! Checks Host and Origin of every request before anything else, and adds the headers common to all responses.
//!
//! What is allowed is in [`crate::server::edge::origin`]; what else pages of other origins may load, in
//! [`crate::server::edge::cors`]. This middleware finds the request's client, which all that follow read, and writes
//! what it refuses to the security log. It compares no key.

use super::caller::has_password;
use super::parts::AccessParts;
use crate::server::edge::client::{Client, Peer};
use crate::server::edge::cors;
use crate::server::edge::headers::is_local;
use crate::server::edge::origin::{FOREIGN_ORIGIN, one_host, verdict};
use crate::server::edge::refusal::refused;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Characters of an origin in the log.
const MAX_LOGGED_ORIGIN: usize = 128;

/// Middleware: determines the client, then responds with 400 or 403, or passes the request on.
pub(in crate::server) async fn check(
    State(access): State<Arc<AccessParts>>,
    mut request: Request,
    next: Next,
) -> Response {
    let edge = &access.edge;
    let peer = request.extensions().get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip());
    let client = Client::of(peer, request.headers(), &edge.proxies, edge.tls.is_some());
    request.extensions_mut().insert(client);
    let page = cors::reader(&request);
    let is_local = is_local(&request);
    let response = match (judged(&access, client, &request), page) {
        (Ok(()), Some(origin)) => {
            let mut response = match *request.method() {
                Method::OPTIONS => cors::preflight(&request),
                _ => next.run(request).await,
            };
            cors::share_with(&origin, response.headers_mut());
            response
        }
        (Ok(()), None) => next.run(request).await,
        (Err(response), _) => *response,
    };
    edge.headers.seal(response, edge.tls.as_deref(), is_local)
}

fn judged(access: &AccessParts, client: Client, request: &Request) -> Result<(), Box<Response>> {
    let refuse = |status: StatusCode, code: &str, message: String, reason: &str| {
        access.security.refused(client, request.uri().path(), status.as_u16(), reason);
        Err(Box::new(refused(status, code, message)))
    };
    if let Err(response) = one_host(request.headers()) {
        access.security.refused(client, request.uri().path(), response.status().as_u16(), "two hosts");
        return Err(response);
    }
    match verdict(&access.edge.config, request.headers(), request.uri().host(), client.is_secure) {
        Ok(()) => Ok(()),
        Err((FOREIGN_ORIGIN, _)) if cors::is_public(request) => Ok(()),
        // A page cannot send a key that it was not given. A password, which a browser adds by itself, is none.
        Err((FOREIGN_ORIGIN, _))
            if cors::is_call(request) && access.keys.current().are_on() && !has_password(request.headers()) =>
        {
            Ok(())
        }
        Err((FOREIGN_ORIGIN, message)) => {
            let origin =
                request.headers().get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
            let origin: String = origin.chars().take(MAX_LOGGED_ORIGIN).collect();
            let reason = format!("{FOREIGN_ORIGIN} {origin:?}; to allow its pages, add it to server.allowed_origins");
            refuse(StatusCode::FORBIDDEN, "forbidden", message, &reason)
        }
        Err((reason, message)) => refuse(StatusCode::FORBIDDEN, "forbidden", message, reason),
    }
}
