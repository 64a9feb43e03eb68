//! Errors that prevent an engine from starting.

use antiphon_telemetry::with_causes;
use std::error::Error;
use std::fmt;

/// The stages that could not start; never empty. Displayed one per line.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(StageFailure::to_string).collect::<Vec<_>>().join("\n"))]
pub struct EnginesError(pub Vec<StageFailure>);

impl From<StageFailure> for EnginesError {
    fn from(failure: StageFailure) -> Self {
        Self(vec![failure])
    }
}

/// A stage that could not start.
#[derive(Debug)]
pub struct StageFailure {
    /// The stage, as a section of the configuration.
    pub stage: &'static str,
    /// The configured engine.
    pub engine: String,
    /// What is missing and how to obtain it.
    pub cause: Box<dyn Error + Send + Sync>,
    is_busy: bool,
}

impl StageFailure {
    /// A permanent failure of a stage's engine.
    pub fn new(stage: &'static str, engine: &str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { stage, engine: engine.into(), cause: cause.into(), is_busy: false }
    }

    /// The same failure, marked as temporary: all memory is in use.
    pub(super) fn for_now(self) -> Self {
        Self { is_busy: true, ..self }
    }

    /// Whether a retry may succeed: the failure is only that other users occupy the memory.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }
}

impl fmt::Display for StageFailure {
    /// Includes the chain of causes: several failures form one error, which has no single source.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = with_causes(self.cause.as_ref());
        write!(f, "{}: the engine {:?} cannot start: {cause}", self.stage, self.engine)
    }
}

impl Error for StageFailure {}
