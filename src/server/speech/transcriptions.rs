//! `POST /v1/audio/transcriptions`: a sound file in, its words out, at once or as they are understood.
//!
//! The file is cut at its silences ([`super::cutting`]) and written down stretch by stretch, in order, each as an utterance
//! of a session would be. What was understood is streamed where the client wants it.

use super::cutting::Stretch;
use super::error::ApiError;
use super::form::Form;
use super::listening;
use super::metering::Metered;
use super::written::Written;
use crate::server::app::App;
use crate::session::Engines;
use crate::stt::{Stt, SttError, SttOptions, Transcript};
use crate::telemetry::Endpoint;
use crate::units::Samples;
use crate::vad::RATE;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Audio that an engine is given at a time: a tenth of a second, as a microphone would.
const PIECE: usize = RATE.hz() as usize / 10;

/// The handler.
pub(super) async fn create(State(app): State<Arc<App>>, request: Request) -> Response {
    let mut metered = Metered::begin(&app, Endpoint::Transcriptions);
    let begun = async {
        metered.place = Some(app.speech.admit()?);
        let (form, engines) = Form::read(request, &app).await?;
        let longest = Duration::from_secs(u64::from(app.speech.config.max_audio_minutes) * 60);
        let duration = listening::duration(form.file.clone(), longest).await?;
        Ok(Listening::new(&app, (form, engines), duration, longest))
    };
    let mut listening = match begun.await {
        Ok(listening) => listening,
        Err(error) => return ended::<ApiError>(metered, error),
    };
    if listening.form.stream {
        // What is wrong with the engine is told with a status, as long as nothing was said.
        let first = listening.next().await;
        return match first {
            Err(error) => ended(metered, error),
            Ok(first) => Sse::new(events(listening, first, metered)).keep_alive(KeepAlive::new()).into_response(),
        };
    }
    loop {
        match listening.next().await {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => return ended(metered, error),
        }
    }
    metered.end("ok");
    listening.written.answer(&listening.form, listening.duration)
}

/// `POST /v1/audio/translations`: into English, which no engine here can.
pub(super) async fn translate(State(app): State<Arc<App>>) -> Response {
    let metered = Metered::begin(&app, Endpoint::Translations);
    let message = format!(
        "'{}' writes down what is said and translates nothing; POST /v1/audio/transcriptions does that.",
        app.setup().engines.stt.name()
    );
    ended(metered, ApiError::with(StatusCode::BAD_REQUEST, "unsupported_task", message))
}

fn ended<E: Into<ApiError>>(metered: Metered, error: E) -> Response {
    let error = error.into();
    metered.end(error.outcome());
    error.into_response()
}

/// One audio being written down.
struct Listening {
    stt: Arc<dyn Stt>,
    stretches: mpsc::Receiver<Result<Stretch, ApiError>>,
    form: Form,
    duration: Duration,
    options: SttOptions,
    patience: Duration,
    written: Written,
}

impl Listening {
    fn new(app: &App, (mut form, engines): (Form, Engines), duration: Duration, longest: Duration) -> Self {
        let setup = app.setup();
        let stretches = listening::stretches(std::mem::take(&mut form.file), longest, engines.vad);
        let options = SttOptions {
            language: form.language.clone().or_else(|| setup.language.clone()),
            prompt: form.prompt.clone(),
            logprobs: form.logprobs,
            segments: !matches!(form.shape, super::form::Shape::Json | super::form::Shape::Text),
            temperature: form.temperature,
            ..SttOptions::default()
        };
        Self {
            stt: engines.stt,
            stretches,
            form,
            duration,
            options,
            patience: setup.stt_timeout,
            written: Written::default(),
        }
    }

    /// Writes down the next stretch; what it adds to the text. `None`: that was all.
    async fn next(&mut self) -> Result<Option<String>, ApiError> {
        let Some(stretch) = self.stretches.recv().await else { return Ok(None) };
        let Stretch { start, pcm } = stretch?;
        let n = Samples(pcm.len() as u64);
        let mut transcript = self.transcribe(&pcm).await?;
        self.options.speaker = transcript.speaker.take().or_else(|| self.options.speaker.take());
        Ok(Some(self.written.add(transcript, start, n)))
    }

    /// No step may take longer than an utterance of a session may.
    async fn transcribe(&self, pcm: &[i16]) -> Result<Transcript, SttError> {
        let mut utterance = self.within(self.stt.open(self.options.clone())).await?;
        for piece in pcm.chunks(PIECE) {
            self.within(utterance.push(piece.to_vec())).await?;
        }
        self.within(utterance.finish()).await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, SttError>>) -> Result<T, SttError> {
        timeout(self.patience, work).await.unwrap_or(Err(SttError::Timeout(self.patience)))
    }
}

fn events(
    mut listening: Listening,
    first: Option<String>,
    metered: Metered,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let event = |data: Value| Ok(Event::default().data(data.to_string()));
    async_stream::stream! {
        let mut next: Result<_, ApiError> = Ok(first);
        loop {
            match next {
                Ok(Some(delta)) => {
                    if !delta.is_empty() {
                        yield event(json!({"type": "transcript.text.delta", "delta": delta}));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    metered.end(error.outcome());
                    yield event(json!({"error": error.object()}));
                    return;
                }
            }
            next = listening.next().await;
        }
        metered.end("ok");
        let mut done = json!({"type": "transcript.text.done", "text": listening.written.text()});
        if listening.form.logprobs {
            done["logprobs"] = listening.written.logprobs().into();
        }
        yield event(done);
    }
}
