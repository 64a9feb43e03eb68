//! Requests to transfer one call: blind, by its peer or its provider, or, warm, by the hub itself.
//!
//! A call by SIP or of an account makes one [`CallTransfers`] and gives what it makes to the tools of the model and to
//! the list of calls. [`super::warm_transfer`] takes the warm ones from [`TransferRequests`]. One transfer of a call is
//! under way at a time. Nothing is transferred here.

use crate::config::{TransferKind, TransferTargets};
use crate::server::transport::transfers::{MAX_SUMMARY_BYTES, Transfer, TransferError};
use antiphon_sip::is_transfer_target;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Has the peer or the provider of one call call a target in the hub's place.
pub(super) trait BlindTransfer: Send + Sync {
    /// Asks for that, where the settings allow the target. Resolves once it is done, or refused. Dropping the future
    /// withdraws nothing.
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>>;

    /// Whether the call has left the hub with that. Else it may go on here, and be transferred again.
    fn is_final(&self) -> bool;
}

/// A request for a warm transfer. Dropping it says that the call has ended.
pub(super) struct WarmRequest {
    pub(super) target: String,
    pub(super) summary: String,
    pub(super) answer: oneshot::Sender<Result<(), TransferError>>,
    /// Held as long as no other transfer may begin.
    pub(super) underway: OwnedSemaphorePermit,
}

/// The requests for warm transfers of one call.
pub(super) struct TransferRequests(mpsc::Receiver<WarmRequest>);

impl TransferRequests {
    /// The next one; `None`: there are none any more. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<WarmRequest> {
        self.0.recv().await
    }
}

/// What transfers one call.
pub(super) struct CallTransfers(Arc<TransferAccess>);

struct TransferAccess {
    /// `None`: it is transferred warm only.
    blind: Option<Arc<dyn BlindTransfer>>,
    requests: mpsc::Sender<WarmRequest>,
    underway: Arc<Semaphore>,
    /// The number or the name of the peer.
    peer: Option<String>,
}

/// Transfers a call to the targets that the settings allow.
struct AllowedTransfer {
    access: Arc<TransferAccess>,
    allowed: TransferTargets,
}

impl CallTransfers {
    /// `blind`: `None`: the call is transferred warm only. `peer`: its number, name or URI, to which its own call is not
    /// transferred.
    pub(super) fn new(blind: Option<Arc<dyn BlindTransfer>>, peer: Option<String>) -> (Self, TransferRequests) {
        // One at a time is under way.
        let (requests, receiver) = mpsc::channel(1);
        let underway = Arc::new(Semaphore::new(1));
        let access = TransferAccess { blind, requests, underway, peer };
        (Self(Arc::new(access)), TransferRequests(receiver))
    }

    /// What transfers the call to these targets.
    pub(super) fn to(&self, allowed: TransferTargets) -> Arc<dyn Transfer> {
        Arc::new(AllowedTransfer { access: self.0.clone(), allowed })
    }

    /// Whether the call can be transferred like this.
    pub(super) fn support(&self, kind: TransferKind) -> bool {
        match kind {
            TransferKind::Blind => self.0.blind.is_some(),
            TransferKind::Warm => true,
        }
    }
}

impl AllowedTransfer {
    /// Whether the call may be transferred there now; while the permit is held, no other transfer begins.
    fn permit(&self, target: &str) -> Result<OwnedSemaphorePermit, TransferError> {
        if !is_transfer_target(target) {
            return Err(TransferError::NoUri);
        }
        if !self.allowed.allow(target) {
            return Err(TransferError::NotAllowed);
        }
        self.access.underway.clone().try_acquire_owned().map_err(|_| TransferError::Underway)
    }

    fn request(
        &self,
        target: String,
        summary: String,
    ) -> Result<oneshot::Receiver<Result<(), TransferError>>, TransferError> {
        if summary.trim().is_empty() || summary.len() > MAX_SUMMARY_BYTES {
            return Err(TransferError::Summary);
        }
        let underway = self.permit(&target)?;
        if self.access.peer.as_ref().is_some_and(|peer| is_same(peer, &target)) {
            return Err(TransferError::ToCaller);
        }
        let (answer, answered) = oneshot::channel();
        let request = WarmRequest { target, summary, answer, underway };
        self.access.requests.try_send(request).map_err(|_| TransferError::Ended)?;
        Ok(answered)
    }
}

impl Transfer for AllowedTransfer {
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>> {
        let Some(blind) = self.access.blind.clone() else { return ready(Err(TransferError::NotBlind)).boxed() };
        let underway = match self.permit(&target) {
            Ok(underway) => underway,
            Err(error) => return ready(Err(error)).boxed(),
        };
        let transferred = blind.transfer(target);
        async move {
            transferred.await?;
            if blind.is_final() {
                underway.forget();
            }
            Ok(())
        }
        .boxed()
    }

    fn transfer_warm(&self, target: String, summary: String) -> BoxFuture<'static, Result<(), TransferError>> {
        match self.request(target, summary) {
            Ok(answered) => async move { answered.await.unwrap_or(Err(TransferError::Ended)) }.boxed(),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}

/// Whether two URIs, numbers or names are of the same party: numbers by their figures, whatever their URIs are.
fn is_same(one: &str, other: &str) -> bool {
    let user = |text: &str| {
        let rest = text.split_once(':').map_or(text, |(_, rest)| rest);
        rest.split(['@', ';']).next().unwrap_or_default().to_owned()
    };
    let is_of_number = |c: char| c.is_ascii_digit() || "+-.()".contains(c);
    let number = |text: &str| {
        let user = user(text);
        let figures: String = user.chars().filter(char::is_ascii_digit).collect();
        Some(figures).filter(|figures| !figures.is_empty() && user.chars().all(is_of_number))
    };
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_is_the_same_by_its_number_whatever_the_uri_is() {
        for (one, other, same) in [
            ("+15550199", "tel:+1-555-0199", true),
            ("+15550199", "sip:+15550199@sip.example.com;user=phone", true),
            ("tel:+15550199", "tel:+15550198", false),
            ("sip:ann@pbx.example.com", "SIP:Ann@pbx.example.com", true),
            ("ann", "sip:ann@pbx.example.com", false),
            ("", "tel:", false),
        ] {
            assert_eq!(is_same(one, other), same, "{one:?} {other:?}");
        }
    }
}
