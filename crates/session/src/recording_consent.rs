//! Whether the person at the other end agrees to be recorded: decided once, or changed, while the session goes on.
//!
//! A transport that asks makes one and opens the session with it ([`super::Opening`]); the writer of the replay log waits for it. It
//! never asks anything itself.

use tokio::sync::watch;

/// See the module. Cheap to clone: all clones are one decision.
#[derive(Clone, Debug)]
pub struct RecordingConsent(watch::Sender<Option<bool>>);

impl RecordingConsent {
    /// Not decided yet: nothing is written until it is.
    pub fn undecided() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The person agrees, or does not (any more): then what was recorded is removed.
    pub fn decide(&self, agrees: bool) {
        self.0.send_replace(Some(agrees));
    }

    /// What was decided; `None`: nothing yet.
    pub fn decision(&self) -> Option<bool> {
        *self.0.borrow()
    }

    /// Follows the decision.
    pub(super) fn watch(&self) -> watch::Receiver<Option<bool>> {
        self.0.subscribe()
    }
}
