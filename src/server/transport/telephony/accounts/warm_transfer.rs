//! Calls to the targets of warm transfers of calls by accounts, by the account of the call.
//!
//! [`super::answered`] has [`super::super::warm_transfer`] call them by [`AccountTargets`]. A target's call ends when its
//! [`AccountTarget`] is dropped.

use super::dial::{AnsweredDial, NewDial, begin, ended};
use super::expected::{ArrivedStream, ExpectedCall};
use super::provider::{CallAtProvider, EndCause};
use super::{Accounts, CallOrigin};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::bridge::BridgeSide;
use crate::server::transport::telephony::warm_transfer::{
    DialedTarget, TargetCall, TargetDialer, TargetHold, caller_of, not_connected, settings_of_target,
};
use crate::server::transport::transfers::TransferError;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Calls the targets of one call.
pub(super) struct AccountTargets<'a> {
    pub(super) transport: &'a Arc<TransportParts>,
    pub(super) accounts: &'a Accounts,
    pub(super) origin: &'a CallOrigin,
}

/// What keeps the call to a target. Dropping it ends the call.
pub(super) struct AccountTarget {
    pub(super) at_provider: CallAtProvider,
    pub(super) expected: ExpectedCall,
    /// Its place among the calls at a time.
    pub(super) place: OwnedSemaphorePermit,
    /// Dropped once the call no longer needs the connection of its stream.
    pub(super) connection: oneshot::Sender<()>,
}

impl TargetDialer for AccountTargets<'_> {
    type Held = AccountTarget;

    fn dial(
        &self,
        target: String,
        summary: String,
    ) -> BoxFuture<'_, Result<DialedTarget<AccountTarget>, TransferError>> {
        async move {
            let CallOrigin { client, owner, account, from, settings } = self.origin;
            let new = NewDial {
                to: target,
                from: from.clone(),
                account: Some(account.to_string()),
                settings: Some(settings_of_target(settings.as_deref())),
                recital: Some(summary),
            };
            let begun = begin(self.accounts, self.transport, *client, caller_of(*owner), new).await;
            let ringing = begun.map_err(TransferError::NotDialed)?;
            let answered = ringing.answered().await;
            let answered = answered.map_err(|state| TransferError::NotConnected(not_connected(state)))?;
            let AnsweredDial { entry, at_provider, stream, expected, plan, place, .. } = answered;
            let ArrivedStream { link, leg, start, over: connection } = stream;
            let side = BridgeSide { link, leg, start, keys: at_provider.call().keys() };
            let held = AccountTarget { at_provider, expected, place, connection };
            Ok(DialedTarget { call: TargetCall { entry, side, held }, plan })
        }
        .boxed()
    }
}

impl TargetHold for AccountTarget {
    fn ended(&mut self) -> BoxFuture<'_, ()> {
        async move {
            let call = self.at_provider.call().clone();
            let cause = ended(&mut self.expected.statuses, &*call).await;
            self.at_provider.is_over(cause);
        }
        .boxed()
    }

    fn connection_ended(&mut self) {
        self.at_provider.is_over(EndCause::StreamEnded);
    }
}
