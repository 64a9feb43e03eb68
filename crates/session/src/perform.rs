//! Performs the reducer's actions.

use super::AudioMode;
use super::actor::Actor;
use super::inline_audio::InlineAudio;
use super::project::{RESPONSE_FAILED, code_of};
use super::responding::{FailedStage, Responding, ResponseMeters};
use super::transcription_task::{INPUT_PIECES, TranscriptionInput, TranscriptionTask};
use super::voice::{Packing, Voice};
use antiphon_dialog::{Action, Modality, Notice, OutputChange, ResponseStatus, ResponseWork, StopReason, UtteranceEnd};
use antiphon_engine_api::Hop;
use antiphon_engine_api::stt::{SttOptions, TokenLogprob};
use antiphon_protocol::{INCLUDE_LOGPROBS, ServerEvent, SessionNotice};
use antiphon_telemetry::{Outcome, span};
use antiphon_types::{BrownoutLevel, Format, ItemId, Meter, ResponseId, SampleRate, Samples, Timestamp};
use std::collections::VecDeque;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;

/// What an event carries that the reducer does not take. Its actions refer to it by the item.
#[derive(Default)]
pub(super) struct EventPayload {
    /// Audio of the items of a client's event.
    pub(super) inline_audio: Vec<InlineAudio>,
    /// Of the transcript that the event brings.
    pub(super) logprobs: Option<TranscriptLogprobs>,
}

/// What the recognizer says of the tokens of a transcript.
pub(super) struct TranscriptLogprobs {
    pub(super) item: ItemId,
    pub(super) tokens: Vec<TokenLogprob>,
}

impl Actor {
    /// Performs the actions that an event led to, in order.
    pub(super) fn perform(&mut self, actions: Vec<Action>, mut payload: EventPayload) {
        for action in actions {
            match action {
                Action::OpenUtterance { item, audio_start } => self.open_utterance(item, audio_start),
                Action::CloseUtterance { item, end } => self.close_utterance(&item, end),
                Action::DropUtterance(item) => {
                    self.timeline.dropped(&item, self.now());
                    self.ingress.drop_utterance(&item);
                    self.transcriptions.remove(&item);
                }
                Action::Transcribe(item) => {
                    let at = payload.inline_audio.iter().position(|audio| audio.item == item);
                    self.transcribe(payload.inline_audio.swap_remove(at.expect("the event carried the item's audio")));
                }
                Action::ClearInput => self.restart_buffer(),
                Action::StartResponse(work) => self.start_response(*work),
                // Without a provisional transcript the dialog goes on as if there had been no pause.
                Action::TranscribeProvisionally(_) if self.setup.brownout.is_at_least(BrownoutLevel::NoSpeculation) => {
                }
                Action::TranscribeProvisionally(item) => {
                    self.timeline.speculation_started(&item, self.now());
                    self.ingress.request_provisional(&item);
                }
                Action::TranscribePartially(item) => self.ingress.request_partial(&item),
                Action::SpeakFiller { response, settings } => self.speak_filler(response, &settings),
                Action::StartSpeculative(work) => self.start_speculative(*work),
                Action::ReleaseSpeculative(id) => self.release_speculative(&id),
                Action::DropSpeculative { response, outcome, wasted } => {
                    self.drop_speculative(&response, outcome, wasted)
                }
                Action::StopResponse(id) => self.stop_response(&id),
                Action::ListTools { item, server } => self.list_tools(item, server),
                Action::CallRemote { item, call } => {
                    self.timeline.tool_called();
                    self.call_remote(item, call);
                }
                Action::StopRemote(item) => self.links.ended(&item),
                Action::Hold => {
                    self.setup.metrics.held();
                    self.egress.hold();
                }
                Action::Release { held_at } => {
                    self.egress.release();
                    if self.is_framed() {
                        self.playback.delayed(self.ingress.position().saturating_sub(held_at));
                        self.ingress.reply_resumed(held_at);
                    }
                }
                Action::Flush(response) => self.flush(response),
                Action::Notify(notice) => self.notify(notice, payload.logprobs.as_ref()),
            }
        }
    }

    fn open_utterance(&mut self, item: ItemId, audio_start: Samples) {
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        let guard = self.spawn(self.transcription_task(&item, input).run().instrument(span::turn(&item)));
        self.transcriptions.insert(item.clone(), guard);
        self.ingress.open(item, audio_start, sender);
    }

    /// Whether a turn that ends now is answered with sound, without another request of the client's.
    fn answers_with_sound(&self) -> bool {
        let settings = self.dialog.settings();
        let answers = settings.turn_detection.is_some_and(|detection| detection.create_response);
        answers && settings.modality == Modality::Audio
    }

    fn close_utterance(&mut self, item: &ItemId, end: UtteranceEnd) {
        let audio = self.ingress.close(item, end == UtteranceEnd::Committed);
        match end {
            UtteranceEnd::Detected => self.ingress.mark_buffer(),
            UtteranceEnd::Committed => {
                let now = self.now();
                self.timeline.utterance_ended(item, self.dialog.turn(), now, now);
            }
        }
        if let Some(audio) = audio {
            self.timeline.spoken(item, audio);
        }
    }

    fn transcribe(&mut self, audio: InlineAudio) {
        let item = audio.item.clone();
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        let transcription = self.transcription_task(&item, input).run();
        let work = async {
            tokio::join!(transcription, audio.send(sender));
        };
        let guard = self.spawn(work.instrument(span::turn(&item)));
        self.transcriptions.insert(item, guard);
    }

    fn transcription_task(&self, item: &ItemId, input: mpsc::Receiver<TranscriptionInput>) -> TranscriptionTask {
        let transcription = self.session.audio.input.transcription.as_ref();
        TranscriptionTask {
            item: item.clone(),
            stt: self.setup.engines.stt.clone(),
            options: SttOptions {
                language: self.setup.spoken_language(&self.session),
                prompt: transcription.and_then(antiphon_protocol::Transcription::expected),
                logprobs: self.session.include.iter().flatten().any(|name| name == INCLUDE_LOGPROBS),
                speaker: self.speaker.clone(),
                hop: Hop::requested(),
                meter: Meter::requested_by(self.requester),
                ..SttOptions::default()
            },
            timeout: self.setup.stt_timeout,
            input,
            backlog: VecDeque::new(),
            due: None,
            n_replayed: 0,
            reports: self.reports.clone(),
        }
    }

    fn start_response(&mut self, work: ResponseWork) {
        self.kind_is_fixed = true;
        let id = work.response.clone();
        let span = span::response(&work.response);
        let meters = ResponseMeters::requested_by(self.requester);
        self.timeline.response_started(&id, meters.clone(), self.now());
        let (voice, responding) = self.prepare(work, meters);
        let guard = match self.limits.begin_response() {
            Ok(()) => self.spawn(responding.run().instrument(span)),
            Err(limit) => self.spawn(self.refuse_response(id.clone(), limit, None)),
        };
        self.speaking.insert(id, (guard, voice));
    }

    /// The voice and the task of a response.
    pub(super) fn prepare(&self, work: ResponseWork, meters: ResponseMeters) -> (Voice, Responding) {
        let voice = self.voice(work.settings.output_format);
        let is_audio = work.settings.modality == Modality::Audio;
        tracing::debug!(turn = %work.turn, response = %work.response, audio = is_audio, "answering");
        let engines = self.setup.engines.clone();
        let products = self.products.clone();
        let brownout = self.setup.brownout.clone();
        let sees_causes = self.sees_causes;
        let clock = self.clock;
        (voice, Responding { work, engines, products, meters, brownout, sees_causes, clock })
    }

    /// The way out of a response's speech in this format.
    pub(super) fn voice(&self, format: Format) -> Voice {
        let packing = match self.mode {
            AudioMode::Events => Packing::Delta,
            AudioMode::Pcm16 => Packing::PcmFrames,
            AudioMode::Opus => Packing::OpusFrames(self.delivery),
        };
        Voice::new(format, packing)
    }

    /// Spawns a task that ends when its guard is dropped.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> DropGuard {
        let cancel = CancellationToken::new();
        let guard = cancel.clone().drop_guard();
        self.setup.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = work => {}
            }
        });
        guard
    }

    fn stop_response(&mut self, id: &ResponseId) {
        self.speaking.remove(id);
        self.failed_in.remove(id);
        self.drop_audio(id);
    }

    /// Drops the unsent audio of `response`, and has a client that plays from frames stop at once.
    fn flush(&mut self, response: ResponseId) {
        self.timeline.flushed(&response, self.now());
        self.ingress.reply_stopped();
        self.playback.stopped(self.ingress.position());
        self.drop_audio(&response);
        if self.is_framed() {
            for item in self.dialog.history().cut_items(&response) {
                self.tell_heard(item);
            }
            self.send(None, ServerEvent::OutputCleared { response_id: response });
        }
    }

    /// Tells a client that plays frames which words of a stopped item the conversation keeps.
    pub(super) fn tell_heard(&mut self, item_id: ItemId) {
        let now = self.now();
        let Some(spoken) = self.dialog.history().spoken(&item_id).filter(|spoken| spoken.is_cut()) else { return };
        let transcript = spoken.heard_words(now).to_owned();
        self.tell(SessionNotice::Heard { item_id, transcript });
    }

    fn drop_audio(&mut self, response: &ResponseId) {
        self.egress.drop_audio(response);
        for event in self.playback.drop_audio(response) {
            self.send(Some(response.clone()), event);
        }
    }

    fn notify(&mut self, notice: Notice, logprobs: Option<&TranscriptLogprobs>) {
        self.observe(&notice);
        let extension = matches!(
            notice,
            Notice::Held { .. }
                | Notice::Released { .. }
                | Notice::Backchannel { .. }
                | Notice::TranscriptDraft { .. }
                | Notice::ToolRoundsSpent { .. }
                | Notice::CallsRefused { .. }
                | Notice::InputCut { .. }
                | Notice::ModelLoading { .. }
        );
        if extension && !self.is_framed() {
            return;
        }
        let truncated = match &notice {
            Notice::ItemTruncated { item, .. } if self.is_framed() => Some(item.clone()),
            _ => None,
        };
        let (response, events) = self.projector.project(notice, &self.session, logprobs);
        for mut event in events {
            if let ServerEvent::RateLimitsUpdated { rate_limits } = &mut event {
                *rate_limits = self.limits.state();
            }
            let made = match &event {
                ServerEvent::OutputAudioDone { at } if self.is_framed() => Some(at.clone()),
                _ => None,
            };
            self.send(response.clone(), event);
            // Frames are paced: the last one leaves later than the voice has made it.
            if let Some(sent) = made.and_then(|at| self.playback.item_made(at)) {
                self.send(response.clone(), sent);
            }
        }
        if let Some(item) = truncated {
            self.tell_heard(item);
        }
    }

    /// Records a notice in the metrics and the timeline.
    fn observe(&mut self, notice: &Notice) {
        let now = self.now();
        if let Notice::ItemDone { .. }
        | Notice::ItemDeleted(_)
        | Notice::ItemTruncated { .. }
        | Notice::Transcript { .. }
        | Notice::SettingsUpdated
        | Notice::InputCleared
        | Notice::ResponseDone(_) = notice
        {
            self.note_change();
        }
        let metrics = self.setup.metrics.clone();
        match notice {
            Notice::SpeechStopped { item, audio_end } => {
                let waited = self.ingress.position().saturating_sub(*audio_end).duration(SampleRate::HZ_16000);
                let speech_end = Timestamp::new(now.since_start().saturating_sub(waited));
                self.timeline.utterance_ended(item, self.dialog.turn(), speech_end, now);
                if self.answers_with_sound() {
                    self.timeline.will_be_answered(item, now);
                }
                self.spoken_at(item, *audio_end);
                match self.ingress.decision() {
                    Some(decision) => {
                        tracing::debug!(?decision, "the turn is over");
                        self.timeline.decided(item, decision);
                    }
                    None => self.timeline.waited(item, waited),
                }
            }
            Notice::Committed { .. } => {
                metrics.turn();
                self.limits.turn();
            }
            Notice::SpeechStarted { item, .. } => self.timeline.speech_started(item.clone(), self.dialog.turn(), now),
            Notice::Backchannel { .. } => metrics.backchannel(),
            Notice::ToolRoundsSpent { response, rounds } => {
                tracing::warn!(
                    %response, rounds,
                    "the turn has used its rounds of tool calls (session.max_tool_rounds): the model answers without tools"
                );
            }
            Notice::CallsRefused { response, n, again: false } => {
                tracing::warn!(%response, n, "the model made calls that may not be made");
            }
            Notice::CallsRefused { response, n, again: true } => {
                tracing::warn!(%response, n, "the model made calls that may not be made, although it had no tools");
            }
            Notice::InputCut { response, tokens } => {
                tracing::warn!(
                    %response, tokens,
                    "the last turn is larger than session.history_tokens: a part of it was left out"
                );
            }
            Notice::ModelLoading { response, limit } => {
                tracing::info!(%response, limit_s = limit.as_secs(), "the language model may have to be loaded: waiting for it");
            }
            Notice::IdleTimeout { item, .. } => self.timeline.fell_silent(item),
            Notice::ItemAdded { item, response: None, .. } => self.timeline.item_added(item),
            Notice::ItemDeleted(item) => self.timeline.item_deleted(item),
            Notice::Output {
                response,
                change: OutputChange::TextDelta(text) | OutputChange::TranscriptDelta(text),
                ..
            } => match self.dialog.is_filling(response) {
                true => self.timeline.filled(text, now),
                false => self.timeline.said(response, text),
            },
            // A filler belongs to the turn that waits.
            Notice::ResponseCreated(view) if self.dialog.is_filling(&view.id) => {}
            Notice::ResponseCreated(view) => {
                self.timeline.response_created(&view.id, view.settings.in_conversation, now);
                self.timeline.will_sound(&view.id, view.settings.modality == Modality::Audio, now);
            }
            Notice::ResponseDone(view) => {
                let outcome = match &view.status {
                    ResponseStatus::InProgress | ResponseStatus::Completed => Outcome::Completed,
                    ResponseStatus::Cancelled(_) => Outcome::Cancelled,
                    ResponseStatus::Incomplete(_) => Outcome::Incomplete,
                    ResponseStatus::Failed(_) => Outcome::Failed,
                };
                metrics.response(outcome);
                let stage = self.failed_in.remove(&view.id);
                if let ResponseStatus::Failed(failure) = &view.status {
                    let stage = stage.map_or("none", FailedStage::as_str);
                    metrics.failed_response(code_of(failure, RESPONSE_FAILED), stage);
                }
                if let Some(usage) = &view.usage {
                    self.limits.response_done(usage);
                }
                self.timeline.response_done(view, now);
                if view.status == ResponseStatus::Cancelled(StopReason::TurnDetected) {
                    metrics.barge_in();
                }
                self.speaking.remove(&view.id);
            }
            _ => {}
        }
    }
}
