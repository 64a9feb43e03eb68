//! One response's work: the language model's stream, cut into chunks, spoken chunk by chunk.
//!
//! The actor starts one task for each response and pulls its products. The model runs at most two chunks ahead of the
//! voice, and the voice at most a few pieces ahead of the actor: a slow listener slows the model down. To an engine that takes
//! a text while it is written, the words go as they come, without being gathered into chunks.
//! Dropping the future drops the model's stream and the synthesis with it.

use super::filler::FillerSpeech;
use super::languages;
use antiphon_dialog::{Event, Failure, Modality, ResponseWork, ToolCallDelta};
use antiphon_engine_api::llm::{LlmDelta, LlmError};
use antiphon_engine_api::tts::{
    Passage, PlayoutEstimate, SpeechRequest, SpokenPart, TextRequest, TextSpeech, TtsError,
};
use antiphon_engine_api::{Engines, Hop, Served};
use antiphon_text::{Chunk, Chunker, Language};
use antiphon_types::chat::{Finish, Usage};
use antiphon_types::{Brownout, BrownoutLevel, Meter, Pcm, Requester, ResponseId, Timestamp};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Chunks the model may be ahead of the voice.
const CHUNKS_AHEAD: usize = 2;

/// Words of a speculative response that are spoken before its release: as many as a first chunk has.
const SPECULATIVE_WORDS: usize = 8;

/// Output of a response's work, in order.
pub(super) enum Product {
    /// For the reducer.
    Event(Event),
    /// Speech of the chunk whose text came last, and when it was synthesized.
    Audio(ResponseId, Pcm, Timestamp),
    /// A moment of the timeline.
    Mark(ResponseId, Milestone, Timestamp),
    /// A filler, all of it.
    Filler(FillerSpeech),
    /// Which worker speaks the first chunk; again where another one goes on with it.
    Served(ResponseId, Served),
}

/// Products of a speculative response that wait for its release: a first chunk's audio in pieces of 40 ms and more.
const WITHHELD: usize = 256;

/// A response's moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Milestone {
    /// The model's first token.
    FirstToken,
    /// The first chunk was handed to the voice.
    FirstChunk,
    /// The model has said all.
    LastToken,
}

/// The sender of a speculative response's release was dropped: its products are discarded.
struct Discarded;

/// Why a response's work ends early: the actor has gone, or a stage failed.
enum Stop {
    Gone,
    Failed(Failure),
}

/// What a response costs, and who serves it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseMeters {
    pub(super) llm: Meter,
    /// Of all chunks.
    pub(super) tts: Meter,
}

impl ResponseMeters {
    /// Meters that are read later, of this client's requests.
    pub(super) fn requested_by(requester: Requester) -> Self {
        Self { llm: Meter::requested_by(requester), tts: Meter::requested_by(requester) }
    }
}

/// The task of one response.
pub(super) struct Responding {
    pub(super) work: ResponseWork,
    pub(super) engines: Engines,
    pub(super) products: mpsc::Sender<Box<Product>>,
    pub(super) meters: ResponseMeters,
    pub(super) brownout: Brownout,
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
            release.await.map_err(|_| Discarded)?;
            // The voice is gone where the answer has ended already.
            let _ = open_voice.send(());
            while let Some(product) = withheld.recv().await {
                if products.send(product).await.is_err() {
                    break;
                }
            }
            Ok::<(), Discarded>(())
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
                let chat = std::mem::take(&mut self.work.chat);
                let passage = Passage::first();
                let mut hop = FirstHop::default();
                let end = match self.text_speech(passage, hop.take()) {
                    None => {
                        let voice = VoiceSender {
                            sender,
                            chunker: Chunker::new(self.language()).keeping(self.engines.tts.marks()),
                        };
                        let speaks = self.speak(inputs, passage, voice_opens, FirstHop::default());
                        tokio::try_join!(self.think(chat, Some(voice)), speaks)
                    }
                    Some(speech) => {
                        let voice = VoiceSender {
                            sender,
                            chunker: Chunker::by_words(self.language()).keeping(self.engines.tts.marks()),
                        };
                        let speaks = self.speak_words(speech, inputs, passage, voice_opens, hop);
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
            Ok(end) => Ok(end),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(Stop::Gone) => return,
        };
        let _ = self.send(Event::ResponseFinished { response: self.id(), outcome }).await;
    }

    /// Streams the model's answer: text to the voice, or to the reducer when there is none.
    async fn think(
        &self,
        chat: antiphon_types::chat::ChatRequest,
        mut voice: Option<VoiceSender>,
    ) -> Result<(Finish, Option<Usage>), Stop> {
        let chat = antiphon_types::chat::ChatRequest { meter: self.meters.llm.clone(), ..chat };
        let mut stream = self.engines.llm.stream(chat);
        let mut milestones = Milestones { first_token: true, first_chunk: true };
        while let Some(delta) = stream.next().await {
            let delta = delta.map_err(model_failed)?;
            if std::mem::take(&mut milestones.first_token) {
                self.mark(Milestone::FirstToken).await?;
            }
            match delta {
                LlmDelta::Text(text) => match &mut voice {
                    None => self.send(Event::Text { response: self.id(), text }).await?,
                    Some(voice) => {
                        let chunks = voice.chunker.push(&text);
                        self.hand_over(voice, chunks, &mut milestones).await?;
                    }
                },
                LlmDelta::ToolCall { index, call_id, name, arguments } => {
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
                    if let Some(voice) = &mut voice {
                        let chunks = voice.chunker.finish();
                        self.hand_over(voice, chunks, &mut milestones).await?;
                    }
                    return Ok((finish, usage));
                }
            }
        }
        Err(Stop::Failed("the language model stopped in the middle of its answer".into()))
    }

    async fn hand_over(
        &self,
        voice: &VoiceSender,
        chunks: Vec<Chunk>,
        milestones: &mut Milestones,
    ) -> Result<(), Stop> {
        for chunk in chunks {
            if std::mem::take(&mut milestones.first_chunk) {
                self.mark(Milestone::FirstChunk).await?;
            }
            voice.sender.send(VoiceInput::Chunk(chunk)).await.map_err(|_| Stop::Gone)?;
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
    ) -> Result<(), Stop> {
        let settings = &self.work.settings;
        let (mut listener, mut place) = (PlayoutEstimate::default(), passage);
        while let Some(piece) = pieces.recv().await {
            let chunk = match piece {
                VoiceInput::Chunk(chunk) => chunk,
                VoiceInput::Call(delta) => {
                    self.send(Event::ToolCall(delta)).await?;
                    continue;
                }
            };
            let mut raw = Some(chunk.raw);
            if !chunk.spoken.is_empty() {
                let (voice, unplayed) = (settings.voice.clone(), Some(listener.unplayed()));
                let text = chunk.spoken;
                let passage = Some(place);
                place = place.following();
                let (instructions, hop) = (settings.spoken_instructions(), first_hop.take());
                let immediate = self.brownout.is_at_least(BrownoutLevel::ShortLookAhead);
                let (seed, speed, meter) = (None, settings.speed, self.meters.tts.clone());
                let request =
                    SpeechRequest { text, voice, speed, unplayed, seed, passage, instructions, immediate, hop, meter };
                let mut stream = self.engines.tts.speak(request);
                while let Some(pcm) = stream.next().await {
                    let pcm = pcm.map_err(voice_failed)?;
                    self.served(&mut first_hop).await?;
                    if let Some(text) = raw.take() {
                        self.send(Event::Text { response: self.id(), text }).await?;
                    }
                    listener.hears(pcm.duration());
                    self.product(Product::Audio(self.id(), pcm, self.now())).await?;
                }
                self.served(&mut first_hop).await?;
                if let Some(opens) = voice_opens.take() {
                    opens.await.map_err(|_| Stop::Gone)?;
                }
            }
            if let Some(text) = raw {
                self.send(Event::Text { response: self.id(), text }).await?;
            }
        }
        Ok(())
    }

    /// The engine's other way to speak: a text that is still being written, where the engine takes one.
    fn text_speech(&self, passage: Passage, hop: Hop) -> Option<TextSpeech> {
        let (voice, speed) = (self.work.settings.voice.clone(), self.work.settings.speed);
        let instructions = self.work.settings.spoken_instructions();
        let (passage, meter) = (Some(passage), self.meters.tts.clone());
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
    ) -> Result<(), Stop> {
        let (mut speech, mut n_words) = (Some(speech), 0);
        while let Some(input) = inputs.recv().await {
            let call = match input {
                VoiceInput::Call(delta) => Some(delta),
                VoiceInput::Chunk(first) => {
                    let speech = speech
                        .take()
                        .or_else(|| self.text_speech(passage, hop.take()))
                        .ok_or_else(|| Stop::Failed("the voice engine takes no more words".into()))?;
                    let TextSpeech { words, speech } = speech;
                    let unspoken = Unspoken::default();
                    let feed = feed(first, &mut inputs, words, &unspoken, &mut voice_opens, &mut n_words);
                    let ((), behind) = tokio::try_join!(self.pass_on(speech, &unspoken, &mut hop), feed)?;
                    behind
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
        unspoken: &Unspoken,
        hop: &mut FirstHop,
    ) -> Result<(), Stop> {
        while let Some(part) = speech.next().await {
            match part.map_err(voice_failed)? {
                SpokenPart::Pieces(n) => self.send_text(unspoken.take(n)).await?,
                SpokenPart::Audio(pcm) => {
                    self.served(hop).await?;
                    self.product(Product::Audio(self.id(), pcm, self.now())).await?;
                }
            }
        }
        self.send_text(unspoken.take(usize::MAX)).await
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
            Some(served) => self.product(Product::Served(self.id(), served)).await,
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
    unspoken: &Unspoken,
    voice_opens: &mut Option<oneshot::Receiver<()>>,
    n_words: &mut usize,
) -> Result<Option<ToolCallDelta>, Stop> {
    let mut next = Some(VoiceInput::Chunk(first));
    while let Some(input) = next {
        let Chunk { raw, spoken } = match input {
            VoiceInput::Chunk(chunk) => chunk,
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
            let ended = |_| Stop::Failed("the voice engine stopped in the middle of the text".into());
            words.send(spoken).await.map_err(ended)?;
        }
        next = inputs.recv().await;
    }
    Ok(None)
}

/// Text that went to the engine and is not spoken yet, in pieces as the model wrote them. The bound of the model's answer
/// bounds it.
#[derive(Default)]
struct Unspoken {
    /// The piece, and whether the engine got words of it.
    pieces: Mutex<VecDeque<(String, bool)>>,
}

impl Unspoken {
    fn push(&self, raw: String, speaks: bool) {
        self.pieces().push_back((raw, speaks));
    }

    /// The text up to the end of the next `n` pieces that are spoken, with what is only shown around them.
    fn take(&self, n: usize) -> String {
        let (mut pieces, mut text, mut n_left) = (self.pieces(), String::new(), n);
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
struct VoiceSender {
    sender: mpsc::Sender<VoiceInput>,
    chunker: Chunker,
}

/// What goes from the model to the voice, in order.
enum VoiceInput {
    /// To be spoken.
    Chunk(Chunk),
    /// To be passed on behind the words before it.
    Call(ToolCallDelta),
}

/// The hop of a response's first request to the voice.
#[derive(Default)]
struct FirstHop {
    /// `None`: nothing was requested yet.
    hop: Option<Hop>,
    reported: Option<Served>,
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
    fn news(&mut self) -> Option<Served> {
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

fn model_failed(error: LlmError) -> Stop {
    let failure = match &error {
        LlmError::Away(_) => Failure::Away { away: error.client_message() },
        _ => Failure::Failed(error.client_message()),
    };
    failed("language model", &error, failure)
}

fn voice_failed(error: TtsError) -> Stop {
    let failure = match &error {
        TtsError::Away(_) => Failure::Away { away: error.client_message() },
        _ => Failure::Failed(error.client_message()),
    };
    failed("voice engine", &error, failure)
}

/// Logs an engine's failure with its causes, once.
fn failed(stage: &'static str, error: &dyn std::error::Error, failure: Failure) -> Stop {
    let causes = causes(error);
    tracing::warn!(stage, %error, ?causes, "a response failed");
    Stop::Failed(failure)
}

/// The causes of an error, the nearest first, for the log.
pub(super) fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |cause| cause.source()).map(ToString::to_string).collect()
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
    use antiphon_engine_api::tts::{Tts, Voice};
    use antiphon_types::chat::ChatRequest;
    use antiphon_types::{Format, TurnId};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio_util::task::TaskTracker;

    /// Speaks nothing, and notes which requests may not wait.
    struct Notes(std::sync::Mutex<Vec<bool>>);

    impl Tts for Notes {
        fn name(&self) -> &str {
            "notes"
        }

        fn voices(&self) -> Vec<Voice> {
            Vec::new()
        }

        fn speak(&self, request: SpeechRequest) -> futures_util::stream::BoxStream<'static, Result<Pcm, TtsError>> {
            self.0.lock().unwrap().push(request.immediate);
            Box::pin(futures_util::stream::empty())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_hub_lets_no_batch_of_speech_wait() {
        for (level, expect) in [(BrownoutLevel::NoSpeculation, false), (BrownoutLevel::ShortLookAhead, true)] {
            let (sender, mut products) = mpsc::channel(256);
            let notes = Arc::new(Notes(Default::default()));
            let mut responding = responding(sender);
            responding.engines.tts = notes.clone();
            responding.brownout.set(level);
            let reads = async { while products.recv().await.is_some() {} };
            tokio::join!(responding.run(), reads);
            assert_eq!(*notes.0.lock().unwrap(), [expect; 2], "{level:?}");
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
            tools: Vec::new(),
            tool_choice: Default::default(),
            servers: Vec::new(),
            server_choice: None,
            turn_detection: None,
            transcripts: false,
            filler_after: None,
            language_voices: None,
            live_transcripts: false,
            memory: Memory { budget: 8_000, conversation: None, truncation: Truncation::Disabled },
        };
        let (vad, stt) = (Arc::new(FakeVad), Arc::new(FakeStt::default()));
        let engines = Engines { vad, turn: None, stt, llm: Arc::new(llm), tts: Arc::new(tts) };
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

    /// Which workers a response named, and how many pieces of audio came before each.
    async fn workers_of(mut products: mpsc::Receiver<Box<Product>>) -> Vec<(String, u32, usize)> {
        let (mut named, mut n_audio) = (Vec::new(), 0);
        while let Some(product) = products.recv().await {
            match *product {
                Product::Served(_, served) => named.push((served.worker, served.retried, n_audio)),
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
        let spoken = Arc::new(std::sync::Mutex::new(0));
        let tts = CountingWords { inner: FakeTts::default().taking_words(), spoken: spoken.clone() };
        let mut work = responding_with(FakeLlm::says([text.as_str()]), FakeTts::default(), sender);
        work.engines.tts = Arc::new(tts);
        let task = TaskTracker::new().spawn(work.run_speculatively(released));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(*spoken.lock().unwrap(), SPECULATIVE_WORDS);
        release.send(()).expect("it waits");
        while products.recv().await.is_some() {}
        task.await.expect("no panic");
        assert_eq!(*spoken.lock().unwrap(), 20);
    }

    /// Counts the pieces that were spoken.
    struct CountingWords {
        inner: FakeTts,
        spoken: Arc<std::sync::Mutex<usize>>,
    }

    impl Tts for CountingWords {
        fn name(&self) -> &str {
            "counting"
        }

        fn voices(&self) -> Vec<Voice> {
            self.inner.voices()
        }

        fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
            self.inner.speak(request)
        }

        fn speak_text(&self, request: TextRequest) -> Option<TextSpeech> {
            let (speech, spoken) = (self.inner.speak_text(request)?, self.spoken.clone());
            let counted = speech.speech.inspect(move |part| {
                if let Ok(SpokenPart::Pieces(n)) = part {
                    *spoken.lock().unwrap() += n;
                }
            });
            Some(TextSpeech { words: speech.words, speech: counted.boxed() })
        }
    }
}
