//! `POST /v1/audio/transcriptions` and `translations`: a sound file in, its words out, at once or as they are understood.
//!
//! The file is cut at its silences ([`super::cutting`]) and written down stretch by stretch, in order, each as an utterance
//! of a session would be, with the last words before it as a prompt. What was understood is streamed where the client
//! wants it.

use super::cutting::Stretch;
use super::error::ApiError;
use super::form::Form;
use super::listening::{self, Stretches};
use super::metering::MeteredRequest;
use super::parts::{SpeechParts, check};
use super::waiting::{self, Retry};
use super::written::PartialTranscript;
use crate::assembly::CLUSTER;
use crate::server::access::limits::{Charge, Count, Resource, Spender};
use crate::server::sessions::load::ApiRequests;
use antiphon_engine_api::Engines;
use antiphon_engine_api::stt::{Stt, SttError, SttOptions, Transcript, requested_language};
use antiphon_engine_api::vad::RATE;
use antiphon_engines::table::{EngineKind, EngineStage};
use antiphon_telemetry::Endpoint;
use antiphon_types::{BrownoutLevel, Samples};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

/// What a stretch may take beyond `stt.timeout_ms`, in its own lengths: slower is of no use to anybody.
const TIMES_ITS_LENGTH: u32 = 8;
/// Audio that an engine is given at a time: a tenth of a second, as a microphone would.
const PIECE: usize = RATE.hz() as usize / 10;
/// Characters of the transcript that the next stretch is prompted with: Whisper's prompt is as long.
const MOST_CONTEXT: usize = 200;

/// `POST /v1/audio/transcriptions`.
pub(super) async fn create(State(speech): State<Arc<SpeechParts>>, request: Request) -> Response {
    let metered = MeteredRequest::begin(&speech, Endpoint::Transcriptions);
    written_down(&speech, request, metered, false).await
}

/// `POST /v1/audio/translations`: the same in English, by engines that can.
pub(super) async fn translate(State(speech): State<Arc<SpeechParts>>, request: Request) -> Response {
    let metered = MeteredRequest::begin(&speech, Endpoint::Translations);
    written_down(&speech, request, metered, true).await
}

async fn written_down(
    speech: &SpeechParts,
    request: Request,
    mut metered: MeteredRequest,
    translate: bool,
) -> Response {
    let spender = Spender::of(&request);
    let begun = async {
        speech.check_place(&spender, BrownoutLevel::NoSpeechRequests)?;
        let mut form = Form::read(request, speech).await?;
        metered.place = Some(speech.admit(&spender)?);
        let engines = form.engines(speech).await?;
        form.translate = translate;
        form.language = spoken_language(engines.stt.as_ref(), form.language.as_deref())?;
        if translate && !engines.stt.translates() {
            return Err(no_translator(engines.stt.name()));
        }
        let longest = Duration::from_secs(u64::from(speech.config.max_audio_minutes) * 60);
        let duration = listening::duration(form.file.clone(), longest).await?;
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        check(speech, &spender, Resource::Transcription)?;
        let charge = spender.charge(Resource::Transcription, Count::TranscribedMs, ms);
        let mut listening = TranscriptionTask::new(speech, (form, engines), duration, longest, charge);
        listening.options.meter = metered.meter("stt", spender.requester(), &spender.consumer);
        Ok(listening)
    };
    let mut listening = match begun.await {
        Ok(begun) => begun,
        Err(error) => return ended::<ApiError>(metered, error),
    };
    let first = listening.next().await;
    if first.is_err() {
        // What fails with its first words was not served.
        listening.charge.waive();
    }
    if listening.form.stream {
        // An engine's failure is an HTTP status as long as nothing was sent.
        return match first {
            Err(error) => ended(metered, error),
            Ok(first) => Sse::new(events(listening, first, metered)).keep_alive(KeepAlive::new()).into_response(),
        };
    }
    let mut heard = first;
    loop {
        heard = match heard {
            Ok(Some(_)) => listening.next().await,
            Ok(None) => break,
            Err(error) => return ended(metered, error),
        };
    }
    metered.end("ok");
    listening.written.answer(&listening.form, listening.duration)
}

/// The language that the engine is asked for, of the client's.
fn spoken_language(stt: &dyn Stt, given: Option<&str>) -> Result<Option<String>, ApiError> {
    let Some(given) = given else { return Ok(None) };
    requested_language(stt, given)
        .map_err(|why| ApiError::invalid("invalid_value", "language", format!("Invalid 'language': {why}.")))
}

fn no_translator(engine: &str) -> ApiError {
    let message = format!(
        "'{engine}' writes down what is said and translates nothing: a multilingual Whisper does (GET /v1/models lists what a \
         request may name). POST /v1/audio/transcriptions writes it down as it was said."
    );
    ApiError::with(StatusCode::BAD_REQUEST, "unsupported_task", message)
}

fn ended<E: Into<ApiError>>(metered: MeteredRequest, error: E) -> Response {
    let error = error.into();
    metered.end(error.outcome());
    error.into_response()
}

/// One audio being written down.
struct TranscriptionTask {
    stt: Arc<dyn Stt>,
    stretches: Stretches,
    /// ConnectionSlots of files among the decoders.
    decoders: Option<Arc<Semaphore>>,
    load: ApiRequests,
    form: Form,
    /// As the file states it, or as much of it as was decoded, where that is more.
    duration: Duration,
    /// For the duration.
    charge: Charge,
    options: SttOptions,
    /// `stt.timeout_ms`.
    timeout: Duration,
    written: PartialTranscript,
}

impl TranscriptionTask {
    fn new(
        speech: &SpeechParts,
        (mut form, engines): (Form, Engines),
        duration: Duration,
        longest: Duration,
        charge: Charge,
    ) -> Self {
        let setup = speech.sessions.setup();
        let segments = !matches!(form.shape, super::form::Shape::Json | super::form::Shape::Text);
        let long = engines.stt.takes_long_stretches(segments);
        let stretches = listening::stretches(std::mem::take(&mut form.file), longest, engines.vad, long);
        let options = SttOptions {
            language: form.language.clone().or_else(|| setup.language.clone()),
            prompt: form.prompt.clone(),
            logprobs: form.logprobs,
            segments,
            temperature: form.temperature,
            translate: form.translate,
            ..SttOptions::default()
        };
        // A server elsewhere, and workers, have decoders of their own.
        let name = engines.stt.name();
        let is_remote = name == CLUSTER || EngineStage::Stt.kind(name).is_some_and(EngineKind::is_remote);
        Self {
            decoders: (!is_remote).then(|| speech.decoders.clone()),
            load: speech.sessions.load.stt_api.clone(),
            stt: engines.stt,
            stretches,
            form,
            duration,
            charge,
            written: PartialTranscript::new(&options),
            options,
            timeout: setup.stt_timeout,
        }
    }

    /// Writes down the next stretch; what it adds to the text. `None`: that was all.
    async fn next(&mut self) -> Result<Option<String>, ApiError> {
        let Some(Stretch { start, pcm }) = self.stretches.next().await? else { return Ok(None) };
        let n = Samples(pcm.len() as u64);
        let end = start + n;
        self.duration = self.duration.max(end.duration(RATE));
        self.charge.at_least(end.as_ms(RATE));
        let mut transcript = self.transcribe(&pcm).await?;
        self.options.speaker = transcript.speaker.take().or_else(|| self.options.speaker.take());
        let added = self.written.add(transcript, start, n);
        self.options.prompt = prompt(self.form.prompt.as_deref(), self.written.text());
        Ok(Some(added))
    }

    /// Waits for a decoder for as long as the client does.
    async fn transcribe(&self, pcm: &[i16]) -> Result<Transcript, ApiError> {
        let _place = match &self.decoders {
            Some(decoders) => Some(decoders.acquire().await.expect("the semaphore is never closed")),
            None => None,
        };
        let mut retry = Retry::within(waiting::STRETCH);
        loop {
            match self.attempt(pcm, retry.deadline()).await {
                Err(SttError::Busy { .. }) if retry.pause().await => {}
                // One elsewhere may have been slow this once.
                Err(error @ SttError::Timeout(_)) if self.decoders.is_none() => {
                    return Err(ApiError::overloaded(error.client_message()));
                }
                Err(error @ SttError::Timeout(_)) => {
                    tracing::warn!(%error, engine = self.stt.name(), "the engine is too slow for a stretch of a file");
                    return Err(ApiError::too_slow(self.stt.name(), &error));
                }
                done => return Ok(done?),
            }
        }
    }

    /// Gives up the wait for room in the engine's queue at `deadline`.
    async fn attempt(&self, pcm: &[i16], deadline: Instant) -> Result<Transcript, SttError> {
        let _counted = self.load.begin();
        let queued = timeout_at(deadline, self.stt.open_queued(self.options.clone())).await;
        let mut utterance = queued.map_err(|_| SttError::Busy { waiting: self.stt.waiting() })?.await?;
        let most = self.timeout + Samples(pcm.len() as u64).duration(RATE) * TIMES_ITS_LENGTH;
        let work = async {
            for piece in pcm.chunks(PIECE) {
                utterance.push(piece.to_vec()).await?;
            }
            utterance.finish().await
        };
        timeout(most, work).await.unwrap_or(Err(SttError::Timeout(most)))
    }
}

/// The prompt of the next stretch: the client's own, then the last words of the transcript.
fn prompt(given: Option<&str>, text: &str) -> Option<String> {
    let before = last_words(text, MOST_CONTEXT);
    let prompt = [given.unwrap_or_default(), before].join(" ");
    Some(prompt.trim().to_owned()).filter(|prompt| !prompt.is_empty())
}

/// The last `most` characters of a text, from the beginning of a word where words have blanks between them.
fn last_words(text: &str, most: usize) -> &str {
    match text.char_indices().rev().nth(most - 1) {
        Some((at, _)) if at > 0 => {
            let tail = &text[at..];
            tail.split_once(char::is_whitespace).map_or(tail, |(_, rest)| rest)
        }
        _ => text,
    }
}

fn events(
    mut listening: TranscriptionTask,
    first: Option<String>,
    metered: MeteredRequest,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::server::access::keys::Keys;
    use crate::server::access::limits::Limits;
    use crate::server::edge::client::Client;
    use antiphon_audio::wav;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use antiphon_types::Pcm;

    const SECONDS: fn(u64) -> Duration = Duration::from_secs;
    /// A stretch of ten seconds.
    static STRETCH: [i16; 160_000] = [1; 160_000];

    fn limits() -> Limits {
        Limits::new(LimitsConfig::default(), &Keys::default())
    }

    fn charge(limits: &Limits, ms: u64) -> Charge {
        let client = Client::direct([127, 0, 0, 1].into(), false);
        let spender = Spender { consumer: limits.consumer(None, client), client, owner: None };
        spender.charge(Resource::Transcription, Count::TranscribedMs, ms)
    }

    fn listening(stt: FakeStt, n_places: usize) -> TranscriptionTask {
        TranscriptionTask {
            stt: Arc::new(stt),
            stretches: listening::stretches(bytes::Bytes::new(), SECONDS(1), Arc::new(FakeVad), false),
            decoders: Some(Arc::new(Semaphore::new(n_places))),
            load: ApiRequests::default(),
            form: Form::default(),
            duration: SECONDS(10),
            charge: charge(&limits(), 10_000),
            options: SttOptions::default(),
            timeout: SECONDS(15),
            written: PartialTranscript::default(),
        }
    }

    fn slow(seconds: u64) -> FakeStt {
        FakeStt::hears(["all of it"]).delayed(SECONDS(seconds))
    }

    #[test]
    fn the_next_stretch_is_prompted_with_the_last_whole_words() {
        assert_eq!(prompt(None, ""), None);
        assert_eq!(prompt(Some("Names: Ann."), "").as_deref(), Some("Names: Ann."));
        let text = "word ".repeat(100);
        let prompted = prompt(Some("Names: Ann."), text.trim()).expect("a prompt");
        assert!(prompted.starts_with("Names: Ann. word word"), "{prompted}");
        assert!((190..=215).contains(&prompted.len()), "{}", prompted.len());
        assert_eq!(last_words("今天天气很好", 3), "气很好");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stretch_may_take_longer_the_longer_it_is() {
        let heard = listening(slow(90), 1).transcribe(&STRETCH).await.expect("heard");
        assert_eq!(heard.text, "all of it");
        let error = listening(slow(96), 1).transcribe(&STRETCH).await.expect_err("too slow");
        assert_eq!(error.code, "engine_too_slow");
        assert!(error.message.contains("'fake'"), "{}", error.message);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_a_decoder_asks_again() {
        let stt = slow(0).refusing(100);
        assert_eq!(listening(stt, 1).transcribe(&STRETCH).await.expect("heard").text, "all of it");
        let stt = slow(0).refusing(usize::MAX);
        assert!(listening(stt, 1).transcribe(&STRETCH).await.expect_err("given up").is_busy());
    }

    #[tokio::test]
    async fn a_file_that_states_too_little_is_charged_for_what_it_holds() {
        let limits = limits();
        let speech = Pcm { rate: RATE, samples: vec![9_000; 3 * RATE.hz() as usize] };
        let mut task = TranscriptionTask {
            stretches: listening::stretches(wav::write(&speech).into(), SECONDS(60), Arc::new(FakeVad), false),
            duration: SECONDS(1),
            charge: charge(&limits, 1_000),
            ..listening(FakeStt::hears(["all of it"]), 1)
        };
        while task.next().await.expect("it is written down").is_some() {}
        let reported = task.duration.as_secs_f64();
        drop(task);
        let usage = serde_json::to_value(limits.usage(None)).expect("JSON");
        let charged = usage[0]["total"]["transcription_seconds"].as_f64().expect("seconds");
        for seconds in [reported, charged] {
            assert!((2.9..=3.0).contains(&seconds), "reported: {reported}, charged: {charged}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_take_so_many_decoders_and_wait_for_them_however_long() {
        let stt = slow(90);
        let listening = listening(stt.clone(), 3);
        let all = futures_util::future::join_all((0..12).map(|_| listening.transcribe(&STRETCH))).await;
        assert_eq!(all.iter().filter(|heard| heard.is_ok()).count(), 12);
        assert_eq!(stt.most_open(), 3);
    }
}
