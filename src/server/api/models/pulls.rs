//! The pulls of a running hub: one task per pull, observed through a watch channel.

use super::pull_table::{State, begin_loading};
use crate::assembly::{ActiveEngines, CLUSTER, EngineManager};
use crate::server::api::parts::ApiParts;
use crate::server::api::readers::ListenerPlace;
use crate::server::sessions::SessionParts;
use antiphon_registry::{Entry, Progress, PullTimeouts, Puller, Stage, Variant};
use antiphon_telemetry::with_causes;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Minimum interval between two progress events.
const EVERY: Duration = Duration::from_millis(100);

/// Starts a pull in the background. An error response if the model is already being pulled or two pulls are under way.
pub(super) fn start(
    api: &ApiParts,
    manager: Arc<EngineManager>,
    entry: Entry,
    variant: Variant,
) -> Result<State, Box<Response>> {
    let (reported, cancel) = api.pulls.begin(&entry.name)?;
    let state = reported.borrow().clone();
    let sessions = api.sessions.clone();
    let name = entry.name.clone();
    api.sessions.setup.tasks.spawn(async move {
        let last = tokio::select! {
            last = pulled(&sessions, &manager, &entry, &variant, &reported, &cancel) => last,
            () = sessions.setup.drain.cancelled() => {
                let message = "The hub was stopped. The partial download is kept, and the next pull resumes it.".into();
                State::Failed { message }
            }
        };
        match &last {
            State::Failed { message } => tracing::warn!(model = name, message, "the pull failed"),
            _ => tracing::info!(model = name, "pulled"),
        }
        reported.send_replace(last);
    });
    Ok(state)
}

/// Downloads the model, selects the engines again, and returns the final state.
async fn pulled(
    sessions: &SessionParts,
    manager: &Arc<EngineManager>,
    entry: &Entry,
    variant: &Variant,
    reported: &watch::Sender<State>,
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
                    reported.send_replace(State::Pulling(seen.borrow_and_update().clone()));
                }
            }
        }
    };
    match fetched.await {
        Ok(Some(())) => {}
        Ok(None) => return cancelled(),
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
    if !begin_loading(reported, cancel) {
        return cancelled();
    }
    let loading = manager.clone();
    match tokio::task::spawn_blocking(move || loading.load()).await {
        Ok(Ok(standing)) => settled(sessions, entry, variant, standing),
        Ok(Err(error)) => {
            tracing::warn!(model = entry.name, %error, "the model cannot be loaded");
            let why = error.0.first().map(|failure| failure.cause.to_string()).unwrap_or_default();
            State::Failed { message: format!("Installed, but it cannot be loaded: {why}") }
        }
        Err(_) => State::Failed { message: "Installed, but its engine failed during loading.".into() },
    }
}

fn cancelled() -> State {
    State::Failed { message: "Cancelled. What came is kept, and the next pull continues with it.".into() }
}

/// Sets the loaded engines for new sessions, and returns whether they include the model.
fn settled(sessions: &SessionParts, entry: &Entry, variant: &Variant, standing: ActiveEngines) -> State {
    let stage = entry.stage.to_string();
    let served = standing.served.iter().find(|served| served.stage == stage).cloned();
    sessions.models.serve(standing.served.clone());
    sessions.serve_with(standing.engines);
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
pub(super) fn events(
    sessions: &SessionParts,
    state: watch::Receiver<State>,
    may_change: bool,
    place: ListenerPlace,
) -> Response {
    let states = stream(sessions.edge.kill.clone(), state, may_change, place);
    Sse::new(states).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn stream(
    kill: CancellationToken,
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
                () = kill.cancelled() => return,
            }
        }
    }
}
