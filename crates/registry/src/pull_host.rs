//! A server for the download tests: it supports ranges, breaks connections, sends wrong lengths, refuses requests, and
//! changes its files.

use antiphon_test_server::{Answer, Request, TestServer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

pub(super) struct Host {
    files: Arc<Mutex<HashMap<String, HostedFile>>>,
    server: TestServer,
}

impl Host {
    /// Serves on loopback.
    pub(super) fn start() -> Self {
        let files: Arc<Mutex<HashMap<String, HostedFile>>> = Arc::default();
        let hosted = files.clone();
        let server = TestServer::start(move |request| {
            let mut files = hosted.lock().unwrap();
            let file = files.get_mut(request.path().strip_prefix("/base/").unwrap());
            file.map_or_else(|| Answer::refusal(404, "no such file"), |file| file.answer(request))
        });
        Self { files, server }
    }

    pub(super) fn url(&self) -> String {
        self.server.url("/base")
    }

    pub(super) fn put(&self, path: &str, served: HostedFile) {
        self.files.lock().unwrap().insert(path.into(), served);
    }

    pub(super) fn asked(&self) -> RequestLog {
        let requests = self.server.take_requests().into_iter();
        requests.map(|request| (request.path()[1..].to_owned(), request.range_start())).collect()
    }
}

impl HostedFile {
    fn answer(&mut self, request: &Request) -> Answer {
        if let Some((status, times)) = &mut self.status
            && *times > 0
        {
            *times -= 1;
            // A redirect leads to the same path.
            return Answer::status(*status).header("location", request.path());
        }
        let is_same = request.header("if-range").is_none_or(|tag| self.tag == Some(tag));
        let mut answer = Answer::file_from(request.range_start().filter(|_| is_same), &self.bytes);
        if let Some(tag) = self.tag {
            answer = answer.header("etag", tag);
        }
        if self.unannounced {
            answer = answer.unannounced();
        }
        if let Some(n_bytes) = self.announces {
            answer = answer.announcing(n_bytes);
        }
        if self.trickles {
            answer = answer.in_pieces(1).with_pauses(Duration::from_millis(20));
        }
        if self.stalls {
            return answer.first(1_000).hang();
        }
        match &mut self.breaks {
            Some((at, times)) if *times > 0 => {
                *times -= 1;
                answer.first(*at).close()
            }
            _ => answer,
        }
    }
}
