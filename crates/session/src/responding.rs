//! One response's work: the language model's stream, cut into chunks, spoken chunk by chunk.
//!
//! The actor starts one task for each response and pulls its products. The model runs at most two chunks ahead of the
//! voice, and the voice at most a few pieces ahead of the actor: a slow listener slows the model down.
//! Dropping the future drops the model's stream and the synthesis with it.

use antiphon_dialog::{Event, Modality, ResponseWork, ToolCallDelta};
use antiphon_engine_api::Engines;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_engine_api::tts::{Passage, PlayoutEstimate, SpeechRequest};
use antiphon_text::{Chunk, Chunker, Language};
use antiphon_types::chat::{Finish, Usage};
use antiphon_types::{Pcm, ResponseId, Timestamp};
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Chunks the model may be ahead of the voice.
const CHUNKS_AHEAD: usize = 2;

/// Output of a response's work, in order.
pub(super) enum Product {
    /// For the reducer.
    Event(Event),
    /// Speech of the chunk whose text came last, and when it was synthesized.
    Audio(ResponseId, Pcm, Timestamp),
    /// A moment of the timeline.
    Mark(ResponseId, Milestone, Timestamp),
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

/// Why a response's work ends early: the actor has gone, or a stage failed (the message is for the client).
enum Stop {
    Gone,
    Failed(String),
}

/// The task of one response.
pub(super) struct Responding {
    pub(super) work: ResponseWork,
    pub(super) engines: Engines,
    pub(super) products: mpsc::Sender<Product>,
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
                let (pieces, speak) = mpsc::channel(CHUNKS_AHEAD);
                let chat = std::mem::take(&mut self.work.chat);
                tokio::try_join!(self.think(chat, Some(pieces)), self.speak(speak, voice_opens)).map(|(end, ())| end)
            }
            Modality::Text => {
                let chat = std::mem::take(&mut self.work.chat);
                self.think(chat, None).await
            }
        };
        let outcome = match result {
            Ok(end) => Ok(end),
            Err(Stop::Failed(message)) => Err(message),
            Err(Stop::Gone) => return,
        };
        let _ = self.send(Event::ResponseFinished { response: self.id(), outcome }).await;
    }

    /// Streams the model's answer: text to the voice, or to the reducer when there is none.
    async fn think(
        &self,
        chat: antiphon_types::chat::ChatRequest,
        voice: Option<mpsc::Sender<VoiceInput>>,
    ) -> Result<(Finish, Option<Usage>), Stop> {
        let mut stream = self.engines.llm.stream(chat);
        let mut chunker = Chunker::new(self.language());
        let mut milestones = Milestones { first_token: true, first_chunk: true };
        while let Some(delta) = stream.next().await {
            let delta = delta.map_err(|error| failed("language model", &error, error.client_message()))?;
            if std::mem::take(&mut milestones.first_token) {
                self.mark(Milestone::FirstToken).await?;
            }
            match delta {
                LlmDelta::Text(text) => match &voice {
                    None => self.send(Event::Text { response: self.id(), text }).await?,
                    Some(voice) => self.hand_over(voice, chunker.push(&text), &mut milestones).await?,
                },
                LlmDelta::ToolCall { index, call_id, name, arguments } => {
                    let response = self.id();
                    let delta = ToolCallDelta { response, index, call_id, name, arguments };
                    match &voice {
                        None => self.send(Event::ToolCall(delta)).await?,
                        Some(voice) => {
                            // The words before a call come before it, spoken.
                            self.hand_over(voice, chunker.finish(), &mut milestones).await?;
                            voice.send(VoiceInput::Call(delta)).await.map_err(|_| Stop::Gone)?;
                        }
                    }
                }
                LlmDelta::Done { finish, usage } => {
                    self.mark(Milestone::LastToken).await?;
                    if let Some(voice) = &voice {
                        self.hand_over(voice, chunker.finish(), &mut milestones).await?;
                    }
                    return Ok((finish, usage));
                }
            }
        }
        Err(Stop::Failed("the language model stopped in the middle of its answer".into()))
    }

    async fn hand_over(
        &self,
        voice: &mpsc::Sender<VoiceInput>,
        chunks: Vec<Chunk>,
        milestones: &mut Milestones,
    ) -> Result<(), Stop> {
        for chunk in chunks {
            if std::mem::take(&mut milestones.first_chunk) {
                self.mark(Milestone::FirstChunk).await?;
            }
            voice.send(VoiceInput::Chunk(chunk)).await.map_err(|_| Stop::Gone)?;
        }
        Ok(())
    }

    /// Speaks the chunks in order. A chunk's text is sent with its first audio, so that the text shown is spoken.
    /// Of a speculative response, chunks after the first wait for `voice_opens`.
    async fn speak(
        &self,
        mut pieces: mpsc::Receiver<VoiceInput>,
        mut voice_opens: Option<oneshot::Receiver<()>>,
    ) -> Result<(), Stop> {
        let settings = &self.work.settings;
        let (mut listener, passage) = (PlayoutEstimate::default(), Some(Passage::next()));
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
                let (text, speed) = (chunk.spoken, settings.speed);
                let request = SpeechRequest { text, voice, speed, unplayed, passage, ..SpeechRequest::default() };
                let mut stream = self.engines.tts.speak(request);
                while let Some(pcm) = stream.next().await {
                    let pcm = pcm.map_err(|error| failed("voice engine", &error, error.client_message()))?;
                    if let Some(text) = raw.take() {
                        self.send(Event::Text { response: self.id(), text }).await?;
                    }
                    listener.hears(pcm.duration());
                    self.product(Product::Audio(self.id(), pcm, self.now())).await?;
                }
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

    /// The language of the voice that will speak.
    fn language(&self) -> Language {
        Language::of_tag(&self.engines.tts.language(&self.work.settings.voice))
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

    async fn send(&self, event: Event) -> Result<(), Stop> {
        self.product(Product::Event(event)).await
    }

    async fn product(&self, product: Product) -> Result<(), Stop> {
        self.products.send(product).await.map_err(|_| Stop::Gone)
    }
}

/// What goes from the model to the voice, in order.
enum VoiceInput {
    /// To be spoken.
    Chunk(Chunk),
    /// To be passed on behind the words before it.
    Call(ToolCallDelta),
}

/// Which moments are still to come.
struct Milestones {
    first_token: bool,
    first_chunk: bool,
}

/// Logs an engine's failure with its causes, once. `message` is what the client gets.
fn failed(stage: &'static str, error: &dyn std::error::Error, message: String) -> Stop {
    let causes = causes(error);
    tracing::warn!(stage, %error, ?causes, "a response failed");
    Stop::Failed(message)
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
    use antiphon_types::chat::ChatRequest;
    use antiphon_types::{Format, TurnId};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio_util::task::TaskTracker;

    fn responding(products: mpsc::Sender<Product>) -> Responding {
        let settings = Settings {
            instructions: String::new(),
            modality: Modality::Audio,
            voice: "any".into(),
            speed: 1.0,
            output_format: Format::Pcm16,
            max_output_tokens: None,
            tools: Vec::new(),
            tool_choice: Default::default(),
            servers: Vec::new(),
            server_choice: None,
            turn_detection: None,
            transcripts: false,
            live_transcripts: false,
            memory: Memory { budget: 8_000, conversation: None, truncation: Truncation::Disabled },
        };
        let (vad, stt) = (Arc::new(FakeVad), Arc::new(FakeStt::default()));
        let llm = Arc::new(FakeLlm::says(["One sentence is here. And another one is there."]));
        let engines = Engines { vad, turn: None, stt, llm, tts: Arc::new(FakeTts::default()) };
        let chat = ChatRequest {
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: Default::default(),
            max_tokens: None,
            user: None,
        };
        let settings = ResponseSettings::resolve(&settings, &Default::default());
        let work = ResponseWork { response: "resp_1".into(), turn: TurnId(1), chat, settings };
        Responding { work, engines, products, clock: Instant::now() }
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
            finished = matches!(product, Product::Event(Event::ResponseFinished { .. }));
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
}
