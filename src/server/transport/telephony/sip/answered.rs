//! A call by SIP from its answer on: its conversation, and, after a warm transfer, its connection with another call.
//!
//! [`super::call`] and [`super::calls_out`] run [`serve_answered`] for each call. Everything of a call, also the call to a
//! transfer's target, is part of its one task and ends with it.

use super::bridge::{self, BridgeSide};
use super::dial::Dialer;
use super::dialogs::ReferTarget;
use super::key_events::{KeyEvents, KeySender};
use super::media::{AnsweredDialog, SipLeg};
use super::transfer::{CallOrigin, TransferRequests};
use super::warm_transfer::{ReadyTarget, TargetCall, WarmTransfers};
use crate::server::transport::calls::CallEntry;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::answerer::AnswerPlan;
use crate::server::transport::telephony::conversation::{self, Beginning, HeldLine};
use crate::server::transport::telephony::link;
use crate::server::transport::telephony::reply_progress::{ReplyTracker, reply_progress};
use crate::server::transport::transfers::TransferError;
use antiphon_sip::TrunkId;
use futures_util::future::BoxFuture;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// From the end of the call to a target, which is in another one, to the notice of the caller's side about that.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(2);

/// A call that is answered.
pub(super) struct AnsweredCall {
    pub(super) dialog: AnsweredDialog,
    /// Follows the reply for the call's tools; `None`: it has none.
    pub(super) tracker: Option<ReplyTracker>,
    pub(super) keys: (KeySender, KeyEvents),
    pub(super) requests: TransferRequests,
    pub(super) greeting: Option<String>,
    /// What the hub does about who answers; `None`: it did not call.
    pub(super) answer: Option<AnswerPlan>,
    pub(super) origin: CallOrigin,
    /// `in` or `out`.
    pub(super) direction: &'static str,
}

/// Serves a listed call until it ends. Dropping its dialog says BYE where the peer did not.
pub(super) async fn serve_answered(
    transport: &Arc<TransportParts>,
    dialer: &Dialer,
    entry: &CallEntry,
    answered: AnsweredCall,
) {
    let AnsweredCall { dialog, tracker, keys, mut requests, greeting, answer, origin, direction } = answered;
    let (key_sender, key_events) = keys;
    let Ok((source, sink, start)) = dialog.open(entry, key_events) else {
        entry.call().conclude("no codec");
        return;
    };
    let tracker = tracker.unwrap_or_else(|| reply_progress("").0);
    let line = HeldLine::default();
    let transfers = WarmTransfers { transport, dialer, origin: &origin, line: line.clone(), reply: tracker.sound() };
    let beginning = Beginning { greeting, tracker: Some(tracker), answer, line };
    let mut link = link::media(source, sink);
    let outcome = tokio::select! {
        biased;
        over = conversation::converse(transport, entry, Box::new(SipLeg), &start, beginning, &mut link) => Err(over),
        target = transfers.ready_target(&mut requests) => Ok(target),
    };
    let session = entry.call().session();
    match outcome {
        Err(over) => {
            entry.call().conclude(over.outcome());
            tracing::info!(%session, peer = "sip", ?over, "the call is over");
        }
        Ok(target) => {
            let Some((mut source, mut sink)) = link::into_media(link) else { return };
            let caller = BridgeSide { source: &mut source, sink: &mut sink, keys: &key_sender };
            entry.call().conclude("transferred");
            let leg = CallerLeg { entry, direction, trunk: origin.trunk };
            let over = connect(dialer, leg, caller, target).await;
            tracing::info!(%session, over, "the transferred call is over");
        }
    }
}

/// A caller who is connected with a target.
struct CallerLeg<'a> {
    entry: &'a CallEntry,
    direction: &'static str,
    trunk: TrunkId,
}

/// Connects a caller with the target until one of them, a client or the hub ends that, or until their trunk has connected
/// them without the hub. Gives why.
async fn connect(
    dialer: &Dialer,
    CallerLeg { entry, direction, trunk }: CallerLeg<'_>,
    caller: BridgeSide<'_>,
    target: ReadyTarget,
) -> &'static str {
    let ReadyTarget { call, answer, underway: _underway } = target;
    let TargetCall { entry: target_entry, mut source, mut sink, keys, trunk: target_trunk, place: _place } = call;
    entry.call().leave();
    entry.set_transferred(target_entry.id());
    target_entry.set_transferred(entry.id());
    dialer.settings().reports.report_transfer(entry.id(), direction, target_entry.id());
    dialer.settings().reports.report_transfer(target_entry.id(), "out", entry.id());
    // Who asked for it may be gone.
    let _ = answer.send(Ok(()));
    let other = BridgeSide { source: &mut source, sink: &mut sink, keys: &keys };
    let is_left_to_trunk = trunk == target_trunk && dialer.settings().trunks[trunk.0].refer_replaces;
    let replaced = ReferTarget::PeerOf(other.source.dialog().call());
    let referred = is_left_to_trunk.then(|| caller.source.dialog().referrer().refer(replaced));
    let is_accepted = AtomicBool::new(false);
    let bridged = async {
        let BridgeSide { source, sink, keys } = caller;
        let over = bridge::run(BridgeSide { source: &mut *source, sink, keys }, other).await;
        if is_accepted.load(Ordering::Relaxed) {
            // A target hangs up once it is in another call. The caller's side then says that it is there.
            let _ = timeout(NOTIFIED_WITHIN, source.ended()).await;
        }
        over
    };
    tokio::select! {
        over = bridged => over,
        never = leave_to_trunk(referred, &is_accepted) => never,
        () = entry.hung_up().cancelled() => "hung up",
        () = target_entry.hung_up().cancelled() => "hung up",
        () = entry.call().revoked_or_stopped() => "its key is revoked, or the hub stops",
    }
}

/// Waits for whether the caller's side takes the hub's place in the call to the target: the hub relays until it has, and
/// goes on where it does not.
async fn leave_to_trunk(
    referred: Option<BoxFuture<'static, Result<(), TransferError>>>,
    is_accepted: &AtomicBool,
) -> &'static str {
    if let Some(referred) = referred {
        match referred.await {
            Ok(()) => is_accepted.store(true, Ordering::Relaxed),
            Err(error) => tracing::info!(?error, "a trunk does not connect its calls itself: the hub goes on"),
        }
    }
    pending().await
}
