//! Calls to the targets of warm transfers of calls by SIP, by the trunk of the call or the first that makes calls.
//!
//! [`super::answered`] has [`super::super::warm_transfer`] call them by [`SipTargets`]. The dialog of a target's call is in
//! its media: dropping that says BYE.

use super::dial::{AnsweredDial, Dialer, NewDial, TrunkChoice};
use super::media::SipLeg;
use super::transfer::CallOrigin;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::bridge::BridgeSide;
use crate::server::transport::telephony::link;
use crate::server::transport::telephony::warm_transfer::{
    DialedTarget, TargetCall, TargetDialer, TargetHold, caller_of, not_connected, settings_of_target,
};
use crate::server::transport::transfers::{NotConnected, TransferError};
use antiphon_sip::TrunkId;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Calls the targets of one call.
pub(super) struct SipTargets<'a> {
    pub(super) transport: &'a Arc<TransportParts>,
    pub(super) dialer: &'a Dialer,
    pub(super) origin: &'a CallOrigin,
}

/// What a call to a target has beside its media.
pub(super) struct SipTarget {
    /// The trunk that made it.
    pub(super) trunk: TrunkId,
    /// Its place among the calls out.
    pub(super) place: OwnedSemaphorePermit,
}

impl TargetDialer for SipTargets<'_> {
    type Held = SipTarget;

    fn dial(&self, target: String, summary: String) -> BoxFuture<'_, Result<DialedTarget<SipTarget>, TransferError>> {
        async move {
            let CallOrigin { client, owner, trunk, settings } = self.origin;
            let new = NewDial {
                to: target,
                from: None,
                trunk: TrunkChoice::Preferred(*trunk),
                settings: Some(settings_of_target(settings.as_deref())),
                recital: Some(summary),
            };
            let begun = self.dialer.begin(self.transport, *client, caller_of(*owner), new).await;
            let dialed = begun.map_err(TransferError::NotDialed)?;
            let answered = dialed.answered().await;
            let answered = answered.map_err(|state| TransferError::NotConnected(not_connected(state)))?;
            let AnsweredDial { dialog, entry, keys, plan, origin, place, .. } = answered;
            let (keys, key_events) = keys;
            let Ok((source, sink, start)) = dialog.open(&entry, key_events) else {
                entry.call().conclude("no codec");
                return Err(TransferError::NotConnected(NotConnected::Failed));
            };
            let link = link::media(source, sink);
            let side = BridgeSide { link, leg: Box::new(SipLeg), start, keys: Some(Arc::new(keys)) };
            let held = SipTarget { trunk: origin.trunk, place };
            Ok(DialedTarget { call: TargetCall { entry, side, held }, plan })
        }
        .boxed()
    }
}

impl TargetHold for SipTarget {
    /// The dialog's end is that of its media.
    fn ended(&mut self) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    fn connection_ended(&mut self) {}
}
