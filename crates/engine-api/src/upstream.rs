//! The engines that may serve a stage, and which of them take requests.
//!
//! Remote engines report the circuit breaker of their server, an engine with a fallback reports both. `server` shows it in
//! `/api/state`, `/readyz` and the metrics. It never decides anything.

use serde::Serialize;

/// The engines of a stage, the configured one first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Upstreams {
    /// Never empty.
    pub engines: Vec<Upstream>,
    /// Requests that the fallback engine served because the configured one did not, since the start.
    pub n_fallbacks: u64,
    /// The same by reason.
    pub fallbacks: FallbackCounts,
    /// Requests that were sent a second time because the first output was late.
    pub n_hedges: u64,
}

/// Requests that a fallback engine served, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FallbackCounts {
    /// The configured engine failed.
    pub failed: u64,
    /// It was not asked: its circuit breaker is open, or no worker can be reached.
    pub unavailable: u64,
    /// It was late.
    pub late: u64,
    /// The rest of a text that the fallback began to speak.
    pub continued: u64,
    /// The hub is overloaded, and new sessions get the smaller engines.
    pub brownout: u64,
}

impl FallbackCounts {
    /// Each reason's name, with its count.
    pub const fn by_reason(&self) -> [(&'static str, u64); 5] {
        [
            ("failed", self.failed),
            ("unavailable", self.unavailable),
            ("late", self.late),
            ("continued", self.continued),
            ("brownout", self.brownout),
        ]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, n)| n).sum()
    }
}

/// One engine of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Upstream {
    /// Its configured name.
    pub engine: String,
    /// Whether it is the configured one or its fallback.
    pub role: Role,
    /// Its circuit breaker; closed for an engine without one.
    pub state: BreakerState,
    /// Time until the next request is let through, in ms; absent unless the breaker is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<u64>,
}

/// The role of an engine in its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The configured one.
    Primary,
    /// The fallback.
    Fallback,
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Requests are sent.
    Closed,
    /// One request is under way to find out whether the server works again; others are not sent.
    HalfOpen,
    /// No request is sent.
    Open,
}

impl Upstreams {
    /// An engine without a circuit breaker.
    pub fn unguarded(engine: &str) -> Self {
        let engine = engine.to_owned();
        let role = Role::Primary;
        let state = BreakerState::Closed;
        Self { engines: vec![Upstream { engine, role, state, retry_ms: None }], ..Self::default() }
    }

    /// Whether no engine takes a request now.
    pub fn is_down(&self) -> bool {
        !self.engines.is_empty() && self.engines.iter().all(|engine| engine.state == BreakerState::Open)
    }
}

impl Role {
    /// The word of the JSON, and of the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Fallback => "fallback",
        }
    }
}
