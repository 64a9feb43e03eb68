//! How long a model on a server of the operator's own may take to be loaded.
//!
//! Ollama, LM Studio and their like load a model when the first request for it comes, and unload it when none comes for minutes.
//! [`super::OpenAi`] asks before each request, and reports each part of an answer. It sends nothing and asks no server.

use reqwest::Url;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A server that has not answered for this long may have unloaded its model: Ollama does after 5 minutes (`OLLAMA_KEEP_ALIVE`).
const UNLOADED_AFTER: Duration = Duration::from_secs(240);
/// The wait for a model that is loaded, in waits for a first token, and the longest one. A model of 8 GB is read from a disk of
/// 150 MB/s in 55 s.
const WAITS: u32 = 6;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Whether a model may have to be loaded before it answers.
#[derive(Debug)]
pub(super) struct LoadingModel {
    /// `None`: it never is.
    limit: Option<Duration>,
    last_answer: Mutex<Option<Instant>>,
}

impl LoadingModel {
    /// Of a server that has not answered yet. `first_token` is the usual wait for it. Where another engine takes over, it does so
    /// after the usual wait.
    pub(super) fn new(server: &Url, first_token: Duration, has_fallback: bool) -> Self {
        let limit = (is_private(server) && !has_fallback).then(|| longest_wait(first_token));
        Self { limit, last_answer: Mutex::new(None) }
    }

    /// The longest wait for the first token of a request that is sent now; `None`: the usual one.
    pub(super) fn limit(&self) -> Option<Duration> {
        let last_answer = *self.last_answer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_loaded = last_answer.is_some_and(|at| at.elapsed() < UNLOADED_AFTER);
        self.limit.filter(|_| !is_loaded)
    }

    /// The longest wait for any request.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.limit
    }

    /// A part of an answer has come, thinking included.
    pub(super) fn answered(&self) {
        *self.last_answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

fn longest_wait(first_token: Duration) -> Duration {
    first_token.saturating_mul(WAITS).min(LONGEST_WAIT).max(first_token)
}

/// Whether a server is on this machine or in a private network, as far as its address says it. A name without a dot is one of the
/// local network, or of a container beside this one.
fn is_private(server: &Url) -> bool {
    let host = server.host_str().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        Err(_) => !host.contains('.') || host.ends_with(".local") || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn loading(base_url: &str, first_token: Duration, has_fallback: bool) -> LoadingModel {
        LoadingModel::new(&Url::parse(base_url).expect("an address"), first_token, has_fallback)
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_may_be_loaded_at_first_and_after_four_minutes_without_an_answer() {
        let loading = loading("http://127.0.0.1:11434/v1", 10 * SECOND, false);
        assert_eq!(loading.limit(), Some(60 * SECOND));
        loading.answered();
        assert_eq!(loading.limit(), None);
        tokio::time::advance(239 * SECOND).await;
        assert_eq!(loading.limit(), None);
        tokio::time::advance(SECOND).await;
        assert_eq!(loading.limit(), Some(60 * SECOND));
    }

    #[test]
    fn the_wait_is_six_usual_ones_a_minute_at_most_and_never_less_than_the_usual_one() {
        for (usual, limit) in [(2, 12), (10, 60), (30, 60), (60, 60), (90, 90)] {
            let loading = loading("http://localhost:1/v1", usual * SECOND, false);
            assert_eq!(loading.limit(), Some(limit * SECOND), "{usual} s");
        }
    }

    #[test]
    fn only_servers_of_the_operators_own_load_on_request() {
        let is_local = |host: &str| loading(&format!("http://{host}/v1"), SECOND, false).limit().is_some();
        let own = [
            "localhost",
            "127.0.0.1:1",
            "[::1]:1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.7",
            "[fd00::1]",
            "ollama:11434",
            "nas.local",
        ];
        for host in own {
            assert!(is_local(host), "{host}");
        }
        for host in ["api.openai.com", "8.8.8.8", "172.32.0.1", "[2001:db8::1]", "local.example"] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn another_engine_takes_over_after_the_usual_wait() {
        assert_eq!(loading("http://localhost:1/v1", SECOND, true).limit(), None);
    }
}
