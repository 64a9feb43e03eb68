//! Middleware that gives rejections of axum's extractors the form of all errors.
//!
//! An extractor refuses a query, path, body or upgrade that it cannot read before any handler sees it, in plain text.
//! Telephony providers, probes and pages get their answers as they are.

use super::refusal::refused;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;

/// Bytes of a rejection's text. In place of a longer one stands the name of the status.
const MAX_TEXT_BYTES: usize = 4 * 1024;

/// Passes the request on, and rewords a plain 4xx response; its status and other headers stay.
pub(in crate::server) async fn reword(request: Request, next: Next) -> Response {
    let is_covered = *request.method() != Method::HEAD && is_of_api(request.uri().path());
    let response = next.run(request).await;
    if !is_covered || !response.status().is_client_error() || !is_plain(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_TEXT_BYTES).await.ok().and_then(|text| String::from_utf8(text.into()).ok());
    let text = text.filter(|text| !text.is_empty());
    let message = text.unwrap_or_else(|| parts.status.canonical_reason().unwrap_or("The request is refused.").into());
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = refused(parts.status, "invalid_request", message).into_body();
    Response::from_parts(parts, body)
}

/// Whether errors of this path have the OpenAI format.
fn is_of_api(path: &str) -> bool {
    (path.starts_with("/v1/") || path.starts_with("/api/")) && !path.starts_with("/v1/telephony/")
}

/// Whether it is text, or says nothing about what it is.
fn is_plain(headers: &HeaderMap) -> bool {
    let Some(media_type) = headers.get(header::CONTENT_TYPE) else { return true };
    media_type.to_str().is_ok_and(|media_type| media_type.starts_with("text/plain"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use axum::routing::any;
    use serde_json::Value;
    use tower::ServiceExt;

    /// What a client gets where a handler of this path gives this.
    async fn answer(method: Method, path: &str, given: impl IntoResponse + Clone + Send + Sync + 'static) -> Response {
        let routes = Router::new().route(path, any(move || async move { given }));
        let routes = routes.layer(axum::middleware::from_fn(reword));
        let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
        routes.oneshot(request).await.expect("infallible")
    }

    async fn body(response: Response) -> String {
        let bytes = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        String::from_utf8(bytes.into()).expect("text")
    }

    #[tokio::test]
    async fn a_plain_refusal_is_reworded_and_keeps_its_status_and_headers() {
        let given =
            (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET"), (header::RETRY_AFTER, "3")], "No such method");
        let response = answer(Method::POST, "/v1/x", given).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        let value = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
        assert_eq!([value("allow"), value("retry-after"), value("content-type")], ["GET", "3", "application/json"]);
        let error: Value = serde_json::from_str(&body(response).await).expect("JSON");
        let error = &error["error"];
        assert_eq!((&error["code"], &error["message"]), (&"invalid_request".into(), &"No such method".into()));
        // Without a text, or with one that is too long.
        let response = answer(Method::GET, "/api/x", StatusCode::CONFLICT).await;
        assert!(body(response).await.contains(r#""message":"Conflict""#));
        let response = answer(Method::GET, "/api/x", (StatusCode::CONFLICT, "x".repeat(MAX_TEXT_BYTES + 1))).await;
        assert!(body(response).await.contains(r#""message":"Conflict""#));
    }

    #[tokio::test]
    async fn other_answers_stay_as_they_are() {
        for (method, path, status) in [
            (Method::GET, "/v1/x", StatusCode::OK),
            (Method::GET, "/v1/x", StatusCode::INTERNAL_SERVER_ERROR),
            (Method::GET, "/metrics", StatusCode::NOT_FOUND),
            (Method::POST, "/v1/telephony/twilio/voice", StatusCode::FORBIDDEN),
        ] {
            assert_eq!(body(answer(method, path, (status, "as it is")).await).await, "as it is", "{path} {status}");
        }
        let xml = (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "text/xml")], "<x/>");
        assert_eq!(body(answer(Method::GET, "/v1/x", xml).await).await, "<x/>");
        let response = answer(Method::HEAD, "/v1/x", (StatusCode::BAD_REQUEST, "as it is")).await;
        assert!(response.headers()["content-type"].to_str().is_ok_and(|value| value.starts_with("text/plain")));
    }
}
