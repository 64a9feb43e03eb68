//! What a client reads where a response's model or voice fails, and what the log says.
//!
//! Most clients read what failed and what to do. The operator, who sits at the machine or has an administrator's key, also reads
//! the cause in the upstream's words, which hold none of the hub's keys and are bounded where they are read.

use antiphon_dialog::Failure;
use antiphon_engine_api::llm::LlmError;
use antiphon_engine_api::tts::TtsError;

/// A model that answered nothing.
pub(super) fn said_nothing() -> Failure {
    const WORDS: &str = "The language model answered nothing. Ask again, or try another model.";
    tracing::warn!(stage = "language model", "a response failed: the answer is empty");
    Failure::Failed(WORDS.into())
}

/// A model that failed before its first word.
pub(super) fn model_failed(error: &LlmError, sees_causes: bool) -> Failure {
    log("language model", error);
    let message = error.client_message();
    match error {
        LlmError::Away(_) => Failure::Away { away: with_cause(message, error, sees_causes) },
        _ => Failure::Failed(with_cause(message, error, sees_causes)),
    }
}

/// A model that failed behind words, which stand.
pub(super) fn broke_off(error: &LlmError, sees_causes: bool) -> Failure {
    log("language model", error);
    let message = "The language model broke off in the middle of its answer. What it had said stands; ask it to go on.";
    Failure::Failed(with_cause(message.into(), error, sees_causes))
}

/// A voice that failed.
pub(super) fn voice_failed(error: &TtsError, sees_causes: bool) -> Failure {
    log("voice engine", error);
    let message = error.client_message();
    match error {
        TtsError::Away(_) => Failure::Away { away: with_cause(message, error, sees_causes) },
        _ => Failure::Failed(with_cause(message, error, sees_causes)),
    }
}

/// The message for a client, followed by the cause for the operator.
fn with_cause(message: String, error: &dyn std::error::Error, sees_causes: bool) -> String {
    if sees_causes { format!("{message} Cause: {error}.") } else { message }
}

/// Logs an engine's failure with its causes, once.
fn log(stage: &'static str, error: &dyn std::error::Error) {
    let causes = causes(error);
    tracing::warn!(stage, %error, ?causes, "a response failed");
}

/// The causes of an error, the nearest first, for the log.
pub(super) fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |cause| cause.source()).map(ToString::to_string).collect()
}
