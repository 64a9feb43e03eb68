//! One response's work: the language model's stream, cut into chunks, spoken chunk by chunk.
//!
//! [`super::speaking`] starts one task for each response, and the actor pulls its products. The model runs at most two chunks ahead of the
//! voice, and the voice at most a few pieces ahead of the actor: a slow listener slows the model down. To an engine that takes
//! a text while it is written, the words go as they come, without being gathered into chunks.
//! Dropping the future drops the model's stream and the synthesis with it.

use super::failures;
use super::languages;
use super::product::{FailedStage, Milestone, Product, ResponseMeters};
use antiphon_dialog::{Event, Failure, Modality, ResponseWork, ToolCallDelta};
use antiphon_engine_api::llm::{LlmDelta, LlmError};
use antiphon_engine_api::tts::{
    Passage, PlayoutEstimate, SpeechRequest, SpokenPart, TextRequest, TextSpeech, TtsError,
};
use antiphon_engine_api::{Engines, Hop, HopReport};
use antiphon_text::{Chunk, Chunker, Language};
use antiphon_types::chat::{Finish, Usage};
use antiphon_types::{Brownout, BrownoutLevel, ResponseId, Timestamp};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// A model's answer.
type Deltas = BoxStream<'static, Result<LlmDelta, LlmError>>;

/// Chunks the model may be ahead of the voice.
const CHUNKS_AHEAD: usize = 2;

/// A model that has said nothing for this long is reported as loading, where it may be. Models that are in memory answer before.
const LOADING_REPORTED_AFTER: Duration = Duration::from_secs(3);

/// Words of a speculative response that are spoken before its release: as many as a first chunk has.
const SPECULATIVE_WORDS: usize = 8;

/// Products of a speculative response that wait for its release: a first chunk's audio in pieces of 40 ms and more.
const WITHHELD: usize = 256;

/// The sender of a speculative response's release was dropped: its products are discarded.
struct SpeculationDiscarded;

/// Why a response's work ends early: the actor has gone, a stage failed, or all was said that may be said.
enum Stop {
    Gone,
    Failed(FailedStage, Failure),
    TooLong,
}

/// How the model ended: by itself, or broken off behind words that stand.
type Ending = Result<(Finish, Option<Usage>), Failure>;

/// Text that turned out to be the model's thinking. What was written before the last call of [`Self::withdraw`] is not spoken.
#[derive(Default)]
struct Withdrawals {
    n: AtomicU32,
    new: Notify,
}

impl Withdrawals {
    fn withdraw(&self) {
        self.n.fetch_add(1, Ordering::Release);
        self.new.notify_waiters();
    }

    fn n(&self) -> u32 {
        self.n.load(Ordering::Acquire)
    }
}

/// The task of one response.
pub(super) struct Responding {
    pub(super) work: ResponseWork,
    pub(super) engines: Engines,
    pub(super) products: mpsc::Sender<Box<Product>>,
    pub(super) meters: ResponseMeters,
    pub(super) brownout: Brownout,
    /// Whether the client reads why an upstream failed, in its words.
    pub(super) sees_causes: bool,
    /// The session's beginning.
    pub(super) clock: Instant,
}

impl Responding {
    /// Runs to the end of the answer.
    pub(super) async fn run(self) {
        self.answer(None).await;
    }

    /// Runs speculatively: products are withheld until `release` is sent to, and only the first chunk is spoken before.
    /// Ends at once, discarding them, when the sender is dropped.
    pub(super) async fn run_speculatively(mut self, release: oneshot::Receiver<()>) {
        let (sender, mut withheld) = mpsc::channel(WITHHELD);
        let products = std::mem::replace(&mut self.products, sender);
        let (open_voice, voice_opens) = oneshot::channel();
        let pass_on = async {
            release.await.map_err(|_| SpeculationDiscarded)?;
            // The voice is gone where the answer has ended already.
            let _ = open_voice.send(());
            while let Some(product) = withheld.recv().await {
                if products.send(product).await.is_err() {
                    break;
                }
            }
            Ok::<(), SpeculationDiscarded>(())
        };
        let answer = async {
            self.answer(Some(voice_opens)).await;
            Ok(())
        };
        let _ = tokio::try_join!(answer, pass_on);
    }

    /// `voice_opens`: received before the second chunk is spoken.
    async fn answer(mut self, voice_opens: Option<oneshot::Receiver<()>>) {
        let result = match self.work.settings.modality {
            Modality::Audio => {
                let (sender, inputs) = mpsc::channel(CHUNKS_AHEAD);
                let withdrawals = Withdrawals::default();
                let chat = std::mem::take(&mut self.work.chat);
                let passage = Passage::first();
                let mut hop = FirstHop::default();
                let end = match self.text_speech(passage, hop.take()) {
                    None => {
                        let chunker = Chunker::new(self.language()).keeping(self.engines.tts.marks());
                        let voice = VoiceSender { sender, fresh: chunker.clone(), chunker, withdrawals: &withdrawals };
                        let speaks = self.speak(inputs, passage, voice_opens, FirstHop::default(), &withdrawals);
                        tokio::try_join!(self.think(chat, Some(voice)), speaks)
                    }
                    Some(speech) => {
                        let chunker = Chunker::by_words(self.language()).keeping(self.engines.tts.marks());
                        let voice = VoiceSender { sender, fresh: chunker.clone(), chunker, withdrawals: &withdrawals };
                        let speaks = self.speak_words(speech, inputs, passage, voice_opens, hop, &withdrawals);
                        tokio::try_join!(self.think(chat, Some(voice)), speaks)
                    }
                };
                end.map(|(end, ())| end)
            }
            Modality::Text => {
                let chat = std::mem::take(&mut self.work.chat);
                self.think(chat, None).await
            }
        };
        let outcome = match result {
            Ok(ending) => ending.map_err(|failure| (FailedStage::Llm, failure)),
            Err(Stop::Failed(stage, failure)) => Err((stage, failure)),
            Err(Stop::TooLong) => Ok((Finish::Length, None)),
            Err(Stop::Gone) => return,
        };
        if let Err((stage, _)) = &outcome {
            let _ = self.product(Product::FailedIn(self.id(), *stage)).await;
        }
        let outcome = outcome.map_err(|(_, failure)| failure);
        let _ = self.send(Event::ResponseFinished { response: self.id(), outcome }).await;
    }

    /// Streams the model's answer: text to the voice, or to the reducer when there is none.
    async fn think(
        &self,
        chat: antiphon_types::chat::ChatRequest,
        mut voice: Option<VoiceSender<'_>>,
    ) -> Result<Ending, Stop> {
        let chat = antiphon_types::chat::ChatRequest { meter: self.meters.llm.clone(), ..chat };
        let mut stream = self.engines.llm.stream(chat);
        let mut milestones = Milestones { first_token: true, first_chunk: true };
        // Anything but white space; a call.
        let mut has_said = false;
        let mut has_called = false;
        let mut next = self.first_delta(&mut stream).await?;
        while let Some(delta) = next {
            let delta = match delta {
                Ok(delta) => delta,
                Err(error) if has_said => {
                    self.say_rest(&mut voice, &mut milestones).await?;
                    return Ok(Err(failures::broke_off(&error, self.sees_causes)));
                }
                Err(error) => {
                    return Err(Stop::Failed(FailedStage::Llm, failures::model_failed(&error, self.sees_causes)));
                }
            };
            if std::mem::take(&mut milestones.first_token) {
                self.mark(Milestone::FirstToken).await?;
            }
            match delta {
                LlmDelta::Text(text) => {
                    has_said |= !text.trim().is_empty();
                    match &mut voice {
                        None => self.send(Event::Text { response: self.id(), text }).await?,
                        Some(voice) => {
                            let chunks = voice.chunker.push(&text);
                            self.hand_over(voice, chunks, &mut milestones).await?;
                        }
                    }
                }
                LlmDelta::Withdrawn => {
                    has_said = false;
                    if let Some(voice) = &mut voice {
                        voice.chunker = voice.fresh.clone();
                        voice.withdrawals.withdraw();
                    }
                    self.send(Event::TextWithdrawn { response: self.id() }).await?;
                }
                LlmDelta::ToolCall { index, call_id, name, arguments } => {
                    has_called = true;
                    let response = self.id();
                    let delta = ToolCallDelta { response, index, call_id, name, arguments };
                    match &mut voice {
                        None => self.send(Event::ToolCall(delta)).await?,
                        Some(voice) => {
                            // The words before a call come before it, spoken.
                            let chunks = voice.chunker.finish();
                            self.hand_over(voice, chunks, &mut milestones).await?;
                            voice.sender.send(VoiceInput::Call(delta)).await.map_err(|_| Stop::Gone)?;
                        }
                    }
                }
                LlmDelta::Done { finish, usage } => {
                    self.mark(Milestone::LastToken).await?;
                    let is_whole = matches!(finish, Finish::Stop | Finish::ToolCalls);
                    if is_whole && !has_said && !has_called {
                        return Err(Stop::Failed(FailedStage::Llm, failures::said_nothing()));
                    }
                    self.say_rest(&mut voice, &mut milestones).await?;
                    return Ok(Ok((finish, usage)));
                }
            }
            next = stream.next().await;
        }
        Err(Stop::Failed(FailedStage::Llm, "the language model stopped in the middle of its answer".into()))
    }

    /// The model's first delta. A model that may be loading meanwhile is reported.
    async fn first_delta(&self, stream: &mut Deltas) -> Result<Option<Result<LlmDelta, LlmError>>, Stop> {
        if let Ok(first) = timeout(LOADING_REPORTED_AFTER, stream.next()).await {
            return Ok(first);
        }
        // A model that thinks has answered: it is in memory.
        if let Some(limit) = self.engines.llm.loading_limit() {
            self.send(Event::ModelLoading { response: self.id(), limit }).await?;
        }
        Ok(stream.next().await)
    }

    /// Hands the words that are still gathered to the voice.
    async fn say_rest(&self, voice: &mut Option<VoiceSender<'_>>, milestones: &mut Milestones) -> Result<(), Stop> {
        let Some(voice) = voice else { return Ok(()) };
        let chunks = voice.chunker.finish();
        self.hand_over(voice, chunks, milestones).await
    }

    async fn hand_over(
        &self,
        voice: &VoiceSender<'_>,
        chunks: Vec<Chunk>,
        milestones: &mut Milestones,
    ) -> Result<(), Stop> {
        for chunk in chunks {
            if std::mem::take(&mut milestones.first_chunk) {
                self.mark(Milestone::FirstChunk).await?;
            }
            let input = VoiceInput::Chunk(chunk, voice.withdrawals.n());
            voice.sender.send(input).await.map_err(|_| Stop::Gone)?;
        }
        Ok(())
    }

    /// Speaks the chunks in order. A chunk's text is sent with its first audio, so that the text shown is spoken.
    /// Of a speculative response, chunks after the first wait for `voice_opens`.
    async fn speak(
        &self,
        mut pieces: mpsc::Receiver<VoiceInput>,
        passage: Passage,
        mut voice_opens: Option<oneshot::Receiver<()>>,
        mut first_hop: FirstHop,
        withdrawals: &Withdrawals,
    ) -> Result<(), Stop> {
        let settings = &self.work.settings;
        let mut listener = PlayoutEstimate::default();
        let mut place = passage;
        let mut length = SpokenLength::at_most(settings.max_answer);
        while let Some(piece) = pieces.recv().await {
            let chunk = match piece {
                VoiceInput::Chunk(_, written) if written != withdrawals.n() => continue,
                VoiceInput::Chunk(chunk, _) => chunk,
                VoiceInput::Call(delta) => {
                    self.send(Event::ToolCall(delta)).await?;
                    continue;
                }
            };
            length.continue_with(&chunk.raw)?;
            let withdrawn = withdrawals.n();
            let mut raw = Some(chunk.raw);
            if !chunk.spoken.is_empty() {
                let voice = settings.voice.clone();
                let unplayed = Some(listener.unplayed());
                let text = chunk.spoken;
                let passage = Some(place);
                place = place.following();
                let instructions = settings.spoken_instructions();
                let hop = first_hop.take();
                let immediate = self.brownout.is_at_least(BrownoutLevel::ShortLookAhead);
                let seed = None;
                let speed = settings.speed;
                let meter = self.meters.tts.clone();
                let request =
                    SpeechRequest { text, voice, speed, unplayed, seed, passage, instructions, immediate, hop, meter };
                let mut stream = self.engines.tts.speak(request);
                while let Some(pcm) = stream.next().await {
                    if withdrawn != withdrawals.n() {
                        break;
                    }
                    let pcm = pcm.map_err(|error| self.voice_failed(&error))?;
                    self.served(&mut first_hop).await?;
                    if let Some(text) = raw.take() {
                        self.send(Event::Text { response: self.id(), text }).await?;
                    }
                    listener.hears(pcm.duration());
                    length.add(pcm.duration());
                    self.product(Product::Audio(self.id(), pcm, self.now())).await?;
                }
                self.served(&mut first_hop).await?;
                if let Some(opens) = voice_opens.take() {
                    opens.await.map_err(|_| Stop::Gone)?;
                }
            }
            if let Some(text) = raw.filter(|_| withdrawn == withdrawals.n()) {
                self.send(Event::Text { response: self.id(), text }).await?;
            }
        }
        Ok(())
    }

    /// The engine's other way to speak: a text that is still being written, where the engine takes one.
    fn text_speech(&self, passage: Passage, hop: Hop) -> Option<TextSpeech> {
        let voice = self.work.settings.voice.clone();
        let speed = self.work.settings.speed;
        let instructions = self.work.settings.spoken_instructions();
        let passage = Some(passage);
        let meter = self.meters.tts.clone();
        self.engines.tts.speak_text(TextRequest { voice, speed, seed: None, passage, instructions, hop, meter })
    }

    /// Speaks words as they come. The text before a call is spoken before it; the text behind it is a new one for the
    /// engine. `speech` is for the first of them.
    async fn speak_words(
        &self,
        speech: TextSpeech,
        mut inputs: mpsc::Receiver<VoiceInput>,
        passage: Passage,
        mut voice_opens: Option<oneshot::Receiver<()>>,
        mut hop: FirstHop,
        withdrawals: &Withdrawals,
    ) -> Result<(), Stop> {
        let mut speech = Some(speech);
        let mut n_words = 0;
        let mut length = SpokenLength::at_most(self.work.settings.max_answer);
        while let Some(input) = inputs.recv().await {
            let call = match input {
                VoiceInput::Call(delta) => Some(delta),
                VoiceInput::Chunk(_, written) if written != withdrawals.n() => None,
                VoiceInput::Chunk(first, _) => {
                    let speech = speech
                        .take()
                        .or_else(|| self.text_speech(passage, hop.take()))
                        .ok_or_else(|| Stop::Failed(FailedStage::Tts, "the voice engine takes no more words".into()))?;
                    let TextSpeech { words, speech } = speech;
                    let unspoken = UnspokenText::default();
                    let feed = feed(first, &mut inputs, words, &unspoken, &mut voice_opens, &mut n_words);
                    let spoken = self.pass_on(speech, &unspoken, &mut hop, &mut length);
                    tokio::select! {
                        biased;
                        // Its speech ends with what was passed on.
                        () = withdrawals.new.notified() => None,
                        ended = async { tokio::try_join!(spoken, feed) } => ended?.1,
                    }
                }
            };
            if let Some(delta) = call {
                self.send(Event::ToolCall(delta)).await?;
            }
        }
        Ok(())
    }

    /// Passes on a text's speech. The text is sent with the audio that speaks it.
    async fn pass_on(
        &self,
        mut speech: BoxStream<'static, Result<SpokenPart, TtsError>>,
        unspoken: &UnspokenText,
        hop: &mut FirstHop,
        length: &mut SpokenLength,
    ) -> Result<(), Stop> {
        while let Some(part) = speech.next().await {
            match part.map_err(|error| self.voice_failed(&error))? {
                SpokenPart::Pieces(n) => {
                    let text = unspoken.take(n);
                    length.continue_with(&text)?;
                    self.send_text(text).await?;
                }
                SpokenPart::Audio(pcm) => {
                    length.add(pcm.duration());
                    self.served(hop).await?;
                    self.product(Product::Audio(self.id(), pcm, self.now())).await?;
                }
            }
        }
        self.send_text(unspoken.take(usize::MAX)).await
    }

    fn voice_failed(&self, error: &TtsError) -> Stop {
        Stop::Failed(FailedStage::Tts, failures::voice_failed(error, self.sees_causes))
    }

    async fn send_text(&self, text: String) -> Result<(), Stop> {
        if text.is_empty() {
            return Ok(());
        }
        self.send(Event::Text { response: self.id(), text }).await
    }

    /// The language of the speech.
    fn language(&self) -> Language {
        Language::of_tag(&languages::of_speech(self.engines.tts.as_ref(), &self.work.settings))
    }

    fn now(&self) -> Timestamp {
        Timestamp::new(self.clock.elapsed())
    }

    fn id(&self) -> ResponseId {
        self.work.response.clone()
    }

    async fn mark(&self, milestone: Milestone) -> Result<(), Stop> {
        self.product(Product::Mark(self.id(), milestone, self.now())).await
    }

    /// Reports the worker of the first chunk, where there is one and it was not reported.
    async fn served(&self, hop: &mut FirstHop) -> Result<(), Stop> {
        match hop.news() {
            Some(served) => self.product(Product::Hop(self.id(), served)).await,
            None => Ok(()),
        }
    }

    async fn send(&self, event: Event) -> Result<(), Stop> {
        self.product(Product::Event(event)).await
    }

    async fn product(&self, product: Product) -> Result<(), Stop> {
        self.products.send(Box::new(product)).await.map_err(|_| Stop::Gone)
    }
}

/// Hands words to the engine until the text ends, or a call comes, which is returned. Of a speculative response, only the
/// first words go before `voice_opens`.
async fn feed(
    first: Chunk,
    inputs: &mut mpsc::Receiver<VoiceInput>,
    words: mpsc::Sender<String>,
    unspoken: &UnspokenText,
    voice_opens: &mut Option<oneshot::Receiver<()>>,
    n_words: &mut usize,
) -> Result<Option<ToolCallDelta>, Stop> {
    let mut next = Some(VoiceInput::Chunk(first, 0));
    while let Some(input) = next {
        let Chunk { raw, spoken } = match input {
            VoiceInput::Chunk(chunk, _) => chunk,
            VoiceInput::Call(delta) => return Ok(Some(delta)),
        };
        if *n_words == SPECULATIVE_WORDS
            && let Some(opens) = voice_opens.take()
        {
            opens.await.map_err(|_| Stop::Gone)?;
        }
        unspoken.push(raw, !spoken.is_empty());
        if !spoken.is_empty() {
            *n_words += 1;
            // An engine that fails says so in its speech.
            let ended = |_| Stop::Failed(FailedStage::Tts, "the voice engine stopped in the middle of the text".into());
            words.send(spoken).await.map_err(ended)?;
        }
        next = inputs.recv().await;
    }
    Ok(None)
}

/// Text that went to the engine and is not spoken yet, in pieces as the model wrote them. The bound of the model's answer
/// bounds it.
#[derive(Default)]
struct UnspokenText {
    /// The piece, and whether the engine got words of it.
    pieces: Mutex<VecDeque<(String, bool)>>,
}

impl UnspokenText {
    fn push(&self, raw: String, speaks: bool) {
        self.pieces().push_back((raw, speaks));
    }

    /// The text up to the end of the next `n` pieces that are spoken, with what is only shown around them.
    fn take(&self, n: usize) -> String {
        let mut pieces = self.pieces();
        let mut text = String::new();
        let mut n_left = n;
        while let Some((_, speaks)) = pieces.front() {
            if *speaks && n_left == 0 {
                break;
            }
            n_left -= usize::from(*speaks);
            text.extend(pieces.pop_front().map(|(raw, _)| raw));
        }
        text
    }

    fn pieces(&self) -> MutexGuard<'_, VecDeque<(String, bool)>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The model's way to the voice.
struct VoiceSender<'a> {
    sender: mpsc::Sender<VoiceInput>,
    chunker: Chunker,
    /// The chunker before its first word.
    fresh: Chunker,
    withdrawals: &'a Withdrawals,
}

/// What goes from the model to the voice, in order.
enum VoiceInput {
    /// To be spoken, and how often the model's text had been withdrawn when it was written.
    Chunk(Chunk, u32),
    /// To be passed on behind the words before it.
    Call(ToolCallDelta),
}

/// How long an answer has been spoken, and when that is enough: `session.max_answer_seconds`.
struct SpokenLength {
    most: Option<Duration>,
    spoken: Duration,
    /// A sentence has just ended.
    at_end: bool,
}

impl SpokenLength {
    /// An answer that is longer by this share ends within a sentence.
    const GRACE: f64 = 1.2;

    fn at_most(most: Option<Duration>) -> Self {
        Self { most, spoken: Duration::ZERO, at_end: true }
    }

    fn add(&mut self, sound: Duration) {
        self.spoken += sound;
    }

    /// Whether the answer goes on with this text.
    fn continue_with(&mut self, text: &str) -> Result<(), Stop> {
        let is_over = |most: Duration| self.spoken >= if self.at_end { most } else { most.mul_f64(Self::GRACE) };
        if self.most.is_some_and(is_over) {
            return Err(Stop::TooLong);
        }
        let text = text.trim_end();
        if !text.is_empty() {
            let text = text.trim_end_matches(['"', '\'', ')', '”', '’', '»', '*']);
            self.at_end = text.ends_with(['.', '!', '?', '…', '。', '！', '？', '।']);
        }
        Ok(())
    }
}

/// The hop of a response's first request to the voice.
#[derive(Default)]
struct FirstHop {
    /// `None`: nothing was requested yet.
    hop: Option<Hop>,
    reported: Option<HopReport>,
}

impl FirstHop {
    /// The hop for the next request: only the first one's is read.
    fn take(&mut self) -> Hop {
        match self.hop {
            Some(_) => Hop::default(),
            None => self.hop.insert(Hop::requested()).clone(),
        }
    }

    /// What is known now and was not reported.
    fn news(&mut self) -> Option<HopReport> {
        let served = self.hop.as_ref()?.get().filter(|served| self.reported.as_ref() != Some(served))?;
        self.reported = Some(served.clone());
        Some(served)
    }
}

/// Which moments are still to come.
struct Milestones {
    first_token: bool,
    first_chunk: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_dialog::ResponseSettings;
    use antiphon_dialog::{Memory, Settings, Truncation};
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use antiphon_types::chat::ChatRequest;
    use antiphon_types::{Format, TurnId};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio_util::task::TaskTracker;

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_hub_lets_no_batch_of_speech_wait() {
        for (level, expect) in [(BrownoutLevel::NoSpeculation, false), (BrownoutLevel::ShortLookAhead, true)] {
            let (sender, mut products) = mpsc::channel(256);
            let tts = FakeTts::default();
            let mut responding = responding(sender);
            responding.engines.tts = Arc::new(tts.clone());
            responding.brownout.set(level);
            let reads = async { while products.recv().await.is_some() {} };
            tokio::join!(responding.run(), reads);
            let immediate: Vec<_> = tts.requests().iter().map(|request| request.immediate).collect();
            assert_eq!(immediate, [expect; 2], "{level:?}");
        }
    }

    fn responding(products: mpsc::Sender<Box<Product>>) -> Responding {
        let llm = FakeLlm::says(["One sentence is here. And another one is there."]);
        responding_with(llm, FakeTts::default(), products)
    }

    fn responding_with(llm: FakeLlm, tts: FakeTts, products: mpsc::Sender<Box<Product>>) -> Responding {
        let settings = Settings {
            instructions: String::new(),
            modality: Modality::Audio,
            voice: "any".into(),
            speed: 1.0,
            voice_instructions: String::new(),
            output_format: Format::Pcm16,
            max_output_tokens: None,
            max_answer: None,
            tools: Vec::new(),
            tool_choice: Default::default(),
            servers: Vec::new(),
            server_choice: None,
            turn_detection: None,
            transcripts: false,
            filler_after: None,
            language_voices: None,
            live_transcripts: false,
            memory: Memory {
                budget: 8_000,
                conversation: None,
                truncation: Truncation::Disabled,
                notes_interruptions: false,
            },
        };
        let vad = Arc::new(FakeVad);
        let stt = Arc::new(FakeStt::default());
        let engines = Engines { vad, turn: None, speaker: None, stt, llm: Arc::new(llm), tts: Arc::new(tts) };
        let chat = ChatRequest {
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: Default::default(),
            max_tokens: None,
            ..ChatRequest::default()
        };
        let settings = ResponseSettings::resolve(&settings, &Default::default());
        let work = ResponseWork { response: "resp_1".into(), turn: TurnId(1), chat, settings };
        Responding {
            work,
            engines,
            products,
            meters: ResponseMeters::default(),
            brownout: Brownout::default(),
            sees_causes: false,
            clock: Instant::now(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_speculative_response_is_withheld_until_it_is_released() {
        let (sender, mut products) = mpsc::channel(256);
        let (release, released) = oneshot::channel();
        let task = TaskTracker::new().spawn(responding(sender).run_speculatively(released));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(products.is_empty() && !task.is_finished());
        release.send(()).expect("it waits");
        task.await.expect("no panic");
        let mut finished = false;
        while let Some(product) = products.recv().await {
            finished = matches!(*product, Product::Event(Event::ResponseFinished { .. }));
        }
        assert!(finished, "all of it came out");
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_release_discards_a_speculative_response() {
        let (sender, mut products) = mpsc::channel(256);
        let (release, released) = oneshot::channel();
        let task = TaskTracker::new().spawn(responding(sender).run_speculatively(released));
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(release);
        tokio::time::timeout(Duration::from_secs(5), task).await.expect("it ends").expect("no panic");
        assert!(products.recv().await.is_none(), "nothing came out");
    }

    /// Everything a response produced: its text, a word for the audio of each piece, calls, and its end.
    async fn produced(mut products: mpsc::Receiver<Box<Product>>) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        while let Some(product) = products.recv().await {
            let line = match *product {
                Product::Event(Event::Text { text, .. }) => text,
                Product::Event(Event::ToolCall(delta)) => format!("call {}", delta.name),
                Product::Event(Event::ResponseFinished { outcome: Ok(_), .. }) => "end".into(),
                Product::Event(Event::ResponseFinished { outcome: Err(failure), .. }) => failure.message().into(),
                Product::Audio(..) if seen.last().is_some_and(|last| last == "audio") => continue,
                Product::Audio(..) => "audio".into(),
                _ => continue,
            };
            seen.push(line);
        }
        seen
    }

    #[tokio::test]
    async fn words_go_to_an_engine_that_takes_them_and_are_shown_with_their_audio() {
        let llm = FakeLlm::says([]);
        llm.then(vec![
            Ok(LlmDelta::Text("So **th".into())),
            Ok(LlmDelta::Text("is** is".into())),
            Ok(LlmDelta::ToolCall { index: 0, call_id: "c1".into(), name: "look".into(), arguments: String::new() }),
            Ok(LlmDelta::Text(" it.".into())),
            Ok(LlmDelta::Done { finish: Finish::Stop, usage: None }),
        ]);
        let (sender, products) = mpsc::channel(256);
        let tts = FakeTts::default().taking_words();
        responding_with(llm, tts, sender).run().await;
        let expected = ["So", "audio", " **this**", "audio", " is", "audio", "call look", " it.", "audio", "end"];
        assert_eq!(produced(products).await, expected);
    }

    #[tokio::test]
    async fn a_failure_of_the_voice_in_the_middle_of_the_words_ends_the_response() {
        let (sender, products) = mpsc::channel(256);
        let tts = FakeTts::default().taking_words().failing_on("this");
        responding_with(FakeLlm::says(["Say this now."]), tts, sender).run().await;
        let seen = produced(products).await;
        assert!(seen.last().is_some_and(|last| last.contains("voice engine")), "{seen:?}");
        assert_eq!(&seen[..2], ["Say", "audio"]);
    }

    fn text(text: &str) -> Result<LlmDelta, String> {
        Ok(LlmDelta::Text(text.into()))
    }

    fn end() -> Result<LlmDelta, String> {
        Ok(LlmDelta::Done { finish: Finish::Stop, usage: None })
    }

    /// What a response to this answer of the model produced, by an engine that takes chunks, and by one that takes words.
    async fn produced_by(answer: Vec<Result<LlmDelta, String>>, set: impl Fn(&mut Responding)) -> [Vec<String>; 2] {
        let mut seen = [Vec::new(), Vec::new()];
        for (tts, seen) in [FakeTts::default(), FakeTts::default().taking_words()].into_iter().zip(&mut seen) {
            let llm = FakeLlm::says([]);
            llm.then(answer.clone());
            let (sender, products) = mpsc::channel(256);
            let mut responding = responding_with(llm, tts, sender);
            set(&mut responding);
            responding.run().await;
            *seen = produced(products).await;
        }
        seen
    }

    #[tokio::test]
    async fn words_before_an_answer_breaks_off_are_spoken_and_the_response_says_so() {
        let answer = vec![text("It is ten. And the sun is"), Err("cut".into())];
        for seen in produced_by(answer, |_| {}).await {
            let said: String = seen.iter().filter(|line| *line != "audio").map(String::as_str).collect();
            assert!(
                said.starts_with("It is ten. And the sun isThe language model broke off in the middle"),
                "{seen:?}"
            );
            assert!(seen.len() > 2 && seen[seen.len() - 2] == "audio", "{seen:?}");
        }
    }

    #[tokio::test]
    async fn an_empty_answer_is_a_failure() {
        for answer in [vec![end()], vec![text(" \n"), end()]] {
            for seen in produced_by(answer.clone(), |_| {}).await {
                assert!(
                    seen.last().is_some_and(|last| last.starts_with("The language model answered nothing")),
                    "{seen:?}"
                );
            }
        }
    }

    /// What a response reports of a model that is loaded in this time before it answers.
    async fn loading_reports(llm: FakeLlm, sound: bool) -> Vec<(Duration, Duration)> {
        let (sender, mut products) = mpsc::channel(256);
        let mut work = responding_with(llm, FakeTts::default(), sender);
        if !sound {
            work.work.settings.modality = Modality::Text;
        }
        let begun = Instant::now();
        let task = TaskTracker::new().spawn(work.run());
        let mut reports = Vec::new();
        while let Some(product) = products.recv().await {
            if let Product::Event(Event::ModelLoading { limit, .. }) = *product {
                reports.push((begun.elapsed(), limit));
            }
        }
        task.await.expect("no panic");
        reports
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_may_be_loading_is_reported_once_after_three_seconds() {
        let limit = Duration::from_secs(60);
        let llm = |delay_ms| FakeLlm::says(["Two words."]).delayed(Duration::from_millis(delay_ms));
        for sound in [false, true] {
            let reports = loading_reports(llm(4_000).loading(limit), sound).await;
            assert_eq!(reports, [(Duration::from_secs(3), limit)]);
            assert_eq!(loading_reports(llm(2_900).loading(limit), sound).await, [], "it answered in time");
            assert_eq!(loading_reports(llm(4_000), sound).await, [], "it is in memory");
        }
    }

    #[tokio::test]
    async fn only_the_operator_reads_the_cause() {
        for sees_causes in [false, true] {
            let answer = vec![Err("no such model".into())];
            for seen in produced_by(answer, |responding| responding.sees_causes = sees_causes).await {
                assert_eq!(seen.concat().contains("no such model"), sees_causes, "{seen:?}");
            }
        }
    }

    #[tokio::test]
    async fn withdrawn_text_is_not_spoken() {
        let thought = "The user asks, so";
        let answer = vec![text(thought), Ok(LlmDelta::Withdrawn), text("Hello there."), end()];
        let [chunks, words] = produced_by(answer, |_| {}).await.map(|seen| {
            let said = seen.iter().filter(|line| *line != "audio" && *line != "end").map(String::as_str);
            said.collect::<String>()
        });
        assert_eq!(chunks, "Hello there.");
        // Words go to the voice at once; those that were not spoken yet are not any more.
        assert!(words.ends_with("Hello there.") && !words.contains(thought), "{words}");
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_ends_with_its_sentence() {
        // The fake voice takes 50 ms a character: the first sentence is over 1.6 s long.
        let answer = vec![text("One sentence is here with words enough. Another one is here. And a third one."), end()];
        for seen in produced_by(answer, |responding| {
            responding.work.settings.max_answer = Some(Duration::from_millis(1_600));
        })
        .await
        {
            let said: Vec<_> =
                seen.iter().filter(|line| *line != "audio" && *line != "end").map(String::as_str).collect();
            assert_eq!(said.concat().trim(), "One sentence is here with words enough.", "{seen:?}");
            assert_eq!(seen.last().map(String::as_str), Some("end"));
        }
    }

    /// Which workers a response named, and how many pieces of audio came before each.
    async fn workers_of(mut products: mpsc::Receiver<Box<Product>>) -> Vec<(String, u32, usize)> {
        let mut named = Vec::new();
        let mut n_audio = 0;
        while let Some(product) = products.recv().await {
            match *product {
                Product::Hop(_, served) => named.push((served.worker, served.retried, n_audio)),
                Product::Audio(..) => n_audio += 1,
                _ => {}
            }
        }
        named
    }

    #[tokio::test]
    async fn the_worker_of_the_first_chunk_is_named_before_its_audio_and_once() {
        for tts in [FakeTts::default(), FakeTts::default().taking_words()] {
            let (sender, products) = mpsc::channel(256);
            let llm = FakeLlm::says(["One sentence is here. And another one is there."]);
            let tts = tts.served_by("north", Duration::from_millis(2)).retried(1);
            responding_with(llm, tts, sender).run().await;
            assert_eq!(workers_of(products).await, [("north".to_owned(), 1, 0)]);
        }
        let (sender, products) = mpsc::channel(256);
        responding(sender).run().await;
        assert_eq!(workers_of(products).await, [], "an engine of this process");
    }

    #[tokio::test]
    async fn voices_that_cannot_be_reached_are_told_from_one_that_fails() {
        for (tts, is_away) in [(FakeTts::default().away(), true), (FakeTts::default().failing_on("sentence"), false)] {
            let (sender, mut products) = mpsc::channel(256);
            responding_with(FakeLlm::says(["One sentence is here."]), tts, sender).run().await;
            let mut outcome = None;
            while let Some(product) = products.recv().await {
                if let Product::Event(Event::ResponseFinished { outcome: end, .. }) = *product {
                    outcome = Some(end);
                }
            }
            let failure = outcome.expect("an end").expect_err("no voice");
            assert_eq!(matches!(failure, Failure::Away { .. }), is_away, "{failure:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_words_of_a_speculative_response_go_before_its_release() {
        let (sender, mut products) = mpsc::channel(256);
        let (release, released) = oneshot::channel();
        let text = (1..=20).map(|n| format!("word{} ", ["a", "b"][n % 2])).collect::<String>();
        let tts = FakeTts::default().taking_words();
        let work = responding_with(FakeLlm::says([text.as_str()]), tts.clone(), sender);
        let task = TaskTracker::new().spawn(work.run_speculatively(released));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(tts.spoken().len(), SPECULATIVE_WORDS);
        release.send(()).expect("it waits");
        while products.recv().await.is_some() {}
        task.await.expect("no panic");
        assert_eq!(tts.spoken().len(), 20);
    }
}
