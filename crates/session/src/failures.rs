//! What a client reads where a recognizer, or a response's model or voice, fails, and what the log says.
//!
//! Most clients read what failed and what to do. The operator, who sits at the machine or has an administrator's key, also reads
//! the cause in the upstream's words, which hold none of the hub's keys and are bounded where they are read.

use antiphon_dialog::Failure;
use antiphon_engine_api::llm::LlmError;
use antiphon_engine_api::stt::SttError;
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

/// A recognizer that failed. Its caller logs it, with the utterance.
pub(super) fn recognizer_failed(error: &SttError, sees_causes: bool) -> Failure {
    let message = error.client_message();
    match error {
        SttError::Away(_) => Failure::Away { away: with_cause(message, error, sees_causes) },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_operator_reads_why_a_recognizer_failed() {
        let cause = "10.0.0.7 has no model base";
        for (error, is_away) in [(SttError::Away(cause.into()), true), (SttError::Unavailable(cause.into()), false)] {
            for sees_causes in [false, true] {
                let failure = recognizer_failed(&error, sees_causes);
                assert_eq!(failure.message().contains(cause), sees_causes, "{failure:?}");
                assert!(failure.message().starts_with(&error.client_message()), "{failure:?}");
                assert_eq!(matches!(failure, Failure::Away { .. }), is_away, "{failure:?}");
            }
        }
    }
}
