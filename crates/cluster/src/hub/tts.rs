//! Text to speech on workers, chunk by chunk.
//!
//! Where a worker dies in the middle of a chunk, another one goes on: an engine that gives the same speech again drops the
//! samples that were let out, another speaks the rest of the words ([`resume`](super::resume)). The seed is drawn here, so that it is
//! the same for both. Where the engine of a worker fails before its first sound, another worker is asked, too.

use super::attempt::{Attempt, AttemptLoss, AttemptRequest, MAX_ATTEMPTS, NotOpened, failure};
use super::resume::{SpeakingRate, cross_fade, cross_fade_samples};
use super::{Cluster, Counters};
use crate::frame::{Frame, Kind, pcm_samples};
use crate::message::{Failure, FailureKind, Request, Stage, TtsRequest};
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, UNKNOWN_VOICE, Voice};
use antiphon_engine_api::{Fault, Hop};
use antiphon_types::{Pcm, SampleRate, Samples};
use async_stream::stream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Rates that a worker may send.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=192_000;

/// Voices whose speaking rate is remembered.
const MAX_VOICES: usize = 256;

/// The longest wait for sound from a worker that answers otherwise.
const SOUND_DEADLINE: Duration = Duration::from_secs(120);

/// The longest sound of a chunk: what any other speech server may send, 30 s and 0.5 s a character.
const LONGEST: (Duration, Duration) = (Duration::from_secs(30), Duration::from_millis(500));

/// Texts whose last worker is remembered.
const MAX_PASSAGES: usize = 1_024;

/// See the module. One for each hub.
pub(super) struct ClusterTts {
    shared: Arc<RemoteVoices>,
}

struct RemoteVoices {
    cluster: Cluster,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By voice.
    rates: HashMap<String, SpeakingRate>,
    /// The worker of each text's last chunk, oldest first: an engine may condition a chunk on the one before.
    passages: VecDeque<(u64, String)>,
    /// The voices when there was a worker last.
    voices: Vec<Voice>,
}

impl ClusterTts {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { shared: Arc::new(RemoteVoices { cluster, state: Mutex::default() }) }
    }
}

impl Tts for ClusterTts {
    fn name(&self) -> &str {
        "cluster"
    }

    fn concurrency(&self) -> usize {
        self.shared.cluster.slots(Stage::Tts)
    }

    fn waiting(&self) -> usize {
        self.shared.cluster.requests(Stage::Tts).1
    }

    fn in_service(&self) -> usize {
        self.shared.cluster.requests(Stage::Tts).0
    }

    fn marks(&self) -> Vec<String> {
        let serving = self.shared.cluster.0.directory.serving(Stage::Tts);
        let mut marks: Vec<String> = serving
            .iter()
            .filter_map(|worker| worker.stage(Stage::Tts))
            .flat_map(|stage| stage.marks.clone())
            .collect();
        marks.sort();
        marks.dedup();
        marks
    }

    fn voices(&self) -> Vec<Voice> {
        let mut serving = self.shared.cluster.0.directory.serving(Stage::Tts);
        // The order must not depend on who answered first.
        serving.sort_by(|one, other| one.name.cmp(&other.name).then(one.id.cmp(&other.id)));
        let main = self.shared.cluster.0.directory.model_of_voice("");
        let mut described: Vec<_> = serving.iter().filter_map(|worker| worker.stage(Stage::Tts)).collect();
        described.sort_by_key(|stage| Some(&stage.model) != main.as_ref());
        let mut known = HashSet::new();
        let all = described.iter().flat_map(|stage| &stage.voices);
        let mut voices: Vec<Voice> = all.filter(|voice| known.insert(&voice.id)).cloned().collect();
        let mut state = self.shared.state();
        if voices.is_empty() {
            voices.clone_from(&state.voices);
        } else {
            state.voices.clone_from(&voices);
        }
        if voices.is_empty() {
            voices.push(Voice { id: UNKNOWN_VOICE.into(), name: UNKNOWN_VOICE.into(), language: "en".into() });
        }
        voices
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let speech = Speech::new(self.shared.clone(), request);
        stream! {
            let mut speech = speech;
            let opened = speech.open().await;
            for await pcm in speech.run(opened) {
                yield pcm;
            }
        }
        .boxed()
    }

    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        let mut speech = Speech::new(self.shared.clone(), request);
        speech.request.queued = true;
        Box::pin(async move {
            let cluster = speech.shared.cluster.clone();
            let first_in_line = cluster.0.queues[Stage::Tts as usize].acquire().await;
            let opened = speech.open_when_there_is_room().await;
            drop(first_in_line);
            speech.run(opened).boxed()
        })
    }
}

impl RemoteVoices {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One chunk.
struct Speech {
    shared: Arc<RemoteVoices>,
    request: TtsRequest,
    hop: Hop,
    model: Option<String>,
    /// Workers that took the chunk and broke, or had no room for it after all.
    except: Vec<String>,
    n_attempts: u32,
    /// Workers that took the chunk and had no room after all.
    n_overloaded: u32,
    /// The error of the engine that failed before the first sound: the result, unless another worker takes the chunk.
    failure: Option<TtsError>,
    /// The worker whose attempt was given up, until another attempt is open.
    given_up: Option<String>,
    /// Samples that were let out.
    n_out: u64,
    /// Of the text of `request`: what was let out and kept.
    spoken: Samples,
    /// The end of what arrived, which is let out when more comes: for the cross-fade.
    kept: Option<Pcm>,
    /// Whether the next audio comes from another worker and begins with a word, or where the last one broke off.
    fades: bool,
    /// The beginning of that audio while it is shorter than a cross-fade.
    early: Vec<i16>,
    rate: Option<SampleRate>,
    /// The longest sound that the text can have.
    longest: Duration,
    /// When a listener will have heard all that was let out, and what came before; `None`: it is not played while it is spoken.
    sound_until: Option<Instant>,
}

impl Speech {
    fn new(shared: Arc<RemoteVoices>, request: SpeechRequest) -> Self {
        let mut wire = TtsRequest::of(&request);
        wire.seed = Some(request.seed.unwrap_or_else(rand::random));
        let model = shared.cluster.0.directory.model_of_voice(&request.voice);
        let n_chars = u32::try_from(request.text.chars().count()).unwrap_or(u32::MAX);
        let longest = LONGEST.0 + LONGEST.1.saturating_mul(n_chars);
        Self {
            shared,
            request: wire,
            sound_until: request.unplayed.map(|unplayed| Instant::now() + unplayed),
            hop: request.hop,
            model,
            except: Vec::new(),
            n_attempts: 0,
            n_overloaded: 0,
            failure: None,
            given_up: None,
            n_out: 0,
            spoken: Samples(0),
            kept: None,
            fades: false,
            early: Vec::new(),
            rate: None,
            longest,
        }
    }

    async fn open(&mut self) -> Result<Attempt, TtsError> {
        let passage = self.request.passage.map(|(text, _)| text);
        let preferred = passage.and_then(|text| {
            let state = self.shared.state();
            state.passages.iter().find(|(known, _)| *known == text).map(|(_, worker)| worker.clone())
        });
        if let Some(until) = self.sound_until {
            self.request.heard_on(until.saturating_duration_since(Instant::now()));
        }
        let request = Request::Tts(self.request.clone());
        let opening = AttemptRequest {
            request: &request,
            model: self.model.as_deref(),
            preferred: preferred.as_deref(),
            sound_until: self.sound_until,
        };
        let opened = self.shared.cluster.open(&opening, &self.except).await;
        let attempt = opened.map_err(|error| match error {
            NotOpened::Busy(waiting) => TtsError::Overloaded { waiting },
            NotOpened::Away(why) => TtsError::Away(why),
            NotOpened::Failed(failure, worker) => failure.tts(&worker.name),
        })?;
        self.n_attempts += 1;
        if let Some(text) = passage {
            let mut state = self.shared.state();
            state.passages.retain(|(known, _)| *known != text);
            if state.passages.len() == MAX_PASSAGES {
                state.passages.pop_front();
            }
            state.passages.push_back((text, attempt.worker.id.clone()));
        }
        Ok(attempt)
    }

    /// Opens an attempt once a worker has room for it: adverts say when.
    async fn open_when_there_is_room(&mut self) -> Result<Attempt, TtsError> {
        let mut changes = self.shared.cluster.0.directory.changes();
        loop {
            changes.borrow_and_update();
            match self.open().await {
                Err(TtsError::Overloaded { .. }) if changes.changed().await.is_ok() => {}
                opened => return opened,
            }
        }
    }

    /// Opens another attempt. A queued request waits for room, [`SOUND_DEADLINE`] at most.
    async fn reopen(&mut self) -> Result<Attempt, TtsError> {
        if !self.request.queued {
            return self.open().await;
        }
        let opened = timeout(SOUND_DEADLINE, self.open_when_there_is_room()).await;
        opened.unwrap_or(Err(TtsError::Timeout(SOUND_DEADLINE)))
    }

    fn run(self, opened: Result<Attempt, TtsError>) -> impl futures_util::Stream<Item = Result<Pcm, TtsError>> + Send {
        stream! {
            let mut speech = self;
            let mut next = Some(opened);
            while let Some(opened) = next.take() {
                let mut attempt = match opened {
                    Ok(attempt) => attempt,
                    Err(error) => {
                        yield Err(speech.failure.take().unwrap_or(error));
                        return;
                    }
                };
                if let Some(from) = speech.given_up.take() {
                    Counters::count(&speech.shared.cluster.0.counters.retried);
                    tracing::info!(from, out = speech.n_out, "the chunk continues on another worker");
                }
                speech.failure = None;
                let repeats = attempt.accepted.repeats;
                if repeats == Repeats::Never && speech.request.skip_samples > 0 {
                    // It would skip other words than those that were spoken.
                    drop(attempt);
                    if !speech.rate.is_some_and(|rate| speech.speak_rest(rate)) {
                        if let Some(kept) = speech.kept.take() {
                            yield Ok(kept);
                        }
                        return;
                    }
                    next = Some(speech.reopen().await);
                    continue;
                }
                let mut rate = None;
                let mut was_full = false;
                let lost = loop {
                    let (frame, at) = match timeout(SOUND_DEADLINE, attempt.receive()).await {
                        Ok(Ok(received)) => received,
                        Ok(Err(lost)) => break lost,
                        Err(_) => {
                            yield Err(TtsError::Timeout(SOUND_DEADLINE));
                            return;
                        }
                    };
                    match frame.kind {
                        Kind::Rate => match sample_rate(&frame) {
                            Some(announced) if rate.is_none() => {
                                rate = Some(announced);
                                speech.rate = rate;
                            }
                            _ => {
                                yield Err(speech.bad_answer(&attempt, "the rate of its audio is impossible"));
                                return;
                            }
                        },
                        Kind::Audio => {
                            let Some(rate) = rate else {
                                yield Err(speech.bad_answer(&attempt, "its audio has no rate"));
                                return;
                            };
                            if speech.n_out == 0 && speech.kept.is_none() {
                                let network = Attempt::network(attempt.opened_at, &frame, at);
                                speech.hop.set(&attempt.worker.name, network, speech.n_attempts - 1);
                            }
                            let pcm = Pcm { rate, samples: pcm_samples(&frame.payload).collect() };
                            for pcm in speech.let_out(pcm, repeats) {
                                yield Ok(pcm);
                            }
                            if speech.spoken.duration(rate) > speech.longest {
                                yield Err(speech.bad_answer(&attempt, "its speech does not end"));
                                return;
                            }
                        }
                        Kind::End => {
                            for rest in speech.flush() {
                                yield Ok(rest);
                            }
                            speech.measure(rate);
                            return;
                        }
                        Kind::Failed => {
                            let failure = failure(&frame);
                            was_full = failure.kind == FailureKind::Overloaded;
                            if let Some(error) = speech.failed(failure, &attempt) {
                                yield Err(error);
                                return;
                            }
                            break AttemptLoss::Worker;
                        }
                        _ => {}
                    }
                };
                if let Err(error) = speech.may_retry(&lost) {
                    yield Err(error);
                    return;
                }
                if !was_full {
                    // Those that had no room before may have some now.
                    speech.except.clear();
                }
                // One that is lost is not offered again, unless it comes back. Of a connection no worker is at fault.
                if !attempt.worker.lost.is_cancelled() && !matches!(lost, AttemptLoss::Away) {
                    speech.except.push(attempt.worker.id.clone());
                }
                speech.given_up = Some(attempt.worker.name.clone());
                drop(attempt);
                if !speech.go_on(repeats, rate) {
                    // All words were spoken.
                    if let Some(kept) = speech.kept.take() {
                        yield Ok(kept);
                    }
                    return;
                }
                next = Some(speech.reopen().await);
            }
        }
    }

    /// What may be played now. Of an engine that does not repeat itself sample for sample the end is kept back for a
    /// cross-fade.
    fn let_out(&mut self, mut pcm: Pcm, repeats: Repeats) -> Vec<Pcm> {
        self.spoken.0 += pcm.samples.len() as u64;
        if self.fades {
            let mut samples = std::mem::take(&mut self.early);
            samples.extend_from_slice(&pcm.samples);
            if self.kept.as_ref().is_some_and(|kept| kept.rate == pcm.rate && samples.len() < kept.samples.len()) {
                self.early = samples;
                return Vec::new();
            }
            pcm.samples = samples;
        }
        let mut pieces = match self.kept.take() {
            Some(kept) if self.fades => cross_fade(kept, pcm),
            Some(mut kept) if kept.rate == pcm.rate => {
                kept.samples.extend_from_slice(&pcm.samples);
                vec![kept]
            }
            Some(kept) => vec![kept, pcm],
            None => vec![pcm],
        };
        self.fades = false;
        if repeats != Repeats::Exactly
            && let Some(last) = pieces.last_mut()
        {
            let at = last.samples.len().saturating_sub(cross_fade_samples(last.rate));
            self.kept = Some(Pcm { rate: last.rate, samples: last.samples.split_off(at) });
        }
        pieces.retain(|piece| !piece.is_empty());
        self.n_out += pieces.iter().map(|piece| piece.samples.len() as u64).sum::<u64>();
        if let Some(until) = &mut self.sound_until {
            *until = (*until).max(Instant::now()) + pieces.iter().map(Pcm::duration).sum::<Duration>();
        }
        pieces
    }

    /// What is left at the end.
    fn flush(&mut self) -> Vec<Pcm> {
        let early = std::mem::take(&mut self.early);
        match (self.kept.take(), self.rate.filter(|_| !early.is_empty())) {
            (Some(kept), Some(rate)) => cross_fade(kept, Pcm { rate, samples: early }),
            (kept, _) => kept.into_iter().collect(),
        }
    }

    /// The error that ends the chunk; `None` if another worker may take it.
    fn failed(&mut self, failure: Failure, attempt: &Attempt) -> Option<TtsError> {
        let may_go_on = self.n_out == 0 && self.kept.is_none();
        if failure.kind == FailureKind::Overloaded {
            if may_go_on && self.n_overloaded < 2 {
                // The engine's queue was full: that is no lost worker.
                self.n_overloaded += 1;
                self.n_attempts -= 1;
                return None;
            }
            return Some(TtsError::Overloaded { waiting: attempt.worker.in_use() });
        }
        let is_of_worker = failure.kind.is_of_worker();
        let error = failure.tts(&attempt.worker.name);
        if may_go_on && is_of_worker && self.n_attempts < MAX_ATTEMPTS {
            tracing::warn!(worker = attempt.worker.name, %error, "a worker's engine failed");
            self.failure = Some(error);
            return None;
        }
        Some(error)
    }

    fn may_retry(&mut self, lost: &AttemptLoss) -> Result<(), TtsError> {
        match lost {
            // While the listener has sound to hear the connection may come back.
            AttemptLoss::Away
                if self.n_attempts < MAX_ATTEMPTS && self.sound_until.is_some_and(|until| until > Instant::now()) =>
            {
                Ok(())
            }
            AttemptLoss::Away => Err(TtsError::Away("the connection to NATS is lost".into())),
            AttemptLoss::TooLarge(n) => Err(Failure::too_large(*n).tts("")),
            AttemptLoss::Worker | AttemptLoss::Missing if self.n_attempts >= MAX_ATTEMPTS => {
                Counters::count(&self.shared.cluster.0.counters.failed);
                Err(TtsError::Away(format!("{MAX_ATTEMPTS} workers failed or were lost, one after the other")))
            }
            AttemptLoss::Worker | AttemptLoss::Missing => Ok(()),
        }
    }

    /// Prepares the request for the next worker; `false` if nothing is left to speak.
    fn go_on(&mut self, repeats: Repeats, rate: Option<SampleRate>) -> bool {
        let Some(rate) = rate.filter(|_| self.n_out > 0 || self.kept.is_some()) else { return true };
        if repeats != Repeats::Never {
            // What is kept comes again, and is faded over.
            self.request.skip_samples = self.n_out;
            self.fades = true;
            return true;
        }
        self.speak_rest(rate)
    }

    /// Asks for the words that were not spoken; `false` if there are none.
    fn speak_rest(&mut self, rate: SampleRate) -> bool {
        let spoken = self.at_normal_speed(self.spoken.duration(rate));
        let speaks = self.shared.state().rates.get(&self.request.voice).copied().unwrap_or_default();
        let rest = speaks.rest(&self.request.text, spoken).map(str::to_owned);
        self.fades = true;
        self.spoken = Samples(0);
        self.request.skip_samples = 0;
        match rest {
            Some(rest) => {
                self.request.text = rest;
                true
            }
            None => false,
        }
    }

    fn at_normal_speed(&self, time: Duration) -> Duration {
        if self.request.speed > 0.0 { time.mul_f32(self.request.speed) } else { time }
    }

    fn measure(&self, rate: Option<SampleRate>) {
        if let Some(rate) = rate.filter(|_| self.n_attempts == 1) {
            let spoken = self.at_normal_speed(self.spoken.duration(rate));
            let mut state = self.shared.state();
            if state.rates.len() >= MAX_VOICES && !state.rates.contains_key(&self.request.voice) {
                state.rates.clear();
            }
            state.rates.entry(self.request.voice.clone()).or_default().measure(&self.request.text, spoken);
        }
    }

    fn bad_answer(&self, attempt: &Attempt, what: &str) -> TtsError {
        let message = format!("the worker {} sends nonsense: {what}", attempt.worker.name);
        TtsError::Remote { fault: Fault::BadAnswer, message, source: None }
    }
}

fn sample_rate(frame: &Frame) -> Option<SampleRate> {
    let hz = u32::from_be_bytes(frame.payload.as_ref().try_into().ok()?);
    RATES.contains(&hz).then(|| SampleRate::new(hz))
}
