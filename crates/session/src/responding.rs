//! One response's work: the language model's stream, cut into chunks, spoken chunk by chunk.
//!
//! The actor starts one task for each response and pulls its products. The model runs at most two chunks ahead of the
//! voice, and the voice at most a few pieces ahead of the actor, so a listener who is behind slows the model down.
//! Dropping the future drops the model's stream and the synthesis with it.

use antiphon_dialog::{Event, Modality, ResponseWork, ToolCallDelta};
use antiphon_engine_api::Engines;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_engine_api::tts::{PlayoutEstimate, SpeechRequest};
use antiphon_text::{Chunk, Chunker, Language};
use antiphon_types::chat::{Finish, Usage};
use antiphon_types::{Pcm, ResponseId, Timestamp};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Chunks the model may be ahead of the voice.
const CHUNKS_AHEAD: usize = 2;

/// What a response makes, in order.
pub(super) enum Product {
    /// For the reducer.
    Event(Event),
    /// Speech of the chunk whose text came last, and when it was made.
    Audio(ResponseId, Pcm, Timestamp),
    /// A moment of the timeline.
    Mark(ResponseId, Milestone, Timestamp),
}

/// Opens when a guess was right: until then nothing of its work comes out.
pub(super) type Release = CancellationToken;

/// What the work on a guess may make before it is let out: all of a first chunk's audio in pieces of 40 ms and more.
const HELD_BACK: usize = 256;

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

/// The actor has gone, or the work failed in these words.
enum Stop {
    Gone,
    Failed(String),
}

/// What a response needs.
pub(super) struct Responding {
    pub(super) work: ResponseWork,
    pub(super) engines: Engines,
    pub(super) products: mpsc::Sender<Product>,
    /// The session's beginning.
    pub(super) clock: Instant,
    /// Of work on a guess.
    pub(super) release: Option<Release>,
}

impl Responding {
    /// Runs to the end of the answer. On a guess, what is made waits until it is let out, and no more than the first
    /// chunk is spoken.
    pub(super) async fn run(mut self) {
        let Some(gate) = self.release.clone() else { return self.answer().await };
        let (sender, mut held) = mpsc::channel(HELD_BACK);
        let products = std::mem::replace(&mut self.products, sender);
        let pass_on = async {
            gate.cancelled().await;
            while let Some(product) = held.recv().await {
                if products.send(product).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(self.answer(), pass_on);
    }

    async fn answer(mut self) {
        let result = match self.work.settings.modality {
            Modality::Audio => {
                let (pieces, speak) = mpsc::channel(CHUNKS_AHEAD);
                let chat = std::mem::take(&mut self.work.chat);
                tokio::try_join!(self.think(chat, Some(pieces)), self.speak(speak)).map(|(end, ())| end)
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
        let _ = self.send(Event::Finished { response: self.id(), outcome }).await;
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

    /// Speaks the chunks in order. A chunk's text goes out with its first sound, so that what is shown is spoken.
    async fn speak(&self, mut pieces: mpsc::Receiver<VoiceInput>) -> Result<(), Stop> {
        let settings = &self.work.settings;
        let mut playing = PlayoutEstimate::default();
        while let Some(piece) = pieces.recv().await {
            let chunk = match piece {
                VoiceInput::Chunk(chunk) => chunk,
                VoiceInput::Call(delta) => {
                    self.send(Event::ToolCall(delta)).await?;
                    continue;
                }
            };
            let mut text = Some(chunk.raw);
            if !chunk.spoken.is_empty() {
                let (voice, unplayed) = (settings.voice.clone(), Some(playing.unplayed()));
                let request = SpeechRequest { text: chunk.spoken, voice, speed: settings.speed, unplayed };
                let mut stream = self.engines.tts.speak(request);
                while let Some(pcm) = stream.next().await {
                    let pcm = pcm.map_err(|error| failed("voice engine", &error, error.client_message()))?;
                    if let Some(text) = text.take() {
                        self.send(Event::Text { response: self.id(), text }).await?;
                    }
                    playing.hears(pcm.duration());
                    self.product(Product::Audio(self.id(), pcm, self.now())).await?;
                }
                if let Some(gate) = &self.release {
                    gate.cancelled().await;
                }
            }
            if let Some(text) = text {
                self.send(Event::Text { response: self.id(), text }).await?;
            }
        }
        Ok(())
    }

    /// The language of the voice that will speak.
    fn language(&self) -> Language {
        Language::of_tag(self.engines.tts.language(&self.work.settings.voice))
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

/// Logs an engine's failure with its causes, once. `told` are the words for the client, who gets no more.
fn failed(stage: &'static str, error: &dyn std::error::Error, told: String) -> Stop {
    let causes = causes(error);
    tracing::warn!(stage, %error, ?causes, "a response failed");
    Stop::Failed(told)
}

/// What an error came from, the nearest first, for the log.
pub(super) fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |cause| cause.source()).map(ToString::to_string).collect()
}
