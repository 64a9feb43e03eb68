//! The embedded web pages: the voice chat and the dashboard.

use super::assets::asset;
use super::guard::refused;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

/// What the page may load and connect to: this server only.
const POLICY: &str = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; style-src 'self' 'unsafe-inline'; \
                      worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Every path that is no route: a file of the page.
pub(super) async fn page(method: Method, uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    if method != Method::GET && method != Method::HEAD {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("{method} is not served here."));
    }
    file(uri.path())
        .unwrap_or_else(|| refused(StatusCode::NOT_FOUND, "not_found", format!("There is nothing at '/{path}'.")))
}

/// The page's file at `path` of an address, with all headers; `None` when there is no such file.
pub(super) fn file(path: &str) -> Option<Response> {
    let path = path.trim_start_matches('/');
    let (body, media) = asset(path)?;
    // Vite puts a hash into the names under assets/; the rest may change with the next build.
    let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = [
        (header::CONTENT_TYPE, media),
        (header::CACHE_CONTROL, cache),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    Some((headers, body.into_owned()).into_response())
}
