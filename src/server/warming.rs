//! The engines' connections, opened at start: the first client does not wait for a handshake, and the log says early what
//! cannot be reached.
//!
//! [`super::serve`] runs it beside the first sessions; it holds up neither them nor `/readyz`, and a failure stops nothing.

use antiphon_engine_api::Engines;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;

/// How long a connection may take; an engine's own deadline may be shorter.
const DEADLINE: Duration = Duration::from_secs(10);

/// Warms all engines at the same time; ends within [`DEADLINE`].
pub(super) async fn warm(engines: &Engines) {
    let Engines { vad: _, turn: _, stt, llm, tts } = engines;
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
            tracing::warn!(stage, engine, %error, "the engine cannot be reached now; sessions will try again");
        }
        Err(_) => tracing::warn!(stage, engine, "the engine did not answer within 10 s; sessions will try again"),
    }
}
