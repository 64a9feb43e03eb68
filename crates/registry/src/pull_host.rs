//! A server for the download tests: it supports ranges, breaks connections, sends wrong lengths, refuses requests, and
//! changes its files.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// A file and how it is served.
#[derive(Clone, Default)]
pub(super) struct HostedFile {
    pub(super) bytes: Vec<u8>,
    pub(super) tag: Option<&'static str>,
    /// The connection breaks after this many bytes of a response, this many times.
    pub(super) breaks: Option<(usize, usize)>,
    /// The status sent instead of the file, this many times.
    pub(super) status: Option<(u16, usize)>,
    /// The server sends nothing after the first bytes and keeps the connection open.
    pub(super) stalls: bool,
    /// The server sends a byte now and then.
    pub(super) trickles: bool,
    /// The length is not announced.
    pub(super) unannounced: bool,
    /// The announced length, if it is wrong.
    pub(super) announces: Option<u64>,
}

/// The requests received: path and first byte requested.
pub(super) type RequestLog = Vec<(String, Option<usize>)>;

#[derive(Clone, Default)]
pub(super) struct Host {
    files: Arc<Mutex<HashMap<String, HostedFile>>>,
    asked: Arc<Mutex<RequestLog>>,
}

impl Host {
    pub(super) fn put(&self, path: &str, served: HostedFile) {
        self.files.lock().unwrap().insert(path.into(), served);
    }

    pub(super) fn asked(&self) -> RequestLog {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Serves on loopback until the runtime ends; returns its address.
    #[allow(clippy::disallowed_methods)]
    pub(super) async fn start(&self) -> String {
        let router = Router::new().route("/{*path}", axum::routing::get(answer)).with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/base")
    }
}

async fn answer(
    State(host): State<Host>,
    UrlPath(path): UrlPath<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let from = text("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    host.asked.lock().unwrap().push((path.clone(), from));
    let mut files = host.files.lock().unwrap();
    let Some(served) = files.get_mut(path.trim_start_matches("base/")) else {
        return Response::builder().status(404).body(Body::from("no such file")).unwrap();
    };
    if let Some((status, times)) = &mut served.status
        && *times > 0
    {
        *times -= 1;
        // A redirect leads to the same path.
        return Response::builder().status(*status).header("location", uri.path()).body(Body::empty()).unwrap();
    }
    let is_same = text("if-range").is_none_or(|tag| served.tag == Some(tag.as_str()));
    let from = from.filter(|_| is_same);
    let total = served.bytes.len();
    if from.is_some_and(|from| from >= total) {
        let range = format!("bytes */{total}");
        return Response::builder().status(416).header("content-range", range).body(Body::empty()).unwrap();
    }
    let rest = Bytes::copy_from_slice(&served.bytes[from.unwrap_or(0)..]);
    let mut response = Response::builder().status(from.map_or(StatusCode::OK, |_| StatusCode::PARTIAL_CONTENT));
    if let Some(from) = from {
        response = response.header("content-range", format!("bytes {from}-{}/{total}", total - 1));
    }
    if let Some(tag) = served.tag {
        response = response.header("etag", tag);
    }
    if !served.unannounced {
        response = response.header("content-length", served.announces.unwrap_or(rest.len() as u64));
    }
    let stalls = served.stalls;
    let trickles = served.trickles;
    let mut breaks_at = None;
    if let Some((at, times)) = &mut served.breaks
        && *times > 0
    {
        *times -= 1;
        breaks_at = Some(*at);
    }
    let body = async_stream::stream! {
        let end = breaks_at.unwrap_or(rest.len()).min(rest.len());
        for piece in rest[..end].chunks(if trickles { 1 } else { 1_000 }) {
            yield Ok(Bytes::copy_from_slice(piece));
            if trickles {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            tokio::task::yield_now().await;
            if stalls {
                std::future::pending::<()>().await;
            }
        }
        if breaks_at.is_some() {
            yield Err(std::io::Error::other("pulled the plug"));
        }
    };
    response.body(Body::from_stream(body)).unwrap()
}
