//! Warm transfers: the hub calls the target, says the summary to it, and hands it over to be connected with the caller.
//!
//! [`super::answered`] runs [`WarmTransfers::ready_target`] beside the conversation with the caller, who waits meanwhile.
//! The call to the target is a call out with its limits, and a session that recites the summary; who answers is found out
//! as in other calls out, and a machine is no target. Dropping the future gives the call to the target up.

use super::dial::{AnsweredDial, Dialer, NewDial, TrunkChoice};
use super::key_events::KeySender;
use super::media::{MediaSink, MediaSource, SipLeg};
use super::transfer::{CallOrigin, TransferRequests, WarmRequest};
use crate::config::OnVoicemail;
use crate::server::access::caller::{Caller, Credential};
use crate::server::transport::calls::CallState;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::answerer::AnswerPlan;
use crate::server::transport::telephony::answering::AnsweredBy;
use crate::server::transport::telephony::conversation::{self, Beginning, HeldLine};
use crate::server::transport::telephony::link;
use crate::server::transport::telephony::outgoing::OutgoingEntry;
use crate::server::transport::telephony::reply_progress::ReplySound;
use crate::server::transport::transfers::{NotConnected, TransferError};
use antiphon_protocol::{Patch, ServerVadUpdate, SessionUpdate, TurnDetectionUpdate};
use antiphon_sip::TrunkId;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A target that has not heard the summary by then is given up: it may have put the call on hold.
const READY_WITHIN: Duration = Duration::from_secs(240);

/// Makes the warm transfers of one call.
pub(super) struct WarmTransfers<'a> {
    pub(super) transport: &'a Arc<TransportParts>,
    pub(super) dialer: &'a Dialer,
    pub(super) origin: &'a CallOrigin,
    /// The caller's side of the conversation.
    pub(super) line: HeldLine,
    pub(super) reply: ReplySound,
}

/// A target that has heard the summary, and who asked for it. Dropping it hangs up.
pub(super) struct ReadyTarget {
    pub(super) call: TargetCall,
    pub(super) answer: oneshot::Sender<Result<(), TransferError>>,
    /// Held as long as no other transfer of the caller may begin.
    pub(super) underway: OwnedSemaphorePermit,
}

/// The call to a target, after the summary. Dropping it hangs up.
pub(super) struct TargetCall {
    pub(super) entry: OutgoingEntry,
    pub(super) source: Box<MediaSource>,
    pub(super) sink: Box<MediaSink>,
    pub(super) keys: KeySender,
    /// The trunk that made it.
    pub(super) trunk: TrunkId,
    /// Its place among the calls out.
    pub(super) place: OwnedSemaphorePermit,
}

impl WarmTransfers<'_> {
    /// Serves requests until a target is ready. After a failed one the caller is heard again. Never returns where no
    /// request comes.
    pub(super) async fn ready_target(mut self, requests: &mut TransferRequests) -> ReadyTarget {
        loop {
            let Some(request) = requests.next().await else { pending().await };
            let WarmRequest { target, summary, answer, underway } = request;
            // What was said before is heard first.
            self.reply.ended().await;
            self.line.hold(true);
            let call = match Box::pin(self.call(target, summary)).await {
                Ok(call) => call,
                Err(error) => {
                    tracing::info!(?error, "a warm transfer failed: the call goes on");
                    self.line.hold(false);
                    drop(underway);
                    // Who asked for it may be gone.
                    let _ = answer.send(Err(error));
                    continue;
                }
            };
            return ReadyTarget { call, answer, underway };
        }
    }

    /// Calls the target and says the summary to it.
    async fn call(&self, target: String, summary: String) -> Result<TargetCall, TransferError> {
        let CallOrigin { client, owner, trunk, settings } = self.origin;
        let credential = if owner.is_some() { Credential::Key } else { Credential::Call };
        let caller = Caller { owner: *owner, settings: None, credential, language: None };
        let new = NewDial {
            to: target,
            from: None,
            trunk: TrunkChoice::Preferred(*trunk),
            settings: Some(Arc::new(settings_of_target(settings.as_deref()))),
            recital: Some(summary),
        };
        let begun = self.dialer.begin(self.transport, (*client, caller), new).await;
        let dialed = begun.map_err(TransferError::NotDialed)?;
        let answered = dialed.answered().await;
        let answered = answered.map_err(|state| TransferError::NotConnected(not_connected(state)))?;
        let AnsweredDial { dialog, entry, keys, plan, origin, place, .. } = answered;
        let handed_over = CancellationToken::new();
        let on_voicemail = OnVoicemail::HangUp;
        let plan = AnswerPlan { on_voicemail, handed_over: Some(handed_over.clone()), ..plan };
        let (keys, key_events) = keys;
        let Ok((source, sink, start)) = dialog.open(&entry, key_events) else {
            entry.call().conclude("no codec");
            return Err(TransferError::NotConnected(NotConnected::Failed));
        };
        let mut link = link::media(source, sink);
        // The model of its session says the summary, whatever the instructions are.
        let beginning = Beginning { greeting: Some(String::new()), answer: Some(plan), ..Beginning::default() };
        let over = tokio::select! {
            biased;
            () = handed_over.cancelled() => None,
            over = conversation::converse(
                self.transport, &entry, Box::new(SipLeg), &start, beginning, &mut link,
            ) => Some(over),
            () = sleep(READY_WITHIN) => {
                entry.call().conclude("not ready in time");
                return Err(TransferError::NotConnected(NotConnected::Failed));
            }
        };
        if let Some(over) = over {
            entry.call().conclude(over.outcome());
            let why = match entry.answered_by() {
                Some(AnsweredBy::Voicemail | AnsweredBy::Screening | AnsweredBy::Ivr | AnsweredBy::Fax) => {
                    NotConnected::Machine
                }
                Some(AnsweredBy::Person | AnsweredBy::Unknown) | None => NotConnected::HungUp,
            };
            return Err(TransferError::NotConnected(why));
        }
        entry.call().conclude("transferred");
        entry.call().leave();
        let Some((source, sink)) = link::into_media(link) else {
            return Err(TransferError::NotConnected(NotConnected::Failed));
        };
        Ok(TargetCall { entry, source, sink, keys, trunk: origin.trunk, place })
    }
}

/// The session of a target: it speaks as that of the caller, hears words to find out who answers, and does not reply.
fn settings_of_target(callers: Option<&SessionUpdate>) -> SessionUpdate {
    let mut settings = SessionUpdate::default();
    if let Some(callers) = callers {
        settings.output = callers.output.clone();
        if let Patch::Set(_) = callers.input.transcription {
            settings.input.transcription = callers.input.transcription.clone();
        }
    }
    let detection = ServerVadUpdate {
        create_response: Some(false),
        interrupt_response: Some(false),
        idle_timeout_ms: Patch::Clear,
        ..ServerVadUpdate::default()
    };
    settings.input.turn_detection = Patch::Set(TurnDetectionUpdate::Server(detection));
    settings
}

fn not_connected(state: CallState) -> NotConnected {
    match state {
        CallState::Busy => NotConnected::Busy,
        CallState::Declined => NotConnected::Declined,
        CallState::NoAnswer => NotConnected::NoAnswer,
        CallState::Calling
        | CallState::Ringing
        | CallState::InProgress
        | CallState::Transferred
        | CallState::Ended
        | CallState::Failed => NotConnected::Failed,
    }
}
