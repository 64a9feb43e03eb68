//! The pairs on virtual time, with engines that fail, hang or are slow.

use super::*;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_engine_api::stt::{OpeningUtterance, SttOptions, SttUtterance, Transcript};
use antiphon_engine_api::tts::{Passage, SpeechRequest, SpokenPart, TextRequest, TextSpeech, Voice};
use antiphon_engine_api::{FallbackCounts, Fault, Hop};
use antiphon_types::chat::{ChatRequest, Finish};
use antiphon_types::{Meter, Pcm, SampleRate, Samples};
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use std::sync::atomic::AtomicUsize;
use tokio::sync::mpsc;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(400);

/// How an engine of any stage behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Answers(Duration),
    Fails(Duration),
    /// The server refuses the request itself.
    Refuses,
    Hangs,
    BreaksOff,
    /// It begins to answer, and nothing more comes.
    Stalls,
    /// Its circuit breaker is open, or no worker can be reached.
    Away,
    /// It has no room.
    Full,
}

/// Why an engine gives no output.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Gone,
    Refused,
    Away,
    Full,
}

/// An engine of any stage, which counts its requests and those that were dropped before their first output.
#[derive(Clone)]
struct Engine {
    name: &'static str,
    manner: Arc<Mutex<Manner>>,
    n_asked: Arc<AtomicUsize>,
    /// Utterances that were opened to wait for room.
    n_queued: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<usize>>>,
    voices: Arc<Mutex<Vec<String>>>,
}

impl Engine {
    fn new(name: &'static str, manner: Manner) -> Self {
        Self {
            name,
            manner: Arc::new(Mutex::new(manner)),
            n_asked: Arc::default(),
            n_queued: Arc::default(),
            heard: Arc::default(),
            voices: Arc::default(),
        }
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    fn n_asked(&self) -> usize {
        self.n_asked.load(Ordering::Relaxed)
    }

    fn report(&self) -> Option<Upstreams> {
        let mut report = Upstreams::unguarded(self.name);
        if *self.manner.lock().unwrap() == Manner::Away {
            report.engines[0].state = BreakerState::Open;
        }
        Some(report)
    }

    /// `Ok`: the name; `BreaksOff` and `Stalls` answer at once.
    fn output<E: Send + 'static>(
        &self,
        failed: fn(Failure) -> E,
    ) -> impl Future<Output = Result<&'static str, E>> + Send + use<E> {
        self.n_asked.fetch_add(1, Ordering::Relaxed);
        let name = self.name;
        let manner = *self.manner.lock().unwrap();
        async move {
            match manner {
                Manner::Answers(after) => {
                    sleep(after).await;
                    Ok(name)
                }
                Manner::Fails(after) => {
                    sleep(after).await;
                    Err(failed(Failure::Gone))
                }
                Manner::Refuses => Err(failed(Failure::Refused)),
                Manner::Away => Err(failed(Failure::Away)),
                Manner::Full => Err(failed(Failure::Full)),
                Manner::Hangs => std::future::pending().await,
                Manner::BreaksOff | Manner::Stalls => Ok(name),
            }
        }
    }
}

fn llm_error(failure: Failure) -> LlmError {
    match failure {
        Failure::Refused => LlmError::Refused { status: 400, message: "it is too long".into() },
        Failure::Away => LlmError::Away("gone".into()),
        Failure::Gone | Failure::Full => LlmError::Transport("gone".into()),
    }
}

fn tts_error(failure: Failure) -> TtsError {
    match failure {
        Failure::Away => TtsError::Away("gone".into()),
        Failure::Full => TtsError::Overloaded { waiting: 1 },
        Failure::Gone => TtsError::Remote { fault: Fault::Unreachable, message: "gone".into(), source: None },
        Failure::Refused => TtsError::Remote { fault: Fault::Refused, message: "gone".into(), source: None },
    }
}

fn stt_error(failure: Failure) -> SttError {
    match failure {
        Failure::Away => SttError::Away("gone".into()),
        Failure::Full => SttError::Busy { waiting: 1 },
        Failure::Gone => SttError::Remote { fault: Fault::Unreachable, message: "gone".into(), source: None },
        Failure::Refused => SttError::Remote { fault: Fault::Refused, message: "gone".into(), source: None },
    }
}

fn turn_error(failure: Failure) -> TurnModelError {
    match failure {
        Failure::Away => TurnModelError::Away("gone".into()),
        Failure::Full => TurnModelError::Busy { waiting: 1 },
        Failure::Gone | Failure::Refused => TurnModelError::Failed("gone".into()),
    }
}

impl Llm for Engine {
    fn name(&self) -> &str {
        self.name
    }

    fn hedge_delay(&self) -> Option<Duration> {
        Some(DELAY)
    }

    fn stream(&self, _: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let output = self.output(llm_error);
        let breaks = *self.manner.lock().unwrap() == Manner::BreaksOff;
        let end = match breaks {
            true => Err(llm_error(Failure::Gone)),
            false => Ok(LlmDelta::Done { finish: Finish::Stop, usage: None }),
        };
        let first = output.map(|name| name.map(|name| LlmDelta::Text(name.into())));
        stream::once(first).chain(stream::iter([end])).boxed()
    }
}

impl Tts for Engine {
    fn name(&self) -> &str {
        self.name
    }

    fn hedge_delay(&self) -> Option<Duration> {
        Some(DELAY)
    }

    fn upstreams(&self) -> Option<Upstreams> {
        self.report()
    }

    fn voices(&self) -> Vec<Voice> {
        let voice = |id: &str| Voice { id: id.into(), name: id.into(), language: "en".into() };
        vec![voice(self.name), voice("both")]
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        self.voices.lock().unwrap().push(format!("{}: {}", request.voice, request.text));
        let length = self.name.len();
        let sound = move |_| Pcm { rate: SampleRate::HZ_16000, samples: vec![1; length] };
        stream::once(self.output(tts_error).map(move |made| made.map(sound))).boxed()
    }

    /// `BreaksOff` and `Stalls` name the first word and do not speak it.
    fn speak_text(&self, _: TextRequest) -> Option<TextSpeech> {
        let (words, mut pieces) = mpsc::channel::<String>(2);
        let output = self.output(tts_error);
        let manner = *self.manner.lock().unwrap();
        let speech = async_stream::stream! {
            pieces.recv().await;
            match output.await {
                Ok(name) => {
                    yield Ok(SpokenPart::Pieces(1));
                    match manner {
                        Manner::BreaksOff => {
                            yield Err(tts_error(Failure::Gone));
                            return;
                        }
                        Manner::Stalls => std::future::pending().await,
                        _ => {}
                    }
                    let sound = Pcm { rate: SampleRate::HZ_16000, samples: vec![1; name.len()] };
                    yield Ok(SpokenPart::Audio(sound.clone()));
                    while pieces.recv().await.is_some() {
                        yield Ok(SpokenPart::Pieces(1));
                        yield Ok(SpokenPart::Audio(sound.clone()));
                    }
                }
                Err(error) => yield Err(error),
            }
        };
        Some(TextSpeech { words, speech: speech.boxed() })
    }
}

struct Ear {
    engine: Engine,
    n_samples: usize,
}

impl Stt for Engine {
    fn name(&self) -> &str {
        self.name
    }

    fn hedge_delay(&self) -> Option<Duration> {
        Some(DELAY)
    }

    fn upstreams(&self) -> Option<Upstreams> {
        self.report()
    }

    fn open(&self, _: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let manner = *self.manner.lock().unwrap();
        let refusal = match manner {
            Manner::Away => Some(Failure::Away),
            Manner::Full => Some(Failure::Full),
            _ => None,
        };
        if let Some(failure) = refusal {
            return ready(Err(stt_error(failure))).boxed();
        }
        ready(Ok(Box::new(Ear { engine: self.clone(), n_samples: 0 }) as Box<dyn SttUtterance>)).boxed()
    }

    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        self.n_queued.fetch_add(1, Ordering::Relaxed);
        ready(self.open(options)).boxed()
    }
}

impl TurnModel for Engine {
    fn name(&self) -> &str {
        self.name
    }

    fn span(&self) -> Samples {
        Samples(self.name.len() as u64)
    }

    /// The length of the engine's name.
    fn judge(&self, _: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        self.output(turn_error).map(|name| name.map(|name| name.len() as f32)).boxed()
    }
}

impl SttUtterance for Ear {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        if *self.engine.manner.lock().unwrap() == Manner::Away {
            return ready(Err(stt_error(Failure::Away))).boxed();
        }
        self.n_samples += pcm.len();
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(None)).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.engine.heard.lock().unwrap().push(self.n_samples);
        let output = self.engine.output(stt_error);
        output.map(|name| name.map(|name| Transcript { text: name.into(), ..Transcript::default() })).boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move { self.provisional().await }.boxed()
    }
}

async fn answer(llm: &dyn Llm) -> (Vec<String>, Option<LlmError>, Option<String>) {
    let request = ChatRequest { meter: Meter::requested(), ..ChatRequest::default() };
    let mut said = Vec::new();
    let mut deltas = llm.stream(request.clone());
    while let Some(delta) = deltas.next().await {
        match delta {
            Ok(LlmDelta::Text(text)) => said.push(text),
            Ok(_) => {}
            Err(error) => return (said, Some(error), None),
        }
    }
    (said, None, request.meter.fallback().map(|name| name.to_string()))
}

fn llms(primary: Manner, second: Manner) -> (Arc<dyn Llm>, Engine, Engine) {
    let primary = Engine::new("primary", primary);
    let second = Engine::new("second", second);
    (with_llm(Arc::new(primary.clone()), Some(Arc::new(second.clone()))), primary, second)
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_is_replaced_at_once_and_recorded() {
    let (llm, _, second) = llms(Manner::Fails(5 * MS), Manner::Answers(20 * MS));
    let begun = Instant::now();
    assert_eq!(answer(&*llm).await.0, ["second"]);
    assert_eq!(begun.elapsed(), 25 * MS);
    assert_eq!(answer(&*llm).await.2.as_deref(), Some("second"));
    let report = llm.upstreams().expect("two engines");
    assert_eq!((report.n_fallbacks, report.n_hedges), (2, 0));
    let roles: Vec<_> = report.engines.iter().map(|engine| (engine.engine.as_str(), engine.role)).collect();
    assert_eq!(roles, [("primary", Role::Primary), ("second", Role::Fallback)]);
    second.set(Manner::Fails(MS));
    assert!(answer(&*llm).await.1.is_some(), "both fail");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_has_begun_stays_where_it_is() {
    let (llm, _, second) = llms(Manner::BreaksOff, Manner::Answers(MS));
    let (said, error, _) = answer(&*llm).await;
    assert_eq!(said, ["primary"]);
    assert!(error.is_some());
    assert_eq!(second.n_asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_model_refuses_goes_to_no_other() {
    let (llm, _, second) = llms(Manner::Refuses, Manner::Answers(MS));
    assert!(answer(&*llm).await.1.is_some());
    assert_eq!(second.n_asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_model_is_hedged_once_and_the_first_to_answer_wins() {
    let (llm, primary, second) = llms(Manner::Hangs, Manner::Answers(20 * MS));
    let begun = Instant::now();
    assert_eq!(answer(&*llm).await.0, ["second"]);
    assert_eq!(begun.elapsed(), DELAY + 20 * MS);
    primary.set(Manner::Answers(DELAY + 10 * MS));
    let (said, _, fallback) = answer(&*llm).await;
    assert_eq!((said, fallback), (vec!["primary".to_owned()], None));
    assert_eq!((primary.n_asked(), second.n_asked()), (2, 2));
    let report = llm.upstreams().expect("two engines");
    assert_eq!((report.n_fallbacks, report.n_hedges), (1, 2));
    // The one fails after the other was asked, in both orders.
    primary.set(Manner::Fails(DELAY + MS));
    assert_eq!(answer(&*llm).await.0, ["second"]);
    primary.set(Manner::Answers(3 * DELAY));
    second.set(Manner::Fails(MS));
    assert_eq!(answer(&*llm).await.0, ["primary"]);
}

#[tokio::test(start_paused = true)]
async fn hedged_requests_have_a_budget() {
    let (llm, _, second) = llms(Manner::Answers(2 * DELAY), Manner::Hangs);
    for _ in 0..105 {
        assert_eq!(answer(&*llm).await.0, ["primary"]);
    }
    let n = second.n_asked();
    assert!((9..=11).contains(&n), "{n} of 105: 5 at once, and 5 % of all");
}

#[tokio::test(start_paused = true)]
async fn without_a_fallback_the_same_engine_is_asked_again_when_late_and_not_when_it_fails() {
    let engine = Engine::new("primary", Manner::Hangs);
    let llm = with_llm(Arc::new(engine.clone()), None);
    let work = async {
        sleep(DELAY - MS).await;
        engine.set(Manner::Answers(5 * MS));
    };
    let (answered, ()) = tokio::join!(answer(&*llm), work);
    assert_eq!((answered.0, answered.2), (vec!["primary".to_owned()], None));
    assert_eq!(engine.n_asked(), 2);
    engine.set(Manner::Fails(MS));
    assert!(answer(&*llm).await.1.is_some());
    assert_eq!(engine.n_asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_fallback_hears_the_utterance_from_its_beginning() {
    for provisional_first in [false, true] {
        let primary = Engine::new("primary", Manner::Fails(MS));
        let second = Engine::new("second", Manner::Answers(MS));
        let stt = with_stt(Arc::new(primary.clone()), Some(Arc::new(second.clone())));
        let options = SttOptions { meter: Meter::requested(), ..SttOptions::default() };
        let mut utterance = stt.open(options.clone()).await.expect("opened");
        utterance.push(vec![0; 300]).await.expect("taken");
        if provisional_first {
            assert_eq!(utterance.provisional().await.expect("a transcript").text, "second");
        }
        utterance.push(vec![0; 200]).await.expect("taken");
        assert_eq!(utterance.finish().await.expect("a transcript").text, "second");
        let expected = if provisional_first { vec![300, 500] } else { vec![500] };
        assert_eq!(*second.heard.lock().unwrap(), expected);
        assert_eq!(primary.n_asked(), 1, "a fallback keeps its utterance");
        assert_eq!(options.meter.fallback().as_deref(), Some("second"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_transcript_is_asked_for_at_the_fallback() {
    let primary = Engine::new("primary", Manner::Hangs);
    let second = Engine::new("second", Manner::Answers(MS));
    let stt = with_stt(Arc::new(primary), Some(Arc::new(second)));
    let mut utterance = stt.open(SttOptions::default()).await.expect("opened");
    utterance.push(vec![0; 300]).await.expect("taken");
    let begun = Instant::now();
    assert_eq!(utterance.finish().await.expect("a transcript").text, "second");
    assert_eq!(begun.elapsed(), DELAY + MS);
}

async fn speak(tts: &dyn Tts, text: &str, passage: Passage) -> usize {
    let text = text.into();
    let voice = "primary".into();
    let request = SpeechRequest { text, voice, passage: Some(passage), ..SpeechRequest::default() };
    tts.speak(request).map(|pcm| pcm.map_or(0, |pcm| pcm.samples.len())).fold(0, |sum, n| ready(sum + n)).await
}

fn voices(primary: Manner) -> (Arc<dyn Tts>, Engine, Engine) {
    let primary = Engine::new("primary", primary);
    let second = Engine::new("second", Manner::Answers(MS));
    let fallback: (Arc<dyn Tts>, String) = (Arc::new(second.clone()), "second".into());
    (with_tts(Arc::new(primary.clone()), Some(fallback)), primary, second)
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_text_stays_with_the_fallback_in_its_own_voice() {
    let (tts, primary, second) = voices(Manner::Answers(MS));
    let text = Passage::first();
    assert_eq!(speak(&*tts, "one", text).await, "primary".len());
    primary.set(Manner::Fails(MS));
    assert_eq!(speak(&*tts, "two", text.at(1)).await, "second".len());
    primary.set(Manner::Answers(MS));
    assert_eq!(speak(&*tts, "three", text.at(2)).await, "second".len());
    assert_eq!(speak(&*tts, "four", Passage::first()).await, "primary".len());
    assert_eq!(*second.voices.lock().unwrap(), ["second: two", "second: three"]);
    let queued = SpeechRequest { text: "five".into(), voice: "both".into(), ..SpeechRequest::default() };
    primary.set(Manner::Fails(MS));
    assert_eq!(tts.speak_queued(queued).await.filter_map(|pcm| ready(pcm.ok())).count().await, 1);
    assert_eq!(second.voices.lock().unwrap().last().map(String::as_str), Some("both: five"));
    assert_eq!(tts.upstreams().expect("two engines").n_fallbacks, 3);
}

#[tokio::test(start_paused = true)]
async fn words_that_were_not_spoken_go_to_the_fallback_as_sentences() {
    let by_second = vec!["second: One two.", "second: Three"];
    for (manner, expected) in [
        (Manner::Fails(MS), by_second.clone()),
        (Manner::Hangs, by_second.clone()),
        (Manner::BreaksOff, by_second.clone()),
        (Manner::Stalls, by_second),
        (Manner::Answers(DELAY), vec![]),
    ] {
        let (tts, _, second) = voices(manner);
        let voice = "primary".into();
        let passage = Some(Passage::first());
        let (hop, meter) = Default::default();
        let request = TextRequest { voice, speed: 1.0, seed: None, passage, instructions: None, hop, meter };
        let TextSpeech { words, speech } = tts.speak_text(request).expect("it takes words");
        let writes = async move {
            for word in ["One", "two.", "Three"] {
                words.send(word.into()).await.expect("taken");
                sleep(20 * MS).await;
            }
        };
        let (parts, ()) = tokio::join!(speech.collect::<Vec<_>>(), writes);
        let n_pieces: usize = parts
            .iter()
            .map(|part| match part {
                Ok(SpokenPart::Pieces(n)) => *n,
                Ok(SpokenPart::Audio(_)) => 0,
                Err(error) => panic!("{error}"),
            })
            .sum();
        assert_eq!(n_pieces, 3, "{manner:?}");
        assert_eq!(*second.voices.lock().unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_with_the_smaller_engines_ask_the_larger_ones_while_those_are_away() {
    let primary = Engine::new("primary", Manner::Answers(MS));
    let second = Engine::new("second", Manner::Away);
    let with = with_stt(Arc::new(primary.clone()), Some(Arc::new(second.clone())));
    let stt = with.smaller().expect("it has a fallback");
    let transcript = async || {
        let utterance = stt.open(SttOptions::default()).await.expect("opened");
        utterance.finish().await.expect("a transcript").text
    };
    assert_eq!(transcript().await, "primary");
    let voice: (Arc<dyn Tts>, String) = (Arc::new(second.clone()), "second".into());
    let tts = with_tts(Arc::new(primary.clone()), Some(voice)).smaller().expect("it has a fallback");
    assert_eq!(speak(&*tts, "one", Passage::first()).await, "primary".len());
    second.set(Manner::Answers(MS));
    assert_eq!(transcript().await, "second");
    assert_eq!(speak(&*tts, "two", Passage::first()).await, "second".len());
}

#[tokio::test(start_paused = true)]
async fn sessions_with_the_smaller_engines_never_ask_the_larger_ones() {
    let primary = Engine::new("primary", Manner::Answers(MS));
    let second = Engine::new("second", Manner::Answers(MS));
    let with = with_stt(Arc::new(primary.clone()), Some(Arc::new(second.clone())));
    let stt = with.smaller().expect("it has a fallback");
    let options = SttOptions { meter: Meter::requested(), ..SttOptions::default() };
    let mut utterance = stt.open(options.clone()).await.expect("opened");
    utterance.push(vec![0; 300]).await.expect("taken");
    assert_eq!(utterance.finish().await.expect("a transcript").text, "second");
    assert_eq!(options.meter.fallback().as_deref(), Some("second"));
    let voice: (Arc<dyn Tts>, String) = (Arc::new(second.clone()), "second".into());
    let with_voice = with_tts(Arc::new(primary.clone()), Some(voice));
    let tts = with_voice.smaller().expect("it has a fallback");
    assert_eq!(speak(&*tts, "one", Passage::first()).await, "second".len());
    assert_eq!(*second.voices.lock().unwrap(), ["second: one"]);
    assert_eq!(primary.n_asked(), 0);
    for report in [with.upstreams(), with_voice.upstreams(), tts.upstreams()] {
        let expected = FallbackCounts { brownout: 1, ..FallbackCounts::default() };
        let report = report.expect("two engines");
        assert_eq!((report.fallbacks, report.n_fallbacks), (expected, 1), "they are counted once, with the others");
    }
    assert!(with_stt(Arc::new(primary.clone()), None).smaller().is_none());
    assert!(with_tts(Arc::new(primary), None).smaller().is_none());
}

/// An utterance of a recognizer, opened at once or by its queue.
async fn transcribed(stt: &dyn Stt, is_queued: bool, options: SttOptions) -> Result<String, SttError> {
    let opening = if is_queued { stt.open_queued(options).await } else { stt.open(options) };
    let mut utterance = opening.await?;
    utterance.push(vec![0; 300]).await?;
    Ok(utterance.finish().await?.text)
}

#[tokio::test(start_paused = true)]
async fn the_hubs_own_engine_serves_what_no_worker_can() {
    let workers = Engine::new("workers", Manner::Answers(MS));
    let own = Engine::new("own", Manner::Answers(MS));
    let stt = with_own_stt(Arc::new(workers.clone()), Arc::new(own.clone()));
    let tts = with_own_tts(Arc::new(workers.clone()), Arc::new(own.clone()));
    let turn = with_own_turn(Arc::new(workers.clone()), Arc::new(own.clone()));
    for (manner, expected) in [(Manner::Answers(MS), "workers"), (Manner::Away, "own"), (Manner::Full, "own")] {
        workers.set(manner);
        let options = SttOptions { meter: Meter::requested(), ..SttOptions::default() };
        for is_queued in [false, true] {
            let text = transcribed(&*stt, is_queued, options.clone()).await.expect("a transcript");
            assert_eq!(text, expected, "{manner:?}");
        }
        assert_eq!(options.meter.fallback(), None, "a turn names no fallback");
        let request = SpeechRequest { text: "one".into(), voice: "workers".into(), ..SpeechRequest::default() };
        for speech in [tts.speak(request.clone()), tts.speak_queued(request).await] {
            let sound: Vec<_> = speech.collect().await;
            assert_eq!(sound.len(), 1);
            assert_eq!(sound[0].as_ref().expect("sound").samples.len(), expected.len(), "{manner:?}");
        }
        assert_eq!(turn.judge(Vec::new()).await.expect("judged"), expected.len() as f32, "{manner:?}");
    }
    let asked = own.voices.lock().unwrap().clone();
    assert_eq!(asked, vec!["workers: one"; 4], "the request goes on as it is");
}

#[tokio::test(start_paused = true)]
async fn an_utterance_that_loses_its_workers_goes_on_at_the_hubs_own_engine() {
    for is_queued in [false, true] {
        for lost_before in ["push", "provisional", "finish"] {
            let workers = Engine::new("workers", Manner::Answers(MS));
            let own = Engine::new("own", Manner::Answers(MS));
            let stt = with_own_stt(Arc::new(workers.clone()), Arc::new(own.clone()));
            let lose_before = |step: &str| {
                if step == lost_before {
                    workers.set(Manner::Away);
                }
            };
            let options = SttOptions { meter: Meter::requested(), hop: Hop::requested(), ..SttOptions::default() };
            let opening = match is_queued {
                true => stt.open_queued(options.clone()).await,
                false => stt.open(options.clone()),
            };
            let mut utterance = opening.await.expect("opened");
            utterance.push(vec![0; 300]).await.expect("taken");
            options.hop.set("worker", MS, 0);
            lose_before("push");
            utterance.push(vec![0; 200]).await.expect("taken");
            lose_before("provisional");
            let expected = if lost_before == "finish" { "workers" } else { "own" };
            assert_eq!(utterance.provisional().await.expect("a transcript").text, expected, "{lost_before}");
            lose_before("finish");
            assert_eq!(utterance.finish().await.expect("a transcript").text, "own", "{lost_before}");
            let heard = own.heard.lock().unwrap().clone();
            assert!(heard.iter().all(|n_samples| *n_samples == 500), "{lost_before}: {heard:?}");
            assert_eq!(own.n_queued.load(Ordering::Relaxed), usize::from(is_queued), "{lost_before}");
            assert_eq!(options.meter.fallback(), None, "a turn names no fallback");
            assert_eq!(options.hop.get(), None, "a turn names no lost worker");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_fails_at_is_the_clusters_affair() {
    let workers = Engine::new("workers", Manner::Fails(MS));
    let own = Engine::new("own", Manner::Answers(MS));
    let stt = with_own_stt(Arc::new(workers.clone()), Arc::new(own.clone()));
    transcribed(&*stt, false, SttOptions::default()).await.expect_err("it fails");
    let tts = with_own_tts(Arc::new(workers.clone()), Arc::new(own.clone()));
    assert_eq!(speak(&*tts, "one", Passage::first()).await, 0);
    let turn = with_own_turn(Arc::new(workers.clone()), Arc::new(own.clone()));
    turn.judge(Vec::new()).await.expect_err("it fails");
    // Neither is a late worker a reason to ask twice.
    workers.set(Manner::Answers(3 * DELAY));
    assert_eq!(transcribed(&*stt, false, SttOptions::default()).await.expect("a transcript"), "workers");
    assert_eq!(speak(&*tts, "two", Passage::first()).await, "workers".len());
    assert_eq!(own.n_asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn workers_and_the_hubs_own_engine_have_the_voices_and_the_room_of_both() {
    let workers = Engine::new("workers", Manner::Answers(MS));
    let own = Engine::new("own", Manner::Answers(MS));
    let tts = with_own_tts(Arc::new(workers.clone()), Arc::new(own.clone()));
    let ids: Vec<_> = tts.voices().into_iter().map(|voice| voice.id).collect();
    assert_eq!(ids, ["workers", "both", "own"]);
    tts.check_voice("own").expect("a voice of the hub");
    let refused = tts.check_voice("other").expect_err("a voice of neither");
    assert!(refused.contains("workers has workers, both") && refused.contains("own"), "{refused}");
    let alone: &dyn Tts = &own;
    assert_eq!(tts.concurrency(), 2 * alone.concurrency());
    assert!(tts.upstreams().is_none() && tts.smaller().is_none());
    let turn = with_own_turn(Arc::new(workers), Arc::new(own));
    assert_eq!(turn.span(), Samples("workers".len() as u64));
}
