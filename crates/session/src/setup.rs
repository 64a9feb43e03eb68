//! What all sessions share and begin with.
//!
//! The program makes one for each set of engines; every part of a session reads it. It holds no state of a session.

use super::config::{SessionConfig, SpeculationConfig};
use super::turn_history::TurnHistory;
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::Engines;
use antiphon_engine_api::mcp::{Mcp, McpConfig};
use antiphon_telemetry::Metrics;
use antiphon_types::Brownout;
use antiphon_types::mcp::DeclaredServer;
use antiphon_types::sealed::Sealing;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// What all sessions share and begin with. Cheap enough to clone for another set of engines.
#[derive(Clone)]
pub struct Setup {
    /// The engines.
    pub engines: Engines,
    /// How turns are found.
    pub turn: TurnConfig,
    /// Limits of speculation.
    pub speculation: SpeculationConfig,
    /// The rest of a session's settings.
    pub session: SessionConfig,
    /// The voice's id.
    pub voice: String,
    /// Rate of speech.
    pub speed: f32,
    /// The system prompt.
    pub instructions: String,
    /// The model's name where a client gives none.
    pub model: String,
    /// ISO-639-1, or [`DETECT_LANGUAGE`](antiphon_engine_api::stt::DETECT_LANGUAGE); `None`: the recognizer's own choice.
    pub language: Option<String>,
    /// Voices by the code of their language, where replies follow the language heard.
    pub language_voices: Arc<BTreeMap<String, String>>,
    /// From the end of an utterance to its transcript.
    pub stt_timeout: Duration,
    /// Remote tools.
    pub mcp: Arc<dyn Mcp>,
    /// Which servers they may be of.
    pub mcp_config: McpConfig,
    /// Servers that the hub declares in these sessions beside those of the client, through [`Setup::mcp`] as well. A
    /// client's server with the same label takes the place of one.
    pub hub_servers: Vec<DeclaredServer>,
    /// Encrypts what is written about sessions; `None`: it is written as it is.
    pub sealing: Option<Arc<dyn Sealing>>,
    /// What the hub does without while it is overloaded.
    pub brownout: Brownout,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// Where the turns are kept.
    pub turn_history: Arc<TurnHistory>,
    /// Owner of every task of every session.
    pub tasks: TaskTracker,
    /// Cancelled when the server stops: sessions finish what they say, then close with 1001.
    pub drain: CancellationToken,
}

impl Setup {
    /// Spawns a task of a session, which ends when its guard is dropped.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> DropGuard {
        let cancel = CancellationToken::new();
        let guard = cancel.clone().drop_guard();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = work => {}
            }
        });
        guard
    }
}
