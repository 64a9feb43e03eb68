//! Kinds of upstream failure, and the message that a client receives for each.
//!
//! An engine's error holds the details (addresses, the server's message, names of settings), which are logged for the
//! operator. A client receives [`Fault::client_message`]: which stage failed, how, and what to do.

/// A kind of upstream failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server rejected the hub's key (401, 403).
    Auth,
    /// The server could not be reached.
    Unreachable,
    /// The connection broke before the answer was complete.
    BrokenOff,
    /// The server did not answer in time.
    Timeout,
    /// The server is overloaded (429, 503).
    Overloaded,
    /// The server rejected the request (another 4xx status, or a redirect).
    Refused,
    /// The server's response is invalid.
    BadAnswer,
    /// The server failed (another 5xx status), or a local engine failed.
    Failed,
    /// The engine is not set up on this machine.
    Unavailable,
}

/// Code that a client reads where engines run on other machines and none of them can be reached, or their server failed before
/// and is not asked now: `Away` of the ports' errors.
pub const ENGINE_UNAVAILABLE: &str = "engine_unavailable";

/// What a client reads where engines run on other machines and none of them can be reached. `stage` as in
/// [`Fault::client_message`].
pub(crate) fn away(stage: &str) -> String {
    format!("{stage} is not available at the moment: no worker or server can be reached. Try again soon.")
}

impl Fault {
    /// The kind of failure for an HTTP status that is not a success.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Auth,
            408 | 504 => Self::Timeout,
            429 | 503 => Self::Overloaded,
            300..=499 => Self::Refused,
            _ => Self::Failed,
        }
    }

    /// The message for a client. `stage` names the stage at the start of a sentence, such as "The language model".
    pub fn client_message(self, stage: &str) -> String {
        let what = match self {
            Self::Auth => "refused the hub's key; the operator's log has the details",
            Self::Unreachable | Self::BrokenOff => {
                "cannot be reached; try again soon. The operator's log has the details"
            }
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
        let message = Fault::Auth.client_message("The language model");
        assert_eq!(message, "The language model refused the hub's key; the operator's log has the details.");
    }
}
