//! What a session says: the tasks of responses under way, their voices, the speculative response and the filler.
//!
//! The actor starts and stops responses as the reducer decides, and gives the audio that their tasks make to the response's
//! [`Voice`]. It spawns the tasks, which give [`Product`]s to the actor, and asks the client's limits whether a response may begin.
//! It never decides whether something is said, sends nothing to the client and processes no product.

use super::filler;
use super::languages;
use super::limits::{LimitReached, SessionLimits};
use super::output::AudioMode;
use super::product::{FailedStage, FillerSpeech, Product, ResponseMeters};
use super::responding::Responding;
use super::setup::Setup;
use super::speculation::{SpeculationCost, SpeculativeTask};
use super::voice::{Packing, Voice};
use antiphon_audio::codec::Delivery;
use antiphon_dialog::{Event, Failure, Modality, ResponseSettings, ResponseWork, tokens_read};
use antiphon_engine_api::tts::{PlayoutEstimate, SpeechRequest};
use antiphon_telemetry::span;
use antiphon_types::{BrownoutLevel, Format, Meter, Requester, ResponseId};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tracing::Instrument;

/// How a session's client gets and reads its replies.
#[derive(Clone, Copy)]
pub(super) struct ReplyForm {
    pub(super) mode: AudioMode,
    pub(super) delivery: Delivery,
    /// The client reads why an upstream failed, in its words.
    pub(super) sees_causes: bool,
}

/// See the module.
pub(super) struct Speaking {
    setup: Arc<Setup>,
    /// Whose its requests to the engines are: the key's, or the session's.
    requester: Requester,
    products: mpsc::Sender<Box<Product>>,
    limits: Arc<dyn SessionLimits>,
    form: ReplyForm,
    /// The session's beginning.
    clock: Instant,
    /// Responses under way.
    responses: HashMap<ResponseId, ActiveResponse>,
    /// The stages that responses under way have failed in.
    failed_in: HashMap<ResponseId, FailedStage>,
    /// The filler that is being synthesized.
    filler: Option<DropGuard>,
    speculative: Option<SpeculativeTask>,
}

/// A response under way. Dropping it cancels its task.
struct ActiveResponse {
    _task: DropGuard,
    voice: Voice,
}

impl Speaking {
    /// `clock` is the session's beginning.
    pub(super) fn new(
        setup: Arc<Setup>,
        requester: Requester,
        products: mpsc::Sender<Box<Product>>,
        limits: Arc<dyn SessionLimits>,
        form: ReplyForm,
        clock: Instant,
    ) -> Self {
        let responses = HashMap::new();
        let failed_in = HashMap::new();
        Self { setup, requester, products, limits, form, clock, responses, failed_in, filler: None, speculative: None }
    }

    /// Meters for the requests of a response.
    pub(super) fn meters(&self) -> ResponseMeters {
        ResponseMeters::requested_by(self.requester)
    }

    /// Starts a response, or its refusal where a limit of the client is used up.
    pub(super) fn start(&mut self, work: ResponseWork, meters: ResponseMeters) {
        let id = work.response.clone();
        let span = span::response(&id);
        let voice = self.voice_in(work.settings.output_format);
        let responding = self.responding(work, meters);
        let task = match self.limits.begin_response() {
            Ok(()) => self.setup.spawn(responding.run().instrument(span)),
            Err(limit) => self.setup.spawn(refuse(self.products.clone(), id.clone(), limit, None)),
        };
        self.responses.insert(id, ActiveResponse { _task: task, voice });
    }

    /// Starts a speculative response, whose output is withheld.
    pub(super) fn start_speculative(&mut self, work: ResponseWork, meters: ResponseMeters) {
        let id = work.response.clone();
        let span = span::response(&id);
        let mut cost = SpeculationCost::new(self.limits.clone(), tokens_read(&work.chat));
        let voice = self.voice_in(work.settings.output_format);
        let responding = self.responding(work, meters);
        let (release, released) = oneshot::channel();
        let speculative = match self.limits.may_respond() {
            Ok(()) => {
                let task = self.setup.spawn(responding.run_speculatively(released).instrument(span));
                SpeculativeTask::new(id, release, task, voice, cost)
            }
            Err(limit) => {
                cost.waive();
                let task = self.setup.spawn(refuse(self.products.clone(), id.clone(), limit, Some(released)));
                SpeculativeTask::new(id, release, task, voice, cost).refused()
            }
        };
        self.speculative = Some(speculative);
    }

    /// Releases the output of the speculative response; says whether it is there.
    pub(super) fn release_speculative(&mut self, id: &ResponseId) -> bool {
        let Some(speculative) = self.speculative.take_if(|task| task.is_of(id)) else {
            tracing::error!(response = %id, "a speculative response that was never started was released");
            return false;
        };
        if speculative.is_allowed() {
            self.limits.response_begun();
        }
        let (task, voice) = speculative.release();
        self.responses.insert(id.clone(), ActiveResponse { _task: task, voice });
        true
    }

    /// Drops the speculative response.
    pub(super) fn drop_speculative(&mut self, id: &ResponseId) {
        self.speculative.take_if(|task| task.is_of(id));
    }

    /// Which stage a response fails in; its end follows. One that was stopped ends otherwise.
    pub(super) fn failed(&mut self, id: ResponseId, stage: FailedStage) {
        if self.responses.contains_key(&id) {
            self.failed_in.insert(id, stage);
        }
    }

    /// A response has ended, or is stopped. Returns the stage that it failed in.
    pub(super) fn end(&mut self, id: &ResponseId) -> Option<FailedStage> {
        self.responses.remove(id);
        self.failed_in.remove(id)
    }

    /// The voice of a response under way.
    pub(super) fn voice(&mut self, id: &ResponseId) -> Option<&mut Voice> {
        self.responses.get_mut(id).map(|response| &mut response.voice)
    }

    /// Starts to synthesize a filler for `response`, in the language of its speech. Returns its meter; `None`: no words are
    /// configured for that language.
    pub(super) fn start_filler(&mut self, response: ResponseId, settings: &ResponseSettings) -> Option<Meter> {
        let tts = self.setup.engines.tts.clone();
        let language = languages::of_speech(tts.as_ref(), settings);
        let Some(text) = self.setup.session.fillers.get(&language).cloned() else {
            tracing::debug!(%language, "no filler: session.fillers has none in the voice's language");
            return None;
        };
        let meter = Meter::requested_by(self.requester);
        let request = SpeechRequest {
            text,
            voice: settings.voice.clone(),
            speed: settings.speed,
            unplayed: Some(PlayoutEstimate::default().unplayed()),
            instructions: settings.spoken_instructions(),
            immediate: self.setup.brownout.is_at_least(BrownoutLevel::ShortLookAhead),
            meter: meter.clone(),
            ..SpeechRequest::default()
        };
        let work = filler::synthesize(tts, request, response, settings.output_format, self.products.clone());
        self.filler = Some(self.setup.spawn(work));
        Some(meter)
    }

    /// A filler is about to sound. A response of its own has no task that would have opened a voice; it ends with this filler.
    pub(super) fn open_filler(&mut self, filler: &FillerSpeech) {
        if !self.responses.contains_key(&filler.response)
            && let Some(task) = self.filler.take()
        {
            let voice = self.voice_in(filler.format);
            self.responses.insert(filler.response.clone(), ActiveResponse { _task: task, voice });
        }
    }

    /// Whether no response is under way, a speculative one included.
    pub(super) fn is_quiet(&self) -> bool {
        self.responses.is_empty() && self.speculative.is_none()
    }

    fn responding(&self, work: ResponseWork, meters: ResponseMeters) -> Responding {
        let is_audio = work.settings.modality == Modality::Audio;
        tracing::debug!(turn = %work.turn, response = %work.response, audio = is_audio, "answering");
        let engines = self.setup.engines.clone();
        let products = self.products.clone();
        let brownout = self.setup.brownout.clone();
        let sees_causes = self.form.sees_causes;
        let clock = self.clock;
        Responding { work, engines, products, meters, brownout, sees_causes, clock }
    }

    /// The way out of speech in this format.
    fn voice_in(&self, format: Format) -> Voice {
        let packing = match self.form.mode {
            AudioMode::Events => Packing::Delta,
            AudioMode::Pcm16 => Packing::PcmFrames,
            AudioMode::Opus => Packing::OpusFrames(self.form.delivery),
        };
        Voice::new(format, packing)
    }
}

/// Sends a response's failure for a limit that is used up, once `release` is sent to. Ends without it if that is dropped.
async fn refuse(
    products: mpsc::Sender<Box<Product>>,
    response: ResponseId,
    limit: LimitReached,
    release: Option<oneshot::Receiver<()>>,
) {
    if let Some(release) = release
        && release.await.is_err()
    {
        return;
    }
    let outcome = Err(Failure::Limited { limited: limit.0 });
    // The session has ended otherwise.
    let _ = products.send(Box::new(Product::Event(Event::ResponseFinished { response, outcome }))).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::Opening;
    use crate::testing::{StrictLimits, begun};
    use antiphon_types::TurnId;
    use antiphon_types::chat::ChatRequest;
    use std::sync::atomic::Ordering;

    struct Rig {
        speaking: Speaking,
        products: mpsc::Receiver<Box<Product>>,
        work: ResponseWork,
    }

    fn rig(limits: Option<Arc<dyn SessionLimits>>) -> Rig {
        let (setup, beginning) = begun(Opening { limits, ..Opening::default() });
        let settings = ResponseSettings::resolve(beginning.dialog.settings(), &Default::default());
        let work = ResponseWork { response: "resp_1".into(), turn: TurnId(1), chat: ChatRequest::default(), settings };
        let (sender, products) = mpsc::channel(256);
        let limits = beginning.client.limits;
        let speaking = Speaking::new(setup, beginning.requester, sender, limits, beginning.form, beginning.clock);
        Rig { speaking, products, work }
    }

    async fn end(products: &mut mpsc::Receiver<Box<Product>>) -> Result<(), Failure> {
        loop {
            if let Product::Event(Event::ResponseFinished { outcome, .. }) = *products.recv().await.expect("an end") {
                return outcome.map(drop);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_under_way_until_it_ends_and_has_the_stage_that_it_failed_in() {
        let Rig { mut speaking, mut products, work } = rig(None);
        let id = work.response.clone();
        speaking.failed(id.clone(), FailedStage::Tts);
        assert_eq!(speaking.end(&id), None, "it was not under way");
        let meters = speaking.meters();
        speaking.start(work, meters);
        assert!(!speaking.is_quiet() && speaking.voice(&id).is_some());
        assert_eq!(end(&mut products).await, Ok(()));
        speaking.failed(id.clone(), FailedStage::Tts);
        assert_eq!(speaking.end(&id), Some(FailedStage::Tts));
        assert!(speaking.is_quiet() && speaking.voice(&id).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_beyond_a_limit_fails_so() {
        let Rig { mut speaking, mut products, work } = rig(Some(Arc::new(StrictLimits::default())));
        let meters = speaking.meters();
        speaking.start(work, meters);
        assert_eq!(end(&mut products).await, Err(Failure::Limited { limited: "no more".into() }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_speculative_response_is_one_of_the_session_once_it_is_released() {
        let Rig { mut speaking, mut products, work } = rig(None);
        let id = work.response.clone();
        let meters = speaking.meters();
        speaking.start_speculative(work, meters);
        assert!(!speaking.is_quiet() && speaking.voice(&id).is_none());
        assert!(!speaking.release_speculative(&"resp_2".into()), "another one");
        assert!(speaking.release_speculative(&id));
        assert!(speaking.voice(&id).is_some());
        assert_eq!(end(&mut products).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_speculative_response_that_is_refused_does_not_count() {
        let limits = Arc::new(StrictLimits::default());
        let Rig { mut speaking, mut products, work } = rig(Some(limits.clone()));
        let id = work.response.clone();
        let meters = speaking.meters();
        speaking.start_speculative(work, meters);
        assert!(speaking.release_speculative(&id));
        assert_eq!(end(&mut products).await, Err(Failure::Limited { limited: "no more".into() }));
        assert_eq!(limits.begun.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_speculation_that_is_dropped_is_charged_once() {
        let limits = Arc::new(StrictLimits::default());
        drop(SpeculationCost::new(limits.clone(), 7));
        let mut waived = SpeculationCost::new(limits.clone(), 9);
        waived.waive();
        drop(waived);
        assert_eq!(limits.dropped.load(Ordering::Relaxed), 7);
    }
}
