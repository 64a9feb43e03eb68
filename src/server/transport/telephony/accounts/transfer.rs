//! Blind transfers of calls by accounts: the call goes on with the target in the place of its stream.
//!
//! Calls out, and those that come in with Twilio's signature, are listed with it. One transfer of a call is made; how
//! is the provider's ([`Redirect`]).

use crate::config::TransferTargets;
use crate::server::transport::transfers::{ProviderError, Transfer, TransferError};
use antiphon_sip::is_transfer_target;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Has one call go on elsewhere.
pub(super) trait Redirect: Send + Sync {
    /// The target as the provider takes it; `None`: it calls no such target.
    fn target(&self, uri: &str) -> Option<String>;

    /// Has the call go on with such a target. Resolves once the provider does that. Dropping the future withdraws
    /// nothing.
    fn redirect(&self, target: String) -> BoxFuture<'static, Result<(), ProviderError>>;
}

/// Transfers one call to the targets that the settings allow.
pub(super) struct AccountTransfer {
    call: Arc<dyn Redirect>,
    allowed: TransferTargets,
    /// A transfer that was made keeps the place.
    underway: Arc<Semaphore>,
}

impl AccountTransfer {
    pub(super) fn new(call: Arc<dyn Redirect>, allowed: TransferTargets) -> Self {
        Self { call, allowed, underway: Arc::new(Semaphore::new(1)) }
    }

    /// Transfers the same call to these targets. One of all its transfers is made.
    pub(super) fn to(&self, allowed: TransferTargets) -> Self {
        Self { call: self.call.clone(), allowed, underway: self.underway.clone() }
    }
}

impl Transfer for AccountTransfer {
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>> {
        let destination = self.call.target(&target).filter(|_| is_transfer_target(&target));
        let Some(destination) = destination else { return ready(Err(TransferError::NoUri)).boxed() };
        if !self.allowed.allow(&target) {
            return ready(Err(TransferError::NotAllowed)).boxed();
        }
        let Ok(underway) = self.underway.clone().try_acquire_owned() else {
            return ready(Err(TransferError::Underway)).boxed();
        };
        let call = self.call.clone();
        async move {
            call.redirect(destination).await.map_err(TransferError::Provider)?;
            underway.forget();
            Ok(())
        }
        .boxed()
    }

    fn transfer_warm(&self, _target: String, _summary: String) -> BoxFuture<'static, Result<(), TransferError>> {
        ready(Err(TransferError::NotWarm)).boxed()
    }
}

/// The number of a `tel:` URI without its separators; `None`: it is no such URI.
pub(super) fn number_of(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("tel") {
        return None;
    }
    let number: String = rest.split(';').next()?.chars().filter(|c| !"-.()".contains(*c)).collect();
    let digits = number.strip_prefix('+').unwrap_or(&number);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_digits_only() {
        let check = |uri: &str, expect: Option<&str>| assert_eq!(number_of(uri).as_deref(), expect, "{uri}");
        check("tel:+1-555.(01)23;phone-context=x", Some("+15550123"));
        check("TEL:110", Some("110"));
        for other in ["tel:*31#", "tel:+", "tel:1&2", "sip:110@b", "client:ann", "+15550123"] {
            check(other, None);
        }
    }
}
