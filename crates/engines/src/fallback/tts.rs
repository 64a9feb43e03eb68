//! Voices: a chunk is taken over before its first sound, and the rest of its text follows it, so that the voice changes once.

use super::{Pair, Reason, StageError, Takeover, is_down, is_probing};
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::tts::{
    Passage, Repeats, SlotReport, SpeechRequest, SpokenPart, TextRequest, TextSpeech, Tts, TtsError, UNKNOWN_VOICE,
    Voice, VoiceLibrary, WORDS_AHEAD, check_voice, language_of,
};
use antiphon_types::Pcm;
use async_stream::stream;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Texts whose rest the fallback speaks that are remembered: more than are spoken at once.
const MAX_MOVED: usize = 1_024;
/// Words of a chunk of a text that came word by word, where no sentence ends before.
const MAX_CHUNK_WORDS: usize = 24;
/// A text that goes word by word is late when its first sentence has made no sound for this number of hedge delays: it
/// cannot be sent to two engines at once. Its first sounds are not measured, so that the delay is the configured one.
const DELAYS_OF_A_TEXT: u32 = 2;

type Sound = BoxStream<'static, Result<Pcm, TtsError>>;
/// A chunk's sound, once the chunk has its place in the engine's queue.
type QueuedSound = BoxFuture<'static, Sound>;
/// One of the ways to ask an engine.
type Ask = fn(&dyn Tts, SpeechRequest) -> QueuedSound;

/// See the module.
#[derive(Clone)]
pub(super) struct TtsPair {
    pair: Pair<dyn Tts>,
    /// The fallback's voice for those that it lacks.
    voice: String,
    /// Texts that the fallback speaks, the latest last.
    moved: Arc<Mutex<VecDeque<u64>>>,
    /// The fallback speaks everything, while it can be reached.
    has_all: bool,
}

impl TtsPair {
    pub(super) fn new(pair: Pair<dyn Tts>, voice: String) -> Self {
        Self { pair, voice, moved: Arc::default(), has_all: false }
    }

    fn has_moved(&self, passage: Option<Passage>) -> bool {
        let has_all = self.has_all && !is_down(self.pair.second.upstreams());
        has_all || passage.is_some_and(|passage| self.moved().contains(&passage.text()))
    }

    /// The fallback speaks this request, and the rest of its text.
    fn set_moved(&self, request: &SpeechRequest) {
        if self.pair.overflows() {
            return;
        }
        self.pair.note_fallback(&request.meter, self.pair.second.name());
        let Some(passage) = request.passage else { return };
        let mut moved = self.moved();
        if moved.len() >= MAX_MOVED {
            moved.pop_front();
        }
        if !moved.contains(&passage.text()) {
            moved.push_back(passage.text());
        }
    }

    fn moved(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request as the second engine gets it: in a voice that it has, without marks that it would read as words.
    fn adapted(&self, mut request: SpeechRequest) -> SpeechRequest {
        let Pair { primary, second, has_fallback, .. } = &self.pair;
        if !has_fallback || self.pair.overflows() {
            return request;
        }
        if second.check_voice(&request.voice).is_err() {
            request.voice.clone_from(&self.voice);
        }
        let known = second.marks();
        for mark in primary.marks().into_iter().filter(|mark| !known.contains(mark)) {
            let text = request.text.replace(&mark, "");
            if !text.trim().is_empty() {
                request.text = text;
            }
        }
        request
    }

    /// Passes a chunk's sound on: that of `primary`, the fallback's where it fails or is late. `None`: the fallback's.
    fn spoken(&self, request: SpeechRequest, primary_sound: Option<QueuedSound>, ask: Ask) -> Sound {
        let this = self.clone();
        stream! {
            let Pair { primary, second, has_fallback, .. } = &this.pair;
            let mut sound = if let Some(primary_sound) = primary_sound {
                let asked = begun(primary_sound);
                let once_more = || begun(ask(second.as_ref(), this.adapted(request.clone())));
                let delay = primary.hedge_delay();
                match this.pair.first(delay, || is_probing(primary.upstreams()), asked, once_more).await {
                    (Ok((first, sound)), is_second) => {
                        if is_second && *has_fallback {
                            this.set_moved(&request);
                        }
                        if let Some(first) = first {
                            yield Ok(first);
                        }
                        sound
                    }
                    (Err(error), _) => {
                        yield Err(error);
                        return;
                    }
                }
            } else {
                this.pair.count(if this.has_all { Reason::Brownout } else { Reason::Continued });
                this.set_moved(&request);
                ask(second.as_ref(), this.adapted(request)).await
            };
            while let Some(pcm) = sound.next().await {
                yield pcm;
            }
        }
        .boxed()
    }
}

impl Tts for TtsPair {
    fn name(&self) -> &str {
        self.pair.primary.name()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        Box::pin(async {
            let (primary, second) = tokio::join!(self.pair.primary.warm(), async {
                match self.pair.has_fallback {
                    true => self.pair.second.warm().await,
                    false => Ok(()),
                }
            });
            primary.and(second)
        })
    }

    fn concurrency(&self) -> usize {
        self.pair.total(|engine| engine.concurrency())
    }

    fn repeats(&self, request: &SpeechRequest) -> Repeats {
        if self.pair.has_fallback { Repeats::Never } else { self.pair.primary.repeats(request) }
    }

    fn waiting(&self) -> usize {
        self.pair.total(|engine| engine.waiting())
    }

    fn in_service(&self) -> usize {
        self.pair.total(|engine| engine.in_service())
    }

    fn slots(&self) -> Option<SlotReport> {
        self.pair.primary.slots().filter(|_| !self.pair.overflows())
    }

    fn marks(&self) -> Vec<String> {
        let mut marks = self.pair.primary.marks();
        if self.pair.overflows() {
            marks.extend(self.pair.second.marks());
            marks.sort();
            marks.dedup();
        }
        marks
    }

    fn voices(&self) -> Vec<Voice> {
        let mut voices = self.pair.primary.voices();
        if !self.pair.overflows() {
            return voices;
        }
        voices.retain(|voice| voice.id != UNKNOWN_VOICE);
        for voice in self.pair.second.voices() {
            if !voices.iter().any(|known| known.id == voice.id) {
                voices.push(voice);
            }
        }
        voices
    }

    fn check_voice(&self, voice: &str) -> Result<(), String> {
        match self.pair.takeover {
            Takeover::Failures => self.pair.primary.check_voice(voice),
            Takeover::Overflow => check_voice(self, voice),
        }
    }

    fn language(&self, voice: &str) -> String {
        match self.pair.takeover {
            Takeover::Failures => self.pair.primary.language(voice),
            Takeover::Overflow => language_of(self, voice),
        }
    }

    fn voice_library(&self) -> Option<Arc<dyn VoiceLibrary>> {
        // Whose machine a recording is stored on is not known where workers serve.
        self.pair.primary.voice_library().filter(|_| !self.pair.overflows())
    }

    fn smaller(&self) -> Option<Arc<dyn Tts>> {
        (self.pair.has_fallback && !self.pair.overflows())
            .then(|| Arc::new(Self { has_all: true, moved: Arc::default(), ..self.clone() }) as _)
    }

    fn upstreams(&self) -> Option<Upstreams> {
        let Pair { primary, second, .. } = &self.pair;
        self.pair.upstreams(primary.upstreams(), second.upstreams(), [primary.name(), second.name()])
    }

    fn speak(&self, request: SpeechRequest) -> Sound {
        if self.pair.overflows() {
            return self.overflowing(request);
        }
        let ask: Ask = |engine, request| std::future::ready(engine.speak(request)).boxed();
        let primary = (!self.has_moved(request.passage)).then(|| ask(self.pair.primary.as_ref(), request.clone()));
        self.spoken(request, primary, ask)
    }

    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, Sound> {
        if self.pair.overflows() {
            return std::future::ready(self.overflowing(request)).boxed();
        }
        let (this, ask): (_, Ask) = (self.clone(), |engine, request| engine.speak_queued(request));
        let queued = (!self.has_moved(request.passage)).then(|| ask(self.pair.primary.as_ref(), request.clone()));
        async move {
            let Some(queued) = queued else { return this.spoken(request, None, ask) };
            let sound = queued.await;
            this.spoken(request, Some(std::future::ready(sound).boxed()), ask)
        }
        .boxed()
    }

    fn speak_text(&self, request: TextRequest) -> Option<TextSpeech> {
        let Pair { primary, has_fallback, .. } = &self.pair;
        if self.pair.overflows() || *has_fallback && (self.has_moved(request.passage) || is_down(primary.upstreams())) {
            // The text comes in chunks then.
            return None;
        }
        let speech = primary.speak_text(request.clone())?;
        Some(if *has_fallback { self.clone().text_with_fallback(speech, request) } else { speech })
    }
}

impl TtsPair {
    /// Workers queue nothing for a hub: they are asked at once, and what they have no room for waits in the hub's own queue.
    fn overflowing(&self, request: SpeechRequest) -> Sound {
        let asked = std::future::ready(self.pair.primary.speak(request.clone())).boxed();
        self.spoken(request, Some(asked), |engine, request| engine.speak_queued(request))
    }

    /// Passes words on to the primary and keeps them until its first sound. Where it fails before that, or is late, the fallback
    /// speaks them in chunks.
    fn text_with_fallback(self, speech: TextSpeech, request: TextRequest) -> TextSpeech {
        let (words, mut pieces) = mpsc::channel::<String>(WORDS_AHEAD);
        let speech = stream! {
            let TextSpeech { words: to_primary, mut speech } = speech;
            let mut to_primary = Some(to_primary);
            let mut waiting = None::<String>;
            let mut kept = VecDeque::<String>::new();
            let mut has_sounded = false;
            // Pieces that the primary has named before its first sound: the fallback would name them again.
            let mut n_named = 0;
            let patience = self.pair.primary.hedge_delay().map(|delay| delay * DELAYS_OF_A_TEXT);
            let mut late_at = None::<Instant>;
            let error = loop {
                let sender = to_primary.clone();
                let is_late = async {
                    match late_at {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                let passes_on = async {
                    match sender {
                        Some(sender) => sender.reserve_owned().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    part = speech.next() => match part {
                        None => {
                            if n_named > 0 {
                                yield Ok(SpokenPart::Pieces(n_named));
                            }
                            return;
                        }
                        Some(Err(error)) if has_sounded || !self.pair.falls_back(&error) => {
                            yield Err(error);
                            return;
                        }
                        Some(Err(error)) => break Some(error),
                        Some(Ok(SpokenPart::Pieces(n))) if !has_sounded => n_named += n,
                        Some(Ok(part)) => {
                            if !std::mem::replace(&mut has_sounded, true) {
                                kept = VecDeque::new();
                                late_at = None;
                            }
                            let named = std::mem::take(&mut n_named);
                            if named > 0 {
                                yield Ok(SpokenPart::Pieces(named));
                            }
                            yield Ok(part);
                        }
                    },
                    () = is_late => break None,
                    room = passes_on, if waiting.is_some() => match (room, waiting.take()) {
                        (Ok(room), Some(piece)) => drop(room.send(piece)),
                        // It has failed, and says so in its speech.
                        _ => to_primary = None,
                    },
                    piece = pieces.recv(), if waiting.is_none() && to_primary.is_some() => match piece {
                        Some(piece) => {
                            if !has_sounded {
                                kept.push_back(piece.clone());
                                let can_sound = ends_sentence(&piece) || kept.len() >= MAX_CHUNK_WORDS;
                                late_at = late_at.or(patience.filter(|_| can_sound).map(|wait| Instant::now() + wait));
                            }
                            waiting = Some(piece);
                        }
                        None => {
                            to_primary = None;
                            let can_sound = !has_sounded && !kept.is_empty();
                            late_at = late_at.or(patience.filter(|_| can_sound).map(|wait| Instant::now() + wait));
                        }
                    },
                }
            };
            self.pair.count_fallback(error.as_ref().map(|error| error as &dyn StageError));
            drop(speech);
            let mut place = request.passage;
            loop {
                let chunk = next_chunk(&mut kept, &mut pieces).await;
                if chunk.is_empty() {
                    return;
                }
                let TextRequest { voice, speed, seed, instructions, hop, meter, .. } = request.clone();
                let text = chunk.join(" ");
                let unplayed = None;
                let passage = place;
                let immediate = false;
                let asked = SpeechRequest {
                    text, voice, speed, unplayed, seed, passage, instructions, immediate, hop, meter
                };
                place = place.map(Passage::following);
                self.set_moved(&asked);
                yield Ok(SpokenPart::Pieces(chunk.len()));
                let mut sound = self.pair.second.speak(self.adapted(asked));
                while let Some(pcm) = sound.next().await {
                    match pcm {
                        Ok(pcm) => yield Ok(SpokenPart::Audio(pcm)),
                        Err(error) => {
                            yield Err(error);
                            return;
                        }
                    }
                }
            }
        };
        TextSpeech { words, speech: speech.boxed() }
    }
}

/// The words up to the end of a sentence, those that were kept first; none at the end of the text.
async fn next_chunk(kept: &mut VecDeque<String>, pieces: &mut mpsc::Receiver<String>) -> Vec<String> {
    let mut chunk = Vec::new();
    while chunk.len() < MAX_CHUNK_WORDS {
        let Some(piece) = (match kept.pop_front() {
            Some(piece) => Some(piece),
            None => pieces.recv().await,
        }) else {
            break;
        };
        let ends = ends_sentence(&piece);
        chunk.push(piece);
        if ends {
            break;
        }
    }
    chunk
}

fn ends_sentence(piece: &str) -> bool {
    piece.trim_end().ends_with(['.', '!', '?'])
}

/// The first sound, and the rest.
async fn begun(queued: QueuedSound) -> Result<(Option<Pcm>, Sound), TtsError> {
    let mut sound = queued.await;
    let first = sound.next().await.transpose()?;
    Ok((first, sound))
}
