//! Calls out: `POST /v1/realtime/calls` with a target, by a trunk of SIP or an account at a provider.
//!
//! [`super::super::webrtc::signaling`] reads the request and calls [`dial`]. This file only chooses who dials.

use super::accounts;
use super::outgoing::DialRequest;
use super::sip::{self, Dialer};
use crate::server::access::caller::Caller;
use crate::server::edge::client::Client;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::transfers::DialError;
use antiphon_protocol::SessionUpdate;
use std::sync::Arc;

/// Begins a call by the trunk or the account that the request names; else by the first trunk that has a host, else by the first
/// account. Returns its id within 10 s. The call's state is in the list. `dialer`: `None`: SIP is off.
///
/// # Errors
/// [`DialError`].
pub(in crate::server::transport) async fn dial(
    dialer: Option<&Arc<Dialer>>,
    transport: &Arc<TransportParts>,
    client: Client,
    caller: Caller,
    request: DialRequest,
    settings: Option<Arc<SessionUpdate>>,
) -> Result<String, DialError> {
    let accounts = transport.telephony.accounts.as_ref();
    let has_trunks = dialer.is_some_and(|dialer| dialer.has_trunks());
    let is_by_account = match (&request.trunk, &request.account) {
        (Some(_), Some(_)) => {
            return Err(DialError::Wrong("account", "A call is made by a trunk or by an account, not by both.".into()));
        }
        (Some(_), None) => false,
        (None, Some(_)) => true,
        (None, None) => !has_trunks && accounts.is_some(),
    };
    if !is_by_account {
        let dialer = dialer.ok_or(DialError::Off)?;
        return sip::dial(dialer, transport, client, caller, request, settings).await;
    }
    let none = || DialError::Wrong("account", "There is no account in telephony.accounts.".into());
    accounts::dial(accounts.ok_or_else(none)?, transport, client, caller, request, settings).await
}
