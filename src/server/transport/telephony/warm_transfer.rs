//! Warm transfers: the hub calls the target, says the summary to it, and hands it over to be connected with the caller.
//!
//! [`super::sip`] and [`super::accounts`] run [`WarmTransfers::ready_target`] beside the conversation with the caller, who
//! waits meanwhile, and call targets by a [`TargetDialer`]. The call to the target is a call out with its limits, and a
//! session that recites the summary; who answers is found out as in other calls out, and a machine is no target. Dropping
//! the future gives the call to the target up.

use super::answerer::AnswerPlan;
use super::answering::AnsweredBy;
use super::bridge::BridgeSide;
use super::call_reports::CallReports;
use super::conversation::{self, Beginning, HeldLine, Over};
use super::outgoing::OutgoingEntry;
use super::reply_progress::{ReplySound, reply_progress};
use super::transfer_requests::{TransferRequests, WarmRequest};
use crate::config::OnVoicemail;
use crate::server::access::caller::{Caller, Credential};
use crate::server::transport::calls::{CallEntry, CallState};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::transfers::{NotConnected, TransferError};
use antiphon_protocol::{Patch, ServerVadUpdate, SessionUpdate, TurnDetectionUpdate};
use antiphon_types::KeyId;
use futures_util::future::BoxFuture;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A target that has not heard the summary by then is given up: it may have put the call on hold.
const READY_WITHIN: Duration = Duration::from_secs(240);

/// The longest wait until it is settled what the call does about who answered it: that is decided by then in nearly all
/// cases, and a line on hold decides nothing.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// Makes the warm transfers of one call.
pub(super) struct WarmTransfers<'a, D> {
    transport: &'a Arc<TransportParts>,
    dialer: &'a D,
    /// The caller's side of the conversation.
    line: HeldLine,
    /// See [`Beginning::plan_done`].
    plan_done: CancellationToken,
    reply: ReplySound,
}

/// Calls the targets of one call.
pub(super) trait TargetDialer: Sync {
    /// What keeps the call to a target.
    type Held: TargetHold;

    /// Calls a target that the settings allow, with a session that says the summary. Resolves once it has answered.
    /// Dropping the future gives the call up.
    fn dial(&self, target: String, summary: String) -> BoxFuture<'_, Result<DialedTarget<Self::Held>, TransferError>>;
}

/// What keeps the call to a target. Dropping it hangs up.
pub(super) trait TargetHold: Send {
    /// Resolves when the call is reported as over by another way than its connection. Cancel safe.
    fn ended(&mut self) -> BoxFuture<'_, ()>;

    /// The connection of the call has ended.
    fn connection_ended(&mut self);
}

/// A target that has answered, and what the call does about who has.
pub(super) struct DialedTarget<H> {
    pub(super) call: TargetCall<H>,
    pub(super) plan: AnswerPlan,
}

/// The call to a target. Dropping it hangs up.
pub(super) struct TargetCall<H> {
    pub(super) entry: OutgoingEntry,
    pub(super) side: BridgeSide,
    pub(super) held: H,
}

/// A target that has heard the summary, and who asked for it. Dropping it hangs up.
pub(super) struct ReadyTarget<H> {
    call: TargetCall<H>,
    answer: oneshot::Sender<Result<(), TransferError>>,
    underway: OwnedSemaphorePermit,
}

/// A target that is connected with the caller. Dropping it hangs up.
pub(super) struct ConnectedTarget<H> {
    pub(super) entry: OutgoingEntry,
    pub(super) side: BridgeSide,
    pub(super) held: H,
    /// Held as long as no other transfer of the caller may begin.
    pub(super) underway: OwnedSemaphorePermit,
}

impl<'a, D: TargetDialer> WarmTransfers<'a, D> {
    /// The transfers of a call whose conversation begins like this, and the beginning that they follow.
    pub(super) fn beside(transport: &'a Arc<TransportParts>, dialer: &'a D, beginning: Beginning) -> (Self, Beginning) {
        let Beginning { greeting, tracker, notice, answer, line, plan_done } = beginning;
        let tracker = tracker.unwrap_or_else(|| reply_progress("").0);
        let transfers =
            Self { transport, dialer, line: line.clone(), plan_done: plan_done.clone(), reply: tracker.sound() };
        (transfers, Beginning { greeting, tracker: Some(tracker), notice, answer, line, plan_done })
    }

    /// Serves requests until a target is ready, once it is settled what the call does about who answered it, and after
    /// [`SETTLED_WITHIN`] at the latest. One that is withdrawn before is dropped. After a failed one the caller is heard
    /// again. Never returns where no request comes.
    pub(super) async fn ready_target(mut self, requests: &mut TransferRequests) -> ReadyTarget<D::Held> {
        requests.begin();
        loop {
            let Some(request) = requests.next().await else { pending().await };
            let WarmRequest { target, summary, mut answer, underway } = request;
            let is_withdrawn = tokio::select! {
                biased;
                () = answer.closed() => true,
                () = self.plan_done.cancelled() => false,
                () = sleep(SETTLED_WITHIN) => false,
            };
            if is_withdrawn {
                continue;
            }
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
    async fn call(&self, target: String, summary: String) -> Result<TargetCall<D::Held>, TransferError> {
        let DialedTarget { call, plan } = self.dialer.dial(target, summary).await?;
        let TargetCall { entry, mut side, mut held } = call;
        let handed_over = CancellationToken::new();
        let on_voicemail = OnVoicemail::HangUp;
        let plan = AnswerPlan { on_voicemail, handed_over: Some(handed_over.clone()), ..plan };
        // The model of its session says the summary, whatever the instructions are.
        let beginning = Beginning { greeting: Some(String::new()), answer: Some(plan), ..Beginning::default() };
        let BridgeSide { link, leg, start, .. } = &mut side;
        let over = tokio::select! {
            biased;
            () = handed_over.cancelled() => None,
            over = conversation::converse(self.transport, &entry, leg.as_mut(), start, beginning, link) => {
                if matches!(over, Over::Gone) {
                    held.connection_ended();
                }
                Some(over)
            }
            () = held.ended() => Some(Over::Gone),
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
        Ok(TargetCall { entry, side, held })
    }
}

impl<H> ReadyTarget<H> {
    /// The agent of the caller leaves; both calls are listed and reported as connected, and who asked for it learns it.
    /// `direction`: of the caller's call, `in` or `out`.
    pub(super) fn connect(
        self,
        caller: &CallEntry,
        direction: &'static str,
        reports: &CallReports,
    ) -> ConnectedTarget<H> {
        let Self { call, answer, underway } = self;
        let TargetCall { entry, side, held } = call;
        caller.call().leave();
        caller.set_transferred(entry.id());
        entry.set_transferred(caller.id());
        reports.report_transfer(caller.id(), direction, entry.id());
        reports.report_transfer(entry.id(), "out", caller.id());
        // Who asked for it may be gone.
        let _ = answer.send(Ok(()));
        ConnectedTarget { entry, side, held, underway }
    }
}

/// Who calls the target of a call that belongs to this key.
pub(super) fn caller_of(owner: Option<KeyId>) -> Caller {
    let credential = if owner.is_some() { Credential::Key } else { Credential::Call };
    Caller { owner, settings: None, credential, language: None }
}

/// The session of a target: it speaks as that of the caller, hears words to find out who answers, and does not reply.
pub(super) fn settings_of_target(callers: Option<&SessionUpdate>) -> Arc<SessionUpdate> {
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
    Arc::new(settings)
}

/// What became of a target whose call was not answered.
pub(super) fn not_connected(state: CallState) -> NotConnected {
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
