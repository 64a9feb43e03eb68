//! Blind transfers of calls of Twilio: the call goes on with a `<Dial>` in the place of its stream.
//!
//! Calls out, and those that come in with Twilio's signature, are listed with it. One transfer of a call is made.

use super::twilio_rest::TwilioRest;
use crate::config::TransferTargets;
use crate::server::transport::telephony::twiml;
use crate::server::transport::transfers::{Transfer, TransferError};
use antiphon_sip::is_transfer_target;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Transfers one call to the targets that the settings allow.
pub(super) struct TwilioTransfer {
    rest: Arc<TwilioRest>,
    call_sid: String,
    /// The number that the target sees; `None`: that of the call.
    caller: Option<String>,
    allowed: TransferTargets,
    /// A transfer that was made keeps the place.
    underway: Arc<Semaphore>,
}

impl TwilioTransfer {
    pub(super) fn new(
        rest: Arc<TwilioRest>,
        call_sid: String,
        caller: Option<String>,
        allowed: TransferTargets,
    ) -> Self {
        Self { rest, call_sid, caller, allowed, underway: Arc::new(Semaphore::new(1)) }
    }

    /// Transfers the same call to these targets. One of all its transfers is made.
    pub(super) fn to(&self, allowed: TransferTargets) -> Self {
        Self {
            rest: self.rest.clone(),
            call_sid: self.call_sid.clone(),
            caller: self.caller.clone(),
            allowed,
            underway: self.underway.clone(),
        }
    }
}

impl Transfer for TwilioTransfer {
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>> {
        let number = twilio_target(&target).filter(|_| is_transfer_target(&target));
        let Some(number) = number else { return ready(Err(TransferError::NoUri)).boxed() };
        if !self.allowed.allow(&target) {
            return ready(Err(TransferError::NotAllowed)).boxed();
        }
        let Ok(underway) = self.underway.clone().try_acquire_owned() else {
            return ready(Err(TransferError::Underway)).boxed();
        };
        let rest = self.rest.clone();
        let call_sid = self.call_sid.clone();
        let document = twiml::document(&twiml::dial(&number, self.caller.as_deref()));
        async move {
            rest.go_on(&call_sid, &document).await.map_err(TransferError::Provider)?;
            underway.forget();
            Ok(())
        }
        .boxed()
    }

    fn transfer_warm(&self, _target: String, _summary: String) -> BoxFuture<'static, Result<(), TransferError>> {
        ready(Err(TransferError::NotWarm)).boxed()
    }
}

/// The target as Twilio takes it: the number of a `tel:` URI without its separators, or a `sip:` URI. `None`: it calls no
/// such target.
pub(super) fn twilio_target(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once(':')?;
    match scheme.to_ascii_lowercase().as_str() {
        "tel" => {
            let number: String = rest.split(';').next()?.chars().filter(|c| !"-.()".contains(*c)).collect();
            let digits = number.strip_prefix('+').unwrap_or(&number);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then_some(number)
        }
        "sip" => Some(format!("sip:{rest}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_number_or_an_address_of_sip() {
        let check = |uri: &str, expect: Option<&str>| assert_eq!(twilio_target(uri).as_deref(), expect, "{uri}");
        check("tel:+1-555.(01)23;phone-context=x", Some("+155501 23".replace(' ', "").as_str()));
        check("TEL:110", Some("110"));
        check("SIP:office@pbx.example.com", Some("sip:office@pbx.example.com"));
        for other in ["tel:*31#", "tel:+", "sips:a@b", "client:ann", "+15550123"] {
            check(other, None);
        }
    }
}
