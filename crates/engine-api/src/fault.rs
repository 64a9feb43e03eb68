//! What kind of failure an upstream had, and how it is told to clients.
//!
//! An engine's error holds the details: addresses, the server's words, the names of settings. They are the operator's and go to
//! the log. A client gets [`Fault::client_message`]: which stage failed, how, and what to do.

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server refused the hub's key (401, 403).
    Auth,
    /// It could not be reached, or the connection broke.
    Unreachable,
    /// It gave no answer in time.
    Timeout,
    /// It has no room now (429, 503).
    Overloaded,
    /// It refused the request (another status of 4xx, or a redirect).
    Refused,
    /// What it answered cannot be used.
    BadAnswer,
    /// It failed by itself (another status of 5xx), or a local engine did.
    Failed,
    /// It is not set up on this machine.
    Unavailable,
}

impl Fault {
    /// The kind of an HTTP status that is no success.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Auth,
            408 | 504 => Self::Timeout,
            429 | 503 => Self::Overloaded,
            300..=499 => Self::Refused,
            _ => Self::Failed,
        }
    }

    /// The words for a client. `stage` is its name at the beginning of a sentence, such as "The language model".
    pub fn client_message(self, stage: &str) -> String {
        let what = match self {
            Self::Auth => "refused the hub's key; the operator's log has the details",
            Self::Unreachable => "cannot be reached; try again soon. The operator's log has the details",
            Self::Timeout => "did not answer in time; try again",
            Self::Overloaded => "is overloaded; try again in a few seconds",
            Self::Refused => "refused the request; the operator's log has the details",
            Self::BadAnswer => "gave an answer that cannot be used; the operator's log has the details",
            Self::Failed => "failed; try again. The operator's log has the details",
            Self::Unavailable => "is not available on this server; the operator's log has the details",
        };
        format!("{stage} {what}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        for (status, fault) in [
            (307, Fault::Refused),
            (400, Fault::Refused),
            (401, Fault::Auth),
            (403, Fault::Auth),
            (404, Fault::Refused),
            (429, Fault::Overloaded),
            (500, Fault::Failed),
            (503, Fault::Overloaded),
            (504, Fault::Timeout),
        ] {
            assert_eq!(Fault::of_status(status), fault, "{status}");
        }
        let told = Fault::Auth.client_message("The language model");
        assert_eq!(told, "The language model refused the hub's key; the operator's log has the details.");
    }
}
