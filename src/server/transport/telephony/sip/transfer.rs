//! What transfers of a call by SIP begin with: what the call began with, and its peer, which may be asked (REFER).
//!
//! [`super::call`] and [`super::dial`] make both for each call; [`super::warm_transfer`] calls targets like the call.

use super::dialogs::{ReferTarget, Referrer};
use crate::server::edge::client::Client;
use crate::server::transport::telephony::transfer_requests::BlindTransfer;
use crate::server::transport::transfers::TransferError;
use antiphon_protocol::SessionUpdate;
use antiphon_sip::TrunkId;
use antiphon_types::KeyId;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// What a call began with, as far as the call to a target begins with it, too.
pub(super) struct CallOrigin {
    pub(super) client: Client,
    pub(super) owner: Option<KeyId>,
    pub(super) trunk: TrunkId,
    /// The settings of its session.
    pub(super) settings: Option<Arc<SessionUpdate>>,
}

impl BlindTransfer for Referrer {
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>> {
        self.refer(ReferTarget::Uri(target))
    }

    /// The call goes on where the target does not answer.
    fn is_final(&self) -> bool {
        false
    }
}
