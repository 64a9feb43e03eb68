//! What all sessions begin with, and the opening of one.

use super::actor::{Actor, ActorStart};
use super::{Close, Egress, Inbound, Keeping, SessionConfig, SessionLimits, SpeculationConfig, TurnHistory};
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::Engines;
use antiphon_engine_api::mcp::{Mcp, McpConfig};
use antiphon_protocol::{Dialect, SessionKind, SessionUpdate};
use antiphon_telemetry::{Metrics, span};
use antiphon_types::sealed::Sealing;
use antiphon_types::{Brownout, IdMint, KeyId, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// How audio travels on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AudioMode {
    /// Base64 in JSON events, as the GA protocol has it; sent as produced.
    #[default]
    Events,
    /// Binary frames of PCM16 at 24 kHz, paced.
    Pcm16,
    /// Binary frames of one Opus packet, paced.
    Opus,
}

/// What a connection asked for before it said anything: by its address, its headers and its key.
#[derive(Default)]
pub struct Opening {
    /// How audio travels.
    pub mode: AudioMode,
    /// How JSON is read and written.
    pub dialect: Dialect,
    /// The model it named.
    pub model: Option<String>,
    /// What the session is for, where the address says so. Otherwise the first update or response decides.
    pub intent: Option<SessionKind>,
    /// Settings to begin with over the hub's own: those a client's key is bound to.
    pub settings: Option<Arc<SessionUpdate>>,
    /// The key by which the client can take the session up again after its connection broke; `None`: it did not ask.
    pub resume_key: Option<String>,
    /// The API key the session belongs to; `None` where the hub has no keys.
    pub owner: Option<KeyId>,
    /// Whether the client reads why an upstream failed, in the upstream's words: the operator does.
    pub sees_causes: bool,
    /// Where its snapshots go; `None`: no other hub may resume it.
    pub keeping: Option<Keeping>,
    /// What its client may use; `None`: there is no limit.
    pub limits: Option<Arc<dyn SessionLimits>>,
    /// The transport's name in turn records; `None`: [`WEBSOCKET`].
    pub transport: Option<&'static str>,
    /// ISO-639-1 code of the language that the client prefers: the recognizer tries it first where it detects the language.
    pub language: Option<&'static str>,
}

/// The transport of a session that has no other.
pub const WEBSOCKET: &str = "websocket";

/// Messages of a client that wait for its actor. Each holds its share of the process-wide budget.
const INBOUND_MESSAGES: usize = 8;

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

/// A running session, as its connection sees it. Dropping it ends the session and everything it started.
pub struct Handle {
    /// Its id.
    pub id: SessionId,
    /// What the client says, in order. Waits while the session is behind.
    pub inbound: mpsc::Sender<Inbound>,
    /// What the client gets.
    pub egress: Arc<Egress>,
    /// When the client's socket is to be read again, where its audio is ahead of a limit.
    pub read_from: watch::Receiver<Option<Instant>>,
    cancel: CancellationToken,
}

/// Closes the log however the actor ends, by a panic too: the connection must not wait for ever.
struct CloseAtEnd(Arc<Egress>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close(Close { code: 1001, reason: "the session has ended" });
    }
}

impl Handle {
    /// Ends all work of the session now, as dropping this does; its log can still be read.
    pub fn stop(&self) {
        self.cancel.cancel();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Setup {
    /// Starts a session's actor.
    pub fn open(self: &Arc<Self>, opening: Opening) -> Handle {
        self.open_seeded(opening, rand::random())
    }

    /// As [`Self::open`], with the seed of everything that a session draws: its identifiers, and the order in which it looks at
    /// inputs that are ready at once. On one thread and paused time the same seed, client and engines give the same events.
    pub fn open_seeded(self: &Arc<Self>, opening: Opening, seed: u64) -> Handle {
        let id = SessionId::from(IdMint::new(seed ^ 0x7365_7373_696f_6e73).next("sess"));
        let (actor, start) = Actor::new(self.clone(), &id, seed, opening);
        self.run(actor, id, start)
    }

    /// Starts an actor.
    pub(super) fn run(&self, actor: Actor, id: SessionId, start: ActorStart) -> Handle {
        let (sender, inbound) = mpsc::channel(INBOUND_MESSAGES);
        // Boxed, because a future holds what it is given and what it moves that to: 20 KiB instead of 7 for each session.
        let actor = Box::new(actor);
        let egress = actor.egress.clone();
        let read_from = actor.read_from.subscribe();
        let cancel = CancellationToken::new();
        let run = {
            let cancel = cancel.clone();
            let closing = CloseAtEnd(egress.clone());
            async move {
                let _closing = closing;
                // Dropping the actor drops its tasks' guards, and with them all work of the session.
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {}
                    () = actor.run(inbound, start) => {}
                }
            }
        };
        self.tasks.spawn(run.instrument(span::session(&id)));
        Handle { id, inbound: sender, egress, read_from, cancel }
    }
}
