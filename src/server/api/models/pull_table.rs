//! The pulls of this hub's models: the latest of each, as its task reports it and as clients see it.
//!
//! [`super::pulls`] writes it; the handlers read it.

use crate::assembly::without_precision;
use crate::server::edge::refusal::refused;
use antiphon_registry::Progress;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The error message for callers without operator rights: paths, addresses and settings are not exposed to them.
pub(super) const IN_THE_LOG: &str = "It failed; the operator's log has the details.";

/// Maximum concurrent pulls; another is rejected with 429.
const MAX_PULLS: usize = 2;

/// The latest pull of a model.
pub(super) struct Pull {
    state: watch::Receiver<State>,
    /// Ends it.
    cancel: CancellationToken,
}

impl Pull {
    fn is_running(&self) -> bool {
        !self.state.borrow().is_last()
    }
}

/// What became of a request to cancel a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelResult {
    /// The pull ends, and its model is not loaded.
    Cancelled,
    /// All files are there, and the model is being loaded: the pull goes on.
    IsLoading,
    /// No pull of the model is running.
    NotRunning,
}

/// The state of a pull.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(super) enum State {
    /// The files are being downloaded or verified.
    Pulling(Progress),
    /// The model is on disk and its engine is being loaded.
    Loading,
    /// The model is on disk.
    Done {
        /// Whether the next session uses it.
        serves: bool,
        /// The result for the user.
        message: String,
    },
    /// The pull or the load failed.
    Failed {
        /// The cause and a remedy.
        message: String,
    },
}

impl State {
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. })
    }

    /// The state as shown to a caller: only operators see why a pull failed.
    pub(super) fn shown(&self, may_change: bool) -> Self {
        match self {
            Self::Failed { .. } if !may_change => Self::Failed { message: IN_THE_LOG.into() },
            state => state.clone(),
        }
    }
}

/// The latest pull of each model; at most one entry per model of the registry.
#[derive(Default)]
pub(in crate::server) struct PullTable(Mutex<BTreeMap<String, Pull>>);

impl PullTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Pull>> {
        self.0.lock().expect("no panic while locked")
    }

    /// The state of each model's latest pull.
    pub(super) fn states(&self) -> BTreeMap<String, State> {
        let pulls = self.lock();
        pulls.iter().map(|(name, pull)| (name.clone(), pull.state.borrow().clone())).collect()
    }

    pub(super) fn watch(&self, name: &str) -> Option<watch::Receiver<State>> {
        self.lock().get(without_precision(name)).map(|pull| pull.state.clone())
    }

    /// Ends the pull of a model, as long as it fetches.
    pub(super) fn cancel(&self, name: &str) -> CancelResult {
        let pulls = self.lock();
        let Some(pull) = pulls.get(without_precision(name)) else { return CancelResult::NotRunning };
        // While the state is borrowed, the pull does not begin to load: see `begin_loading`.
        let state = pull.state.borrow();
        match &*state {
            State::Pulling(_) => {
                pull.cancel.cancel();
                CancelResult::Cancelled
            }
            State::Loading => CancelResult::IsLoading,
            State::Done { .. } | State::Failed { .. } => CancelResult::NotRunning,
        }
    }

    /// Forgets the pull of a removed model.
    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Begins the pull of a model. An error response if it is already being pulled or [`MAX_PULLS`] is reached.
    pub(super) fn begin(&self, name: &str) -> Result<(watch::Sender<State>, CancellationToken), Box<Response>> {
        let mut pulls = self.lock();
        if pulls.get(name).is_some_and(Pull::is_running) {
            let message = format!("{name} is already being pulled.");
            return Err(Box::new(refused(StatusCode::CONFLICT, "model_in_use", message)));
        }
        if pulls.values().filter(|pull| pull.is_running()).count() >= MAX_PULLS {
            let message = "Other models are being pulled. Try again when they are complete.";
            return Err(Box::new(refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)));
        }
        let (sender, state) = watch::channel(State::Pulling(Progress::default()));
        let cancel = CancellationToken::new();
        pulls.insert(name.into(), Pull { state, cancel: cancel.clone() });
        Ok((sender, cancel))
    }
}

/// Reports that the model of a pull is being loaded; false if the pull was cancelled before.
pub(super) fn begin_loading(reported: &watch::Sender<State>, cancel: &CancellationToken) -> bool {
    reported.send_if_modified(|state| {
        if cancel.is_cancelled() {
            return false;
        }
        *state = State::Loading;
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_cancelled_as_long_as_it_fetches() {
        let pulls = PullTable::default();
        assert_eq!(pulls.cancel("ears"), CancelResult::NotRunning);
        let (reported, cancel) = pulls.begin("ears").expect("none is running");
        assert_eq!((pulls.cancel("ears:f16"), cancel.is_cancelled()), (CancelResult::Cancelled, true));
        assert!(!begin_loading(&reported, &cancel), "all files came at the moment of the cancellation");
        reported.send_replace(State::Failed { message: "Cancelled.".into() });
        assert_eq!(pulls.cancel("ears"), CancelResult::NotRunning);

        let (reported, cancel) = pulls.begin("ears").expect("none is running");
        assert!(begin_loading(&reported, &cancel));
        assert_eq!((pulls.cancel("ears"), cancel.is_cancelled()), (CancelResult::IsLoading, false));
    }
}
