//! A call out as Twilio has it: Twilio calls the target, and its TwiML connects who answers to the hub's stream, which
//! brings the call's secret.
//!
//! [`super::Accounts`] makes one for each call, [`super::dial`] has it made. It decides nothing about the call.

use super::expected::{ExpectedCall, SECRET_PARAMETER};
use super::number::number_of;
use super::provider::{EndCause, ProviderCall, insist};
use super::twilio_rest::{NewTwilioCall, TwilioRest};
use crate::server::transport::telephony::outgoing::RINGS;
use crate::server::transport::telephony::transfer_requests::BlindTransfer;
use crate::server::transport::telephony::twiml;
use crate::server::transport::transfers::{ProviderError, TransferError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::{Arc, OnceLock};

/// The pattern of the route of statuses.
pub(in crate::server::transport::telephony) const STATUS_ROUTE: &str = "/v1/telephony/twilio/status";

/// See the module.
pub(super) struct TwilioCall {
    rest: Arc<TwilioRest>,
    to: String,
    from: String,
    twiml: String,
    status_callback: String,
    /// Twilio's identifier, once it has one.
    call_sid: OnceLock<String>,
}

/// Has a call of Twilio go on with a `<Dial>`.
pub(super) struct TwilioRedirect {
    rest: Arc<TwilioRest>,
    call_sid: String,
    /// The number that the target sees; `None`: that of the call.
    caller: Option<String>,
}

impl TwilioCall {
    /// A call that Twilio does not know of yet. `public_url`: where Twilio reaches the hub.
    pub(super) fn new(
        rest: Arc<TwilioRest>,
        public_url: &str,
        expected: &ExpectedCall,
        to: String,
        from: String,
    ) -> Self {
        let stream = format!("{}/v1/telephony/twilio", public_url.replacen("http", "ws", 1));
        let connect = twiml::stream(&stream, [(SECRET_PARAMETER, expected.secret.as_str())]);
        Self {
            rest,
            to,
            from,
            twiml: twiml::document(&connect),
            status_callback: format!("{public_url}{STATUS_ROUTE}?call={}", expected.id),
            call_sid: OnceLock::new(),
        }
    }
}

impl ProviderCall for TwilioCall {
    fn transport(&self) -> &'static str {
        "twilio"
    }

    fn make(&self) -> BoxFuture<'_, Result<String, ProviderError>> {
        let new = NewTwilioCall {
            to: &self.to,
            from: &self.from,
            twiml: &self.twiml,
            status_callback: &self.status_callback,
            rings: RINGS,
        };
        async move {
            let call_sid = self.rest.call(new).await?;
            let _ = self.call_sid.set(call_sid.clone());
            Ok(call_sid)
        }
        .boxed()
    }

    fn redirect(&self) -> Option<Arc<dyn BlindTransfer>> {
        let call_sid = self.call_sid.get()?.clone();
        Some(Arc::new(TwilioRedirect::new(self.rest.clone(), call_sid, Some(self.from.clone()))))
    }

    /// Where the stream has ended, Twilio has ended the call or goes on with it. A call that Twilio does not end has no
    /// stream any more, at which its TwiML ends.
    fn end(&self, cause: EndCause) -> BoxFuture<'_, ()> {
        async move {
            if let (EndCause::Hub, Some(call_sid)) = (cause, self.call_sid.get()) {
                insist(self.transport(), || self.rest.end(call_sid)).await;
            }
        }
        .boxed()
    }
}

impl TwilioRedirect {
    pub(super) fn new(rest: Arc<TwilioRest>, call_sid: String, caller: Option<String>) -> Self {
        Self { rest, call_sid, caller }
    }
}

impl BlindTransfer for TwilioRedirect {
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>> {
        let Some(target) = twilio_target(&target) else { return ready(Err(TransferError::NoUri)).boxed() };
        let rest = self.rest.clone();
        let call_sid = self.call_sid.clone();
        let document = twiml::document(&twiml::dial(&target, self.caller.as_deref()));
        async move { rest.go_on(&call_sid, &document).await.map_err(TransferError::Provider) }.boxed()
    }

    fn is_final(&self) -> bool {
        true
    }
}

/// The target as Twilio takes it: the number of a `tel:` URI without its separators, or a `sip:` URI. `None`: it calls
/// no such target.
pub(super) fn twilio_target(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once(':')?;
    if scheme.eq_ignore_ascii_case("sip") { Some(format!("sip:{rest}")) } else { number_of(uri) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_number_or_an_address_of_sip() {
        let check = |uri: &str, expect: Option<&str>| assert_eq!(twilio_target(uri).as_deref(), expect, "{uri}");
        check("TEL:110", Some("110"));
        check("SIP:office@pbx.example.com", Some("sip:office@pbx.example.com"));
        for other in ["tel:*31#", "sips:a@b", "client:ann", "+15550123"] {
            check(other, None);
        }
    }
}
