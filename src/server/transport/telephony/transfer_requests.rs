//! Requests to transfer one call: blind, by its peer or its provider, or, warm, by the hub itself.
//!
//! A call by SIP or of an account makes one [`CallTransfers`] and gives what it makes to the tools of the model and to
//! the list of calls. [`super::warm_transfer`] takes the warm ones from [`TransferRequests`], from the answer on. One
//! transfer of a call is under way at a time, also where the client that asked for it is gone. Nothing is transferred
//! here.

use crate::config::{TransferKind, TransferTargets};
use crate::server::transport::transfers::{MAX_SUMMARY_BYTES, Transfer, TransferError};
use antiphon_sip::is_transfer_target;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

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
pub(super) struct TransferRequests {
    requests: mpsc::Receiver<WarmRequest>,
    is_answered: Arc<AtomicBool>,
}

impl TransferRequests {
    /// The call is answered: there may be requests from now on. Before, they are refused.
    pub(super) fn begin(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// The next one; `None`: there are none any more. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<WarmRequest> {
        self.requests.recv().await
    }
}

/// What transfers one call.
pub(super) struct CallTransfers(Arc<TransferAccess>);

struct TransferAccess {
    /// `None`: it is transferred warm only.
    blind: Option<Arc<dyn BlindTransfer>>,
    requests: mpsc::Sender<WarmRequest>,
    /// Whether warm transfers may be asked for.
    is_answered: Arc<AtomicBool>,
    underway: Arc<Semaphore>,
    /// The number or the name of the peer.
    peer: Option<String>,
    tasks: TaskTracker,
}

/// Transfers a call to the targets that the settings allow.
struct AllowedTransfer {
    access: Arc<TransferAccess>,
    allowed: TransferTargets,
}

impl CallTransfers {
    /// `blind`: `None`: the call is transferred warm only. `peer`: its number, name or URI, to which its own call is not
    /// transferred. `tasks`: those of the server.
    pub(super) fn new(
        blind: Option<Arc<dyn BlindTransfer>>,
        peer: Option<String>,
        tasks: TaskTracker,
    ) -> (Self, TransferRequests) {
        // One at a time is under way.
        let (requests, receiver) = mpsc::channel(1);
        let underway = Arc::new(Semaphore::new(1));
        let is_answered = Arc::new(AtomicBool::new(false));
        let access = TransferAccess { blind, requests, is_answered: is_answered.clone(), underway, peer, tasks };
        (Self(Arc::new(access)), TransferRequests { requests: receiver, is_answered })
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
        if !self.access.is_answered.load(Ordering::Relaxed) {
            return Err(TransferError::Underway);
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
        let (answer, answered) = oneshot::channel();
        // Another transfer waits for it even where its client does not.
        self.access.tasks.spawn(async move {
            let outcome = transferred.await;
            if outcome.is_ok() && blind.is_final() {
                underway.forget();
            } else {
                drop(underway);
            }
            // Who asked for it may be gone.
            let _ = answer.send(outcome);
        });
        async move { answered.await.unwrap_or(Err(TransferError::Ended)) }.boxed()
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
    use std::sync::Mutex;

    const TARGET: &str = "tel:+15550123";

    /// Waits until the test lets it end.
    struct SlowTransfer(Mutex<Option<oneshot::Receiver<()>>>);

    impl BlindTransfer for SlowTransfer {
        fn transfer(&self, _: String) -> BoxFuture<'static, Result<(), TransferError>> {
            let end = self.0.lock().expect("no panic while locked").take();
            async move {
                if let Some(end) = end {
                    let _ = end.await;
                }
                Ok(())
            }
            .boxed()
        }

        fn is_final(&self) -> bool {
            false
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_whose_client_is_gone_is_still_under_way() {
        let (end, ended) = oneshot::channel();
        let blind = Arc::new(SlowTransfer(Mutex::new(Some(ended))));
        let tasks = TaskTracker::new();
        let (transfers, _requests) = CallTransfers::new(Some(blind), None, tasks.clone());
        let transfer = transfers.to(TransferTargets::exactly([&TARGET.to_owned()]));
        drop(transfer.transfer(TARGET.into()));
        assert!(matches!(transfer.transfer(TARGET.into()).await, Err(TransferError::Underway)));
        end.send(()).expect("the provider is asked");
        tasks.close();
        tasks.wait().await;
        assert!(transfer.transfer(TARGET.into()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_transferred_warm_from_its_answer_on() {
        let (transfers, mut requests) = CallTransfers::new(None, None, TaskTracker::new());
        let transfer = transfers.to(TransferTargets::exactly([&TARGET.to_owned()]));
        let refused = transfer.transfer_warm(TARGET.into(), "Ann calls.".into()).await;
        assert!(matches!(refused, Err(TransferError::Underway)));
        requests.begin();
        let asked = transfer.transfer_warm(TARGET.into(), "Ann calls.".into());
        let request = requests.next().await.expect("a request");
        request.answer.send(Ok(())).expect("it is waited for");
        assert!(asked.await.is_ok());
    }

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
