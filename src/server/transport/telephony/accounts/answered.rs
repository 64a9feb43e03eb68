//! A call of an account from its stream on: its conversation, and, after a warm transfer, its connection with another
//! call.
//!
//! [`super::call`] runs [`serve_answered`] for calls out, [`super::super::arrival`] [`serve_call_in`] for calls in. The
//! call to a transfer's target is part of the same task and ends with it. The call itself is its caller's to end.

use super::dial::ended;
use super::provider::EndCause;
use super::warm_transfer::{AccountTarget, AccountTargets};
use super::{Accounts, CallOrigin};
use crate::server::transport::calls::{CallEntry, CallState};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::answerer::AnswerPlan;
use crate::server::transport::telephony::bridge::{self, BridgeEnd, BridgeSide};
use crate::server::transport::telephony::conversation::{self, Beginning, Over};
use crate::server::transport::telephony::link;
use crate::server::transport::telephony::recording_notice::RecordingNotice;
use crate::server::transport::telephony::reply_progress::ReplyTracker;
use crate::server::transport::telephony::transfer_requests::TransferRequests;
use crate::server::transport::telephony::warm_transfer::{ConnectedTarget, WarmTransfers};
use antiphon_session::Close;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A call that has its stream and its session.
pub(in crate::server::transport::telephony) struct AnsweredCall {
    /// Follows the reply for the call's tools; `None`: it has none.
    pub(in crate::server::transport::telephony) tracker: Option<ReplyTracker>,
    pub(in crate::server::transport::telephony) requests: TransferRequests,
    /// Instructions of the first reply.
    pub(in crate::server::transport::telephony) greeting: Option<String>,
    /// Said before that; `None`: nothing is.
    pub(in crate::server::transport::telephony) notice: Option<RecordingNotice>,
    /// What the hub does about who answers; `None`: it did not call.
    pub(in crate::server::transport::telephony) answer: Option<AnswerPlan>,
    pub(in crate::server::transport::telephony) origin: CallOrigin,
    /// `in` or `out`.
    pub(in crate::server::transport::telephony) direction: &'static str,
}

/// How a call ends.
pub(super) struct CallEnd {
    /// For its stream.
    pub(super) over: Over,
    /// For its provider.
    pub(super) cause: EndCause,
}

impl CallEnd {
    /// The peer ended it, or the hub does.
    fn of(over: Over) -> Self {
        let cause = if matches!(over, Over::Gone) { EndCause::StreamEnded } else { EndCause::Hub };
        Self { over, cause }
    }

    /// The hub ends it because the other call has ended, or a client wants it.
    fn by_hub(reason: &'static str) -> Self {
        Self::closed(Close { code: 1000, reason })
    }

    /// The hub ends it, with this close of its stream.
    fn closed(close: Close) -> Self {
        Self { over: Over::Close(close.code, close.reason.into()), cause: EndCause::Hub }
    }
}

/// Serves a call that has come in until it ends, reports that, and gives how.
pub(in crate::server::transport::telephony) async fn serve_call_in(
    transport: &Arc<TransportParts>,
    accounts: &Accounts,
    entry: &CallEntry,
    call: AnsweredCall,
    side: &mut BridgeSide,
) -> Over {
    accounts.reports.report(entry.id(), "in", CallState::InProgress);
    let end = serve_answered(transport, accounts, entry, call, side, pending()).await;
    accounts.reports.report(entry.id(), "in", CallState::Ended);
    end.over
}

/// Serves a listed call until it ends. `reported`: resolves when its provider reports that it is over.
pub(super) async fn serve_answered(
    transport: &Arc<TransportParts>,
    accounts: &Accounts,
    entry: &CallEntry,
    call: AnsweredCall,
    side: &mut BridgeSide,
    reported: impl Future<Output = EndCause>,
) -> CallEnd {
    let AnsweredCall { tracker, mut requests, greeting, notice, answer, origin, direction } = call;
    let targets = AccountTargets { transport, accounts, origin: &origin };
    let beginning = Beginning { greeting, tracker, notice, answer, ..Beginning::default() };
    let (transfers, beginning) = WarmTransfers::beside(transport, &targets, beginning);
    let mut reported = pin!(reported);
    let BridgeSide { link, leg, start, .. } = &mut *side;
    let target = tokio::select! {
        biased;
        over = conversation::converse(transport, entry, leg.as_mut(), start, beginning, link) => {
            return CallEnd::of(over);
        }
        cause = &mut reported => return CallEnd { over: Over::Gone, cause },
        target = transfers.ready_target(&mut requests) => target,
    };
    entry.call().conclude("transferred");
    let target = target.connect(entry, direction, &accounts.reports);
    let ConnectedTarget { entry: target_entry, side: mut target_side, held, underway: _underway } = target;
    let AccountTarget { mut at_provider, mut expected, place: _place, connection } = held;
    let target_call = at_provider.call().clone();
    // Of the target's stream.
    let mut target_close = Close { code: 1000, reason: "the call has ended" };
    let ping_every = Duration::from_secs(u64::from(transport.sessions.edge.config.ping_seconds));
    let end = tokio::select! {
        biased;
        end = bridge::run(side, &mut target_side, ping_every) => match end {
            BridgeEnd::One(over) => CallEnd::of(over),
            BridgeEnd::Other(over) => {
                at_provider.is_over(CallEnd::of(over).cause);
                CallEnd::by_hub("the other side has hung up")
            }
        },
        cause = &mut reported => CallEnd { over: Over::Gone, cause },
        cause = ended(&mut expected.statuses, &*target_call) => {
            at_provider.is_over(cause);
            CallEnd::by_hub("the other side has hung up")
        }
        () = entry.hung_up().cancelled() => CallEnd::by_hub("hung up"),
        () = target_entry.hung_up().cancelled() => CallEnd::by_hub("hung up"),
        close = entry.call().revoked_or_stopped() => {
            target_close = close.clone();
            CallEnd::closed(close)
        }
    };
    drop(target_entry);
    // The target's call ends at once, not when its stream has.
    drop(at_provider);
    transport.sessions.setup.tasks.spawn(async move {
        let (mut source, mut sink) = target_side.link;
        link::end(&mut source, &mut sink, target_close.code, target_close.reason).await;
        drop(connection);
    });
    end
}
