//! The pulls of a running hub: one task per pull, observed through a watch channel.

use crate::server::app::App;
use crate::server::access::guard::refused;
use crate::server::api::turns::ListenerPlace;
use super::known::Models;
use crate::assembly::{ActiveEngines, CLUSTER, EngineManager, without_precision};
use antiphon_registry::{Entry, Progress, PullTimeouts, Puller, Stage, Variant};
use antiphon_telemetry::with_causes;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Maximum concurrent pulls; another is rejected with 429.
const MAX_PULLS: usize = 2;

/// Minimum interval between two progress events.
const EVERY: Duration = Duration::from_millis(100);

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
    fn is_last(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. })
    }

    /// The state as shown to a caller: only operators see why a pull failed.
    pub(super) fn shown(&self, may_change: bool) -> Self {
        match self {
            Self::Failed { .. } if !may_change => Self::Failed { message: super::IN_THE_LOG.into() },
            state => state.clone(),
        }
    }
}

impl Models {
    /// The state of each model's latest pull.
    pub(super) fn states(&self) -> BTreeMap<String, State> {
        let pulls = self.pulls.lock().expect("no panic while locked");
        pulls.iter().map(|(name, pull)| (name.clone(), pull.state.borrow().clone())).collect()
    }

    pub(super) fn watch(&self, name: &str) -> Option<watch::Receiver<State>> {
        self.pulls.lock().expect("no panic while locked").get(without_precision(name)).map(|pull| pull.state.clone())
    }

    /// Ends the pull of a model; false if none is running.
    pub(super) fn cancel(&self, name: &str) -> bool {
        let pulls = self.pulls.lock().expect("no panic while locked");
        let running = pulls.get(without_precision(name)).filter(|pull| pull.is_running());
        running.inspect(|pull| pull.cancel.cancel()).is_some()
    }

    /// Forgets a removed model: the state of its pull, and the reason why it could not be loaded.
    pub(super) fn forget(&self, name: &str) {
        self.served.rcu(|served| {
            let mut served = served.as_ref().clone();
            served
                .iter_mut()
                .for_each(|served| served.passed_over.retain(|passed| without_precision(&passed.model) != name));
            served
        });
        self.pulls.lock().expect("no panic while locked").remove(name);
    }

    fn begin(&self, name: &str) -> Result<(watch::Sender<State>, CancellationToken), Box<Response>> {
        let mut pulls = self.pulls.lock().expect("no panic while locked");
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

/// Starts a pull in the background. An error response if the model is already being pulled or [`MAX_PULLS`] is reached.
pub(super) fn start(
    app: &Arc<App>,
    manager: Arc<EngineManager>,
    entry: Entry,
    variant: Variant,
) -> Result<State, Box<Response>> {
    let (told, cancel) = app.models.begin(&entry.name)?;
    let state = told.borrow().clone();
    let task = app.clone();
    let name = entry.name.clone();
    app.setup.tasks.spawn(async move {
        let last = tokio::select! {
            last = pulled(&task, &manager, &entry, &variant, &told, &cancel) => last,
            () = task.setup.drain.cancelled() => {
                let message = "The hub was stopped. The partial download is kept, and the next pull resumes it.".into();
                State::Failed { message }
            }
        };
        match &last {
            State::Failed { message } => tracing::warn!(model = name, message, "the pull failed"),
            _ => tracing::info!(model = name, "pulled"),
        }
        told.send_replace(last);
    });
    Ok(state)
}

/// Downloads the model, selects the engines again, and returns the final state.
async fn pulled(
    app: &Arc<App>,
    manager: &Arc<EngineManager>,
    entry: &Entry,
    variant: &Variant,
    told: &watch::Sender<State>,
    cancel: &CancellationToken,
) -> State {
    let fetched = async {
        let puller = Puller::new(&manager.config().models, PullTimeouts::default())?;
        let (progress, mut seen) = watch::channel(Progress::default());
        let pull = puller.pull(entry, variant, &progress);
        tokio::pin!(pull);
        loop {
            tokio::select! {
                pulled = &mut pull => return pulled.map(Some),
                () = cancel.cancelled() => return Ok(None),
                Ok(()) = seen.changed() => {
                    told.send_replace(State::Pulling(seen.borrow_and_update().clone()));
                }
            }
        }
    };
    match fetched.await {
        Ok(Some(())) => {}
        Ok(None) => {
            let message = "Cancelled. What came is kept, and the next pull continues with it.".into();
            return State::Failed { message };
        }
        Err(error) => {
            tracing::warn!(model = entry.name, error = with_causes(&error), "the model cannot be fetched");
            return State::Failed { message: error.to_string() };
        }
    }
    if manager.on_workers(entry.stage) == Some(false) {
        let message = "Installed. Workers serve this stage: install it there to let it serve.".into();
        return State::Done { serves: false, message };
    }
    if !manager.takes_the_best(entry) {
        let key = if entry.stage == Stage::Turn { "model" } else { "engine" };
        let message = format!(
            "Installed. To let it serve, set {0}.{key} to \"auto\", name no other model, and restart the hub.",
            entry.stage
        );
        return State::Done { serves: false, message };
    }
    told.send_replace(State::Loading);
    let loading = manager.clone();
    match tokio::task::spawn_blocking(move || loading.load()).await {
        Ok(Ok(standing)) => settled(app, entry, variant, standing),
        Ok(Err(error)) => {
            tracing::warn!(model = entry.name, %error, "the model cannot be loaded");
            let why = error.0.first().map(|failure| failure.cause.to_string()).unwrap_or_default();
            State::Failed { message: format!("Installed, but it cannot be loaded: {why}") }
        }
        Err(_) => State::Failed { message: "Installed, but its engine failed during loading.".into() },
    }
}

/// Sets the loaded engines for new sessions, and returns whether they include the model.
fn settled(app: &App, entry: &Entry, variant: &Variant, standing: ActiveEngines) -> State {
    let stage = entry.stage.to_string();
    let served = standing.served.iter().find(|served| served.stage == stage).cloned();
    app.models.served.store(Arc::new(standing.served.clone()));
    app.serve_with(standing.engines);
    let name = format!("{}:{}", entry.name, variant.precision);
    let is_it = |model: &String| *model == name || *model == entry.name;
    let Some(served) = served else {
        return State::Done { serves: false, message: "Installed.".into() };
    };
    if served.model.as_ref().is_some_and(is_it) {
        let unchecked = match variant.n_unchecked() {
            0 => "",
            n if n == variant.files.len() => " No checksum is published for it: its size and format are right.",
            _ => " Not all of its files have a published checksum; those that have are right.",
        };
        return State::Done { serves: true, message: format!("It serves from the next conversation on.{unchecked}") };
    }
    match served.passed_over.into_iter().find(|passed| is_it(&passed.model)) {
        Some(passed) if passed.slow => State::Done {
            serves: false,
            message: format!("Installed. It is too slow for this machine: {}.", passed.why),
        },
        Some(passed) => State::Failed { message: format!("Installed, but it cannot be loaded: {}", passed.why) },
        None if served.engine == CLUSTER => {
            let message = "Installed. Workers serve this stage; it serves requests that none of them can take.".into();
            State::Done { serves: false, message }
        }
        None => {
            let better = served.model.unwrap_or(served.engine);
            State::Done { serves: false, message: format!("Installed. {better} ranks higher and continues to serve.") }
        }
    }
}

/// The states of a pull as server-sent events, up to its final state.
pub(super) fn events(app: Arc<App>, state: watch::Receiver<State>, may_change: bool, place: ListenerPlace) -> Response {
    let states = stream(app, state, may_change, place);
    Sse::new(states).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn stream(
    app: Arc<App>,
    mut state: watch::Receiver<State>,
    may_change: bool,
    place: ListenerPlace,
) -> impl Stream<Item = Result<Event, Infallible>> {
    async_stream::stream! {
        let _place = place;
        loop {
            let now = state.borrow_and_update().shown(may_change);
            let last = now.is_last();
            yield Ok(Event::default().event("pull").json_data(&now).expect("states serialize"));
            if last {
                return;
            }
            // Progress changes hundreds of times a second; a viewer needs only a few updates.
            tokio::time::sleep(EVERY).await;
            tokio::select! {
                changed = state.changed() => if changed.is_err() { return },
                () = app.kill.cancelled() => return,
            }
        }
    }
}
