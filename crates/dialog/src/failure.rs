//! Why a stage gave no result, as far as the client may know.
//!
//! `session` makes it of an engine's error, the reducer passes it on, and a replay log holds it: a plain failure is its
//! message there.

use serde::{Deserialize, Serialize};

/// A failed stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Failure {
    /// It failed; the message is for the client.
    Failed(String),
    /// Its engines run on other machines, and none of them can be reached.
    Away {
        /// The message for the client.
        away: String,
    },
    /// The client has used up a limit.
    Limited {
        /// The message for the client.
        limited: String,
    },
}

impl Failure {
    /// The message for the client.
    pub fn message(&self) -> &str {
        match self {
            Self::Failed(message) | Self::Away { away: message } | Self::Limited { limited: message } => message,
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::Failed(message.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_failure_is_written_as_its_message() {
        for (failure, written) in [
            (Failure::from("It broke."), r#""It broke.""#),
            (Failure::Away { away: "Nobody is there.".into() }, r#"{"away":"Nobody is there."}"#),
        ] {
            assert_eq!(serde_json::to_string(&failure).expect("text"), written);
            assert_eq!(serde_json::from_str::<Failure>(written).expect("a failure"), failure);
        }
    }
}
