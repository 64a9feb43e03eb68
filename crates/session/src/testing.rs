//! What unit tests of a session's parts begin with: a setup with fake engines, and a session of it. For tests only.

use super::beginning::Beginning;
use super::config::{SessionConfig, SpeculationConfig};
use super::limits::{LimitReached, SessionLimits};
use super::opening::Opening;
use super::setup::Setup;
use super::turn_history::TurnHistory;
use antiphon_dialog::ResponseUsage;
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::mcp::{ConnectedServer, Mcp, McpError};
use antiphon_protocol::RateLimit;
use antiphon_telemetry::Metrics;
use antiphon_types::mcp::Server;
use antiphon_types::{Compute, SampleRate, Samples};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// No server can be reached.
struct NoServers;

impl Mcp for NoServers {
    fn connect(&self, _: Server) -> BoxFuture<'static, Result<ConnectedServer, McpError>> {
        ready(Err(McpError::Unusable("there are none".into()))).boxed()
    }
}

/// Limits that ask a client to wait as long as its audio is, allow no response, and count responses and the tokens of
/// dropped speculation.
#[derive(Default)]
pub(super) struct StrictLimits {
    pub(super) begun: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl SessionLimits for StrictLimits {
    fn audio_received(&self, audio: Samples) -> Duration {
        audio.duration(SampleRate::HZ_16000)
    }
    fn may_respond(&self) -> Result<(), LimitReached> {
        Err(LimitReached("no more".into()))
    }
    fn response_begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
    fn response_done(&self, _: &ResponseUsage) {}
    fn speculation_dropped(&self, input_tokens: u64) {
        self.dropped.fetch_add(input_tokens, Ordering::Relaxed);
    }
    fn turn(&self) {}
    fn computed(&self, _: Compute) {}
    fn state(&self) -> Vec<RateLimit> {
        Vec::new()
    }
}

/// What a session with fake engines begins with.
pub(super) fn begun(opening: Opening) -> (Arc<Setup>, Beginning) {
    let engines = Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        speaker: None,
        stt: Arc::new(FakeStt::default()),
        llm: Arc::new(FakeLlm::says(["One sentence."])),
        tts: Arc::new(FakeTts::default()),
    };
    let setup = Arc::new(Setup {
        turn_history: Arc::new(TurnHistory::new(10, true, engines.names())),
        engines,
        turn: TurnConfig::default(),
        speculation: SpeculationConfig::default(),
        session: SessionConfig::default(),
        voice: "tone".into(),
        speed: 1.0,
        instructions: String::new(),
        model: "test".into(),
        language: None,
        language_voices: Default::default(),
        stt_timeout: Duration::from_secs(5),
        mcp: Arc::new(NoServers),
        mcp_config: Default::default(),
        hub_servers: Vec::new(),
        sealing: None,
        brownout: Default::default(),
        metrics: Metrics::new(),
        tasks: TaskTracker::new(),
        drain: CancellationToken::new(),
    });
    let beginning = Beginning::opened(&setup, "sess_1".into(), 1, opening);
    (setup, beginning)
}
