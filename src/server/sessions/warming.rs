//! Opens the engines' connections at startup: the first client does not wait for a handshake, and the log reports
//! unreachable engines early.
//!
//! [`crate::server::serve_loading`] runs it concurrently with the first sessions; it delays neither them nor `/readyz`,
//! and a failure has no effect.

use antiphon_engine_api::Engines;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout per engine; an engine's own deadline may be shorter.
const DEADLINE: Duration = Duration::from_secs(10);

/// Warms all engines concurrently; returns within [`DEADLINE`].
pub(in crate::server) async fn warm(engines: &Engines) {
    let Engines { vad: _, turn: _, speaker: _, stt, llm, tts } = engines;
    tokio::join!(
        reach("stt", stt.name(), stt.warm()),
        reach("llm", llm.name(), llm.warm()),
        reach("tts", tts.name(), tts.warm()),
    );
}

async fn reach<E: Display>(stage: &'static str, engine: &str, warmed: impl Future<Output = Result<(), E>>) {
    match timeout(DEADLINE, warmed).await {
        Ok(Ok(())) => tracing::debug!(stage, engine, "warm"),
        Ok(Err(error)) => {
            tracing::warn!(stage, engine, %error, "the engine cannot be reached; sessions will retry");
        }
        Err(_) => tracing::warn!(stage, engine, "the engine did not respond within 10 s; sessions will retry"),
    }
}
