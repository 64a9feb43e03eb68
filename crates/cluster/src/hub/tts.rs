//! Text to speech on workers, chunk by chunk.
//!
//! Where a worker dies in the middle of a chunk, another one goes on: an engine that gives the same speech again drops the
//! samples that were let out, another speaks the rest of the words ([`resume`](super::resume)). The seed is drawn here, so that it is
//! the same for both.

use super::attempt::{Attempt, Lost, MAX_ATTEMPTS, NotOpened, failure};
use super::resume::{SpeakingRate, cross_fade, cross_fade_samples};
use super::{Cluster, Counters};
use crate::frame::{Frame, Kind, pcm_samples};
use crate::message::{Failure, FailureKind, Request, Stage, TtsRequest};
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, Voice};
use antiphon_engine_api::{Fault, Hop};
use antiphon_types::{Pcm, SampleRate, Samples};
use async_stream::stream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rates that a worker may send.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=192_000;

/// Texts whose last worker is remembered.
const MAX_PASSAGES: usize = 1_024;

/// See the module. One for each hub.
pub(super) struct ClusterTts {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: Cluster,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rate: SpeakingRate,
    /// The worker of each text's last chunk, oldest first: an engine may condition a chunk on the one before.
    passages: VecDeque<(u64, String)>,
    /// The voices when there was a worker last.
    voices: Vec<Voice>,
}

impl ClusterTts {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { shared: Arc::new(Shared { cluster, state: Mutex::default() }) }
    }
}

impl Tts for ClusterTts {
    fn name(&self) -> &str {
        "cluster"
    }

    fn concurrency(&self) -> usize {
        self.shared.cluster.slots(Stage::Tts)
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
        let mut voices: Vec<Voice> = Vec::new();
        for voice in described.iter().flat_map(|stage| &stage.voices) {
            if !voices.iter().any(|known| known.id == voice.id) {
                voices.push(voice.clone());
            }
        }
        let mut state = self.shared.state();
        if voices.is_empty() {
            voices.clone_from(&state.voices);
        } else {
            state.voices.clone_from(&voices);
        }
        if voices.is_empty() {
            voices.push(Voice { id: "default".into(), name: "default".into(), language: "en".into() });
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
        Box::pin(async move {
            let mut changes = speech.shared.cluster.0.directory.changes();
            loop {
                changes.borrow_and_update();
                match speech.open().await {
                    // Adverts say when there is room.
                    Err(TtsError::Overloaded { .. }) if changes.changed().await.is_ok() => speech.except.clear(),
                    opened => return speech.run(opened).boxed(),
                }
            }
        })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One chunk.
struct Speech {
    shared: Arc<Shared>,
    request: TtsRequest,
    hop: Hop,
    model: Option<String>,
    /// Workers that had no room, or are gone.
    except: Vec<String>,
    n_attempts: u32,
    /// Workers that took the chunk and had no room after all.
    n_overloaded: u32,
    /// Samples that were let out.
    n_out: u64,
    /// Of the text of `request`: what was let out and kept.
    spoken: Samples,
    /// The end of what arrived, which is let out when more comes: for the cross-fade.
    kept: Option<Pcm>,
    /// Whether the next audio comes from another worker and begins with a word.
    fades: bool,
}

impl Speech {
    fn new(shared: Arc<Shared>, request: SpeechRequest) -> Self {
        let mut wire = TtsRequest::of(&request);
        wire.seed = Some(request.seed.unwrap_or_else(rand::random));
        let model = shared.cluster.0.directory.model_of_voice(&request.voice);
        Self {
            shared,
            request: wire,
            hop: request.hop,
            model,
            except: Vec::new(),
            n_attempts: 0,
            n_overloaded: 0,
            n_out: 0,
            spoken: Samples(0),
            kept: None,
            fades: false,
        }
    }

    async fn open(&mut self) -> Result<Attempt, TtsError> {
        let passage = self.request.passage.map(|(text, _)| text);
        let preferred = passage.and_then(|text| {
            let state = self.shared.state();
            state.passages.iter().find(|(known, _)| *known == text).map(|(_, worker)| worker.clone())
        });
        let request = Request::Tts(self.request.clone());
        let cluster = &self.shared.cluster;
        let opened = cluster.open(&request, self.model.as_deref(), preferred.as_deref(), &mut self.except).await;
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

    fn run(self, opened: Result<Attempt, TtsError>) -> impl futures_util::Stream<Item = Result<Pcm, TtsError>> + Send {
        stream! {
            let mut speech = self;
            let mut next = Some(opened);
            while let Some(opened) = next.take() {
                let mut attempt = match opened {
                    Ok(attempt) => attempt,
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                };
                let repeats = attempt.accepted.repeats;
                let mut rate = None;
                let lost = loop {
                    let (frame, at) = match attempt.receive().await {
                        Ok(received) => received,
                        Err(lost) => break lost,
                    };
                    match frame.kind {
                        Kind::Rate => match sample_rate(&frame) {
                            Some(announced) => rate = Some(announced),
                            None => {
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
                        }
                        Kind::End => {
                            if let Some(kept) = speech.kept.take() {
                                yield Ok(kept);
                            }
                            speech.measure(rate);
                            return;
                        }
                        Kind::Failed => {
                            let failure = failure(&frame);
                            if let Some(error) = speech.failed(failure, &attempt) {
                                yield Err(error);
                                return;
                            }
                            break Lost::Worker;
                        }
                        _ => {}
                    }
                };
                if let Err(error) = speech.may_retry(&lost) {
                    yield Err(error);
                    return;
                }
                speech.except.push(attempt.worker.id.clone());
                tracing::info!(from = attempt.worker.name, out = speech.n_out, "the chunk goes on on another worker");
                drop(attempt);
                if !speech.go_on(repeats, rate) {
                    // All words were spoken.
                    if let Some(kept) = speech.kept.take() {
                        yield Ok(kept);
                    }
                    return;
                }
                next = Some(speech.open().await);
            }
        }
    }

    /// What may be played now. Of an engine that does not repeat itself sample for sample the end is kept back for a
    /// cross-fade.
    fn let_out(&mut self, pcm: Pcm, repeats: Repeats) -> Vec<Pcm> {
        self.spoken.0 += pcm.samples.len() as u64;
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
        pieces
    }

    /// The error that ends the chunk; `None` if another worker may take it.
    fn failed(&mut self, failure: Failure, attempt: &Attempt) -> Option<TtsError> {
        let may_go_on = failure.kind == FailureKind::Overloaded && self.n_out == 0 && self.kept.is_none();
        if may_go_on && self.n_overloaded < 2 {
            // The engine's queue was full: that is no lost worker.
            self.n_overloaded += 1;
            self.n_attempts -= 1;
            return None;
        }
        Some(match failure.kind {
            FailureKind::Overloaded => TtsError::Overloaded { waiting: attempt.worker.in_use() },
            _ => failure.tts(&attempt.worker.name),
        })
    }

    fn may_retry(&self, lost: &Lost) -> Result<(), TtsError> {
        let counters = &self.shared.cluster.0.counters;
        match lost {
            Lost::Away => Err(TtsError::Away("the connection to NATS is lost".into())),
            Lost::TooLarge(n) => Err(Failure::too_large(*n).tts("")),
            Lost::Worker if self.n_attempts >= MAX_ATTEMPTS => {
                Counters::count(&counters.failed);
                Err(TtsError::Away(format!("{MAX_ATTEMPTS} workers were lost one after the other")))
            }
            Lost::Worker => {
                Counters::count(&counters.retried);
                Ok(())
            }
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
        let rest = self.shared.state().rate.rest(&self.request.text, self.spoken.duration(rate)).map(str::to_owned);
        self.fades = true;
        self.spoken = Samples(0);
        match rest {
            Some(rest) => {
                self.request.text = rest;
                true
            }
            None => false,
        }
    }

    fn measure(&self, rate: Option<SampleRate>) {
        if let Some(rate) = rate.filter(|_| self.n_attempts == 1) {
            self.shared.state().rate.measure(&self.request.text, self.spoken.duration(rate));
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
