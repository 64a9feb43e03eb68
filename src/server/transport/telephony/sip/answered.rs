//! A call by SIP from its answer on: its conversation, and, after a warm transfer, its connection with another call.
//!
//! [`super::call`] and [`super::calls_out`] run [`serve_answered`] for each call. Everything of a call, also the call to a
//! transfer's target, is part of its one task and ends with it.

use super::dial::Dialer;
use super::dialogs::ReferTarget;
use super::key_events::{KeyEvents, KeySender};
use super::media::{AnsweredDialog, SipLeg};
use super::transfer::CallOrigin;
use super::warm_transfer::{SipTarget, SipTargets};
use crate::server::transport::calls::CallEntry;
use crate::server::transport::keypad::PressKeys;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::answerer::AnswerPlan;
use crate::server::transport::telephony::bridge::{self, BridgeEnd, BridgeSide};
use crate::server::transport::telephony::conversation::{self, Beginning, Over};
use crate::server::transport::telephony::link;
use crate::server::transport::telephony::recording_notice::RecordingNotice;
use crate::server::transport::telephony::reply_progress::ReplyTracker;
use crate::server::transport::telephony::transfer_requests::TransferRequests;
use crate::server::transport::telephony::warm_transfer::{ConnectedTarget, ReadyTarget, WarmTransfers};
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
    /// Said before that; `None`: nothing is.
    pub(super) notice: Option<RecordingNotice>,
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
    let AnsweredCall { dialog, tracker, keys, mut requests, greeting, notice, answer, origin, direction } = answered;
    let (key_sender, key_events) = keys;
    let Ok((source, sink, start)) = dialog.open(entry, key_events) else {
        entry.call().conclude("no codec");
        return;
    };
    let targets = SipTargets { transport, dialer, origin: &origin };
    let beginning = Beginning { greeting, tracker, notice, answer, ..Beginning::default() };
    let (transfers, beginning) = WarmTransfers::beside(transport, &targets, beginning);
    let keys = Some(Arc::new(key_sender) as Arc<dyn PressKeys>);
    let mut side = BridgeSide { link: link::media(source, sink), leg: Box::new(SipLeg), start, keys };
    let BridgeSide { link, leg, start, .. } = &mut side;
    let outcome = tokio::select! {
        biased;
        over = conversation::converse(transport, entry, leg.as_mut(), start, beginning, link) => Err(over),
        target = transfers.ready_target(&mut requests) => Ok(target),
    };
    let session = entry.call().session();
    match outcome {
        Err(over) => {
            entry.call().conclude(over.outcome());
            tracing::info!(%session, peer = "sip", ?over, "the call is over");
        }
        Ok(target) => {
            entry.call().conclude("transferred");
            let ping_every = Duration::from_secs(u64::from(transport.sessions.edge.config.ping_seconds));
            let caller = CallerLeg { entry, side: &mut side, direction, trunk: origin.trunk, ping_every };
            let over = connect(dialer, caller, target).await;
            tracing::info!(%session, ?over, "the transferred call is over");
        }
    }
}

/// A caller who is connected with a target.
struct CallerLeg<'a> {
    entry: &'a CallEntry,
    side: &'a mut BridgeSide,
    direction: &'static str,
    trunk: TrunkId,
    /// Of connections with pings.
    ping_every: Duration,
}

/// Connects a caller with the target until one of them, a client or the hub ends that, or until their trunk has connected
/// them without the hub. Gives why.
async fn connect(dialer: &Dialer, caller: CallerLeg<'_>, target: ReadyTarget<SipTarget>) -> Over {
    let CallerLeg { entry, side, direction, trunk, ping_every } = caller;
    let settings = dialer.settings();
    let target = target.connect(entry, direction, &settings.reports);
    let ConnectedTarget { entry: target_entry, side: mut target_side, held, underway: _underway } = target;
    let SipTarget { trunk: target_trunk, place: _place } = held;
    let is_left_to_trunk = trunk == target_trunk && settings.trunks[trunk.0].refer_replaces;
    let referred = match (side.link.0.media(), target_side.link.0.media()) {
        (Some(source), Some(target)) if is_left_to_trunk => {
            let replaced = ReferTarget::PeerOf(target.dialog().call());
            Some(source.dialog().referrer().refer(replaced))
        }
        _ => None,
    };
    let is_accepted = AtomicBool::new(false);
    let bridged = async {
        let end = bridge::run(&mut *side, &mut target_side, ping_every).await;
        if is_accepted.load(Ordering::Relaxed)
            && let Some(source) = side.link.0.media()
        {
            // A target hangs up once it is in another call. The caller's side then says that it is there.
            let _ = timeout(NOTIFIED_WITHIN, source.ended()).await;
        }
        match end {
            BridgeEnd::One(over) | BridgeEnd::Other(over) => over,
        }
    };
    tokio::select! {
        over = bridged => over,
        over = leave_to_trunk(referred, &is_accepted) => over,
        () = entry.hung_up().cancelled() => Over::Close(1000, "hung up".into()),
        () = target_entry.hung_up().cancelled() => Over::Close(1000, "hung up".into()),
        close = entry.call().revoked_or_stopped() => Over::Close(close.code, close.reason.into()),
    }
}

/// Waits for whether the caller's side takes the hub's place in the call to the target: the hub relays until it has, and
/// goes on where it does not.
async fn leave_to_trunk(
    referred: Option<BoxFuture<'static, Result<(), TransferError>>>,
    is_accepted: &AtomicBool,
) -> Over {
    if let Some(referred) = referred {
        match referred.await {
            Ok(()) => is_accepted.store(true, Ordering::Relaxed),
            Err(error) => tracing::info!(?error, "a trunk does not connect its calls itself: the hub goes on"),
        }
    }
    pending().await
}
