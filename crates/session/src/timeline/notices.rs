//! What the notices of the reducer mean for the records of a session: its turns, the metrics, and what the client has used.
//!
//! The actor gives each notice once, before the client gets it.

use super::Timeline;
use crate::clock::ClientClock;
use crate::product::FailedStage;
use crate::project::{RESPONSE_FAILED, code_of};
use antiphon_dialog::turn::Decision;
use antiphon_dialog::{Dialog, Modality, Notice, OutputChange, ResponseStatus, ResponseView, StopReason};
use antiphon_telemetry::Outcome;
use antiphon_types::{ItemId, SampleRate, Samples, Timestamp};

/// What the session knows when a notice is given.
pub(crate) struct NoticeContext<'a> {
    pub(crate) now: Timestamp,
    pub(crate) dialog: &'a Dialog,
    /// Turn time.
    pub(crate) position: Samples,
    /// Why the last utterance ended when it did, where the wait adapts.
    pub(crate) decision: Option<&'a Decision>,
    pub(crate) client_clock: &'a ClientClock,
    /// The stage that the response failed in, whose end the notice is.
    pub(crate) failed_in: Option<FailedStage>,
}

impl Timeline {
    /// Records a notice.
    pub(crate) fn observe(&mut self, notice: &Notice, context: &NoticeContext<'_>) {
        let now = context.now;
        let dialog = context.dialog;
        match notice {
            Notice::SpeechStarted { item, .. } => self.speech_started(item.clone(), dialog.turn(), now),
            Notice::SpeechStopped { item, audio_end } => self.speech_stopped(item, *audio_end, context),
            Notice::Committed { .. } => {
                self.metrics.turn();
                self.limits.turn();
            }
            Notice::Backchannel { .. } => self.metrics.backchannel(),
            Notice::SpeechIgnored { .. } => self.metrics.speech_ignored(),
            Notice::IdleTimeout { item, .. } => self.fell_silent(item),
            Notice::ItemAdded { item, response: None, .. } => self.item_added(item),
            Notice::ItemDeleted(item) => self.item_deleted(item),
            Notice::Output {
                response,
                change: OutputChange::TextDelta(text) | OutputChange::TranscriptDelta(text),
                ..
            } => match dialog.is_filling(response) {
                true => self.filled(text, now),
                false => self.said(response, text),
            },
            // A filler belongs to the turn that waits.
            Notice::ResponseCreated(view) if dialog.is_filling(&view.id) => {}
            Notice::ResponseCreated(view) => {
                self.response_created(&view.id, view.settings.in_conversation, now);
                self.will_sound(&view.id, view.settings.modality == Modality::Audio, now);
            }
            Notice::ResponseDone(view) => self.response_ended(view, context),
            Notice::ToolRoundsSpent { .. }
            | Notice::CallsRefused { .. }
            | Notice::InputCut { .. }
            | Notice::ModelLoading { .. } => log(notice),
            _ => {}
        }
    }

    fn speech_stopped(&mut self, item: &ItemId, audio_end: Samples, context: &NoticeContext<'_>) {
        let now = context.now;
        let rate = SampleRate::HZ_16000;
        let waited = context.position.saturating_sub(audio_end).duration(rate);
        self.utterance_ended(item, context.dialog.turn(), now.before(waited), now);
        let settings = context.dialog.settings();
        let answers = settings.turn_detection.is_some_and(|detection| detection.create_response);
        if answers && settings.modality == Modality::Audio {
            self.will_be_answered(item, now);
        }
        if let Some(at) = context.client_clock.captured(audio_end.duration(rate)) {
            self.spoken_at(item, at);
        }
        match context.decision {
            Some(decision) => {
                tracing::debug!(?decision, "the turn is over");
                self.decided(item, decision);
            }
            None => self.waited(item, waited),
        }
    }

    fn response_ended(&mut self, view: &ResponseView, context: &NoticeContext<'_>) {
        let outcome = match &view.status {
            ResponseStatus::InProgress | ResponseStatus::Completed => Outcome::Completed,
            ResponseStatus::Cancelled(_) => Outcome::Cancelled,
            ResponseStatus::Incomplete(_) => Outcome::Incomplete,
            ResponseStatus::Failed(_) => Outcome::Failed,
        };
        self.metrics.response(outcome);
        if let ResponseStatus::Failed(failure) = &view.status {
            let stage = context.failed_in.map_or("none", FailedStage::as_str);
            self.metrics.failed_response(code_of(failure, RESPONSE_FAILED), stage);
        }
        if let Some(usage) = &view.usage {
            self.limits.response_done(usage);
        }
        self.response_done(view, context.now);
        if view.status == ResponseStatus::Cancelled(StopReason::TurnDetected) {
            self.metrics.barge_in();
        }
    }
}

/// Logs what the hub did about a request to the model.
fn log(notice: &Notice) {
    match notice {
        Notice::ToolRoundsSpent { response, rounds } => tracing::warn!(
            %response, rounds,
            "the turn has used its rounds of tool calls (session.max_tool_rounds): the model answers without tools"
        ),
        Notice::CallsRefused { response, n, again: false } => {
            tracing::warn!(%response, n, "the model made calls that may not be made");
        }
        Notice::CallsRefused { response, n, again: true } => {
            tracing::warn!(%response, n, "the model made calls that may not be made, although it had no tools");
        }
        Notice::InputCut { response, tokens } => tracing::warn!(
            %response, tokens,
            "the last turn is larger than session.history_tokens: a part of it was left out"
        ),
        Notice::ModelLoading { response, limit } => {
            tracing::info!(%response, limit_s = limit.as_secs(), "the language model may have to be loaded: waiting for it");
        }
        _ => {}
    }
}
