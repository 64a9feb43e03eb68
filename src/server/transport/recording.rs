//! Whether a call is recorded, as far as its peer decides about that.
//!
//! What opens a call's session makes a [`CallRecording`] and opens the session with its consent. [`super::calls`] shows it;
//! [`super::call_control`], the keys of a phone and the model's tool decide about it. It writes no recording and asks nothing.

use antiphon_session::{RecordingConsent, SessionConfig};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module. Cheap to clone: all clones are of one call.
#[derive(Clone, Debug, Default)]
pub(super) enum CallRecording {
    /// The call is not recorded.
    #[default]
    Off,
    /// It is recorded, and its peer is not asked.
    Unasked,
    /// It is recorded once its peer has heard a notice, without a question. The peer may object.
    Announced(Arc<Mutex<RecordingConsent>>),
    /// It is recorded if its peer agrees. Decisions are made one at a time.
    Asked(Arc<Mutex<RecordingConsent>>),
}

/// What is shown with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordingState {
    /// It is not recorded.
    None,
    /// Its peer hears a notice, or is asked and has not decided.
    Waiting,
    Recorded,
    /// Its peer does not agree, or no longer does.
    Refused,
}

/// Why a decision about a recording is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConsentError {
    #[error("this call has no question about a recording")]
    NotAsked,
    #[error("the recording of this call was refused or has ended, and does not begin again")]
    Ended,
}

impl CallRecording {
    /// That of a call whose peer is not asked, with these settings of its session.
    pub(super) fn unasked(config: &SessionConfig) -> Self {
        if config.record.is_empty() { Self::Off } else { Self::Unasked }
    }

    /// That of a call whose peer is asked, and has not decided.
    pub(super) fn asked() -> Self {
        Self::Asked(Arc::new(Mutex::new(RecordingConsent::undecided())))
    }

    /// That of a call whose peer is to hear a notice, and is not asked.
    pub(super) fn announced() -> Self {
        Self::Announced(Arc::new(Mutex::new(RecordingConsent::undecided())))
    }

    /// What the call's session waits for before it is recorded; `None`: it is recorded as others are. The session of a
    /// call that is not recorded waits for what is refused already.
    pub(super) fn consent(&self) -> Option<RecordingConsent> {
        match self {
            Self::Off => {
                let refused = RecordingConsent::undecided();
                refused.decide(false);
                Some(refused)
            }
            Self::Unasked => None,
            Self::Announced(consent) | Self::Asked(consent) => Some(locked(consent).clone()),
        }
    }

    /// Whether its peer is asked.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// Whether it waits for nothing any more.
    pub(super) fn is_decided(&self) -> bool {
        match self {
            Self::Off | Self::Unasked => true,
            Self::Announced(consent) | Self::Asked(consent) => locked(consent).decision().is_some(),
        }
    }

    /// The peer agrees, or does not, or no longer does. A recording that was refused does not begin again. A peer that
    /// hears a notice and is not asked can only refuse.
    ///
    /// # Errors
    /// [`ConsentError`].
    pub(super) fn decide(&self, agrees: bool) -> Result<(), ConsentError> {
        let consent = match self {
            Self::Asked(consent) => consent,
            Self::Announced(consent) if !agrees => consent,
            Self::Off | Self::Unasked | Self::Announced(_) => return Err(ConsentError::NotAsked),
        };
        let consent = locked(consent);
        if agrees && consent.decision() == Some(false) {
            return Err(ConsentError::Ended);
        }
        consent.decide(agrees);
        Ok(())
    }

    /// The peer has heard the whole notice: a call whose peer is not asked is recorded from now on.
    pub(super) fn notice_was_said(&self) {
        if let Self::Announced(consent) = self {
            decide_first(consent, true);
        }
    }

    /// A machine hears the notice in the place of the peer: what followed from the notice alone is taken back.
    pub(super) fn notice_was_unheard(&self) {
        match self {
            Self::Off | Self::Unasked => {}
            Self::Announced(consent) => locked(consent).decide(false),
            Self::Asked(consent) => decide_first(consent, false),
        }
    }

    /// The peer has not decided in time, or the notice is not said: that refuses. A decision that was made stands.
    pub(super) fn refuse_undecided(&self) {
        if let Self::Announced(consent) | Self::Asked(consent) = self {
            decide_first(consent, false);
        }
    }

    /// What is shown with the call.
    pub(super) fn state(&self) -> RecordingState {
        match self {
            Self::Off => RecordingState::None,
            Self::Unasked => RecordingState::Recorded,
            Self::Announced(consent) | Self::Asked(consent) => match locked(consent).decision() {
                None => RecordingState::Waiting,
                Some(true) => RecordingState::Recorded,
                Some(false) => RecordingState::Refused,
            },
        }
    }
}

/// Decides what is not decided.
fn decide_first(consent: &Mutex<RecordingConsent>, agrees: bool) {
    let consent = locked(consent);
    if consent.decision().is_none() {
        consent.decide(agrees);
    }
}

fn locked(consent: &Mutex<RecordingConsent>) -> MutexGuard<'_, RecordingConsent> {
    consent.lock().expect("no panic while locked")
}

#[cfg(test)]
mod tests {
    use super::RecordingState::{Recorded, Refused, Waiting};
    use super::*;

    #[test]
    fn a_decision_may_be_withdrawn_and_a_refusal_stands() {
        let recording = CallRecording::asked();
        let consent = recording.consent().unwrap();
        assert_eq!((recording.state(), consent.decision()), (Waiting, None));
        assert_eq!(recording.decide(true), Ok(()));
        assert_eq!((recording.state(), consent.decision()), (Recorded, Some(true)));
        recording.refuse_undecided();
        assert_eq!(recording.state(), Recorded);
        assert_eq!(recording.decide(false), Ok(()));
        assert_eq!(recording.decide(false), Ok(()), "again");
        assert_eq!(recording.decide(true), Err(ConsentError::Ended));
        assert_eq!((recording.state(), consent.decision()), (Refused, Some(false)));
    }

    #[test]
    fn a_call_whose_peer_is_not_asked_takes_no_decision() {
        let mut config = SessionConfig::default();
        assert_eq!(CallRecording::unasked(&config).state(), RecordingState::None);
        config.record = "recordings".into();
        let recording = CallRecording::unasked(&config);
        assert_eq!((recording.state(), recording.decide(false)), (Recorded, Err(ConsentError::NotAsked)));
        assert!(recording.consent().is_none() && !recording.is_asked());
        let off = CallRecording::default().consent();
        assert_eq!(off.and_then(|consent| consent.decision()), Some(false), "its session writes nothing");
    }

    #[test]
    fn a_call_with_a_notice_waits_for_it_and_its_peer_may_object() {
        let recording = CallRecording::announced();
        let consent = recording.consent().unwrap();
        assert_eq!((recording.state(), recording.decide(true)), (Waiting, Err(ConsentError::NotAsked)));
        recording.notice_was_said();
        assert_eq!((recording.state(), consent.decision()), (Recorded, Some(true)));
        recording.refuse_undecided();
        assert_eq!(recording.state(), Recorded);
        assert_eq!(recording.decide(false), Ok(()));
        recording.notice_was_said();
        assert_eq!((recording.state(), consent.decision()), (Refused, Some(false)));
    }

    #[test]
    fn a_notice_that_a_machine_heard_does_not_record_and_a_decision_stands() {
        let recording = CallRecording::announced();
        recording.notice_was_said();
        recording.notice_was_unheard();
        assert_eq!(recording.state(), Refused);
        let recording = CallRecording::asked();
        recording.decide(true).unwrap();
        recording.notice_was_unheard();
        assert_eq!(recording.state(), Recorded);
        let recording = CallRecording::asked();
        recording.notice_was_unheard();
        assert_eq!(recording.state(), Refused);
    }
}
