//! A call out at its provider.
//!
//! [`super::dial`] makes and connects calls by [`ProviderCall`], which [`super::twilio_call`] and
//! [`super::asterisk_call`] implement; a [`CallAtProvider`] ends them. Nothing here decides about a call or knows a
//! provider's requests.

use crate::server::transport::keypad::PressKeys;
use crate::server::transport::telephony::transfer_requests::BlindTransfer;
use crate::server::transport::transfers::ProviderError;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

/// Attempts to end something at a provider, and the pause between two.
const ENDING_ATTEMPTS: u32 = 3;
const ENDING_PAUSE: Duration = Duration::from_secs(1);

/// One call out at its provider.
pub(super) trait ProviderCall: Send + Sync {
    /// The transport's name, for logs and turn records: that of its stream.
    fn transport(&self) -> &'static str;

    /// Has the provider call, and gives its identifier of the call once it has accepted that: within 10 s.
    fn make(&self) -> BoxFuture<'_, Result<String, ProviderError>>;

    /// Connects who has answered with the hub's stream. Resolves when they are connected as far as this depends on the
    /// hub; the caller has a deadline. A provider that connects by itself has nothing to do.
    fn connect(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        ready(Ok(())).boxed()
    }

    /// The provider has reported that its end of the stream can be connected.
    fn stream_ready(&self) {}

    /// What has the call go on elsewhere, once it is made; `None`: calls of this account are not transferred blind.
    fn redirect(&self) -> Option<Arc<dyn BlindTransfer>>;

    /// What presses keys in the call; `None`: the provider presses none.
    fn keys(&self) -> Option<Arc<dyn PressKeys>> {
        None
    }

    /// Resolves when the call has left the hub by a transfer, where its stream does not end by that. Cancel safe.
    fn left(&self) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    /// Ends what the provider still has of the call. Waits some 30 s at most.
    fn end(&self, cause: EndCause) -> BoxFuture<'_, ()>;
}

/// Why a call is over, as far as the hub knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndCause {
    /// The provider has reported it.
    Reported,
    /// Its stream has ended.
    StreamEnded,
    /// The hub ends it.
    Hub,
}

/// A call that its provider has, or may have. Dropping it ends what the provider still has of it, by a task of the
/// server's.
pub(super) struct CallAtProvider {
    call: Arc<dyn ProviderCall>,
    /// Why the call is over, as far as that is known; `None`: the provider has none.
    cause: Option<EndCause>,
    tasks: TaskTracker,
}

impl CallAtProvider {
    /// `tasks`: those of the server.
    pub(super) fn new(call: Arc<dyn ProviderCall>, tasks: TaskTracker) -> Self {
        Self { call, cause: Some(EndCause::Hub), tasks }
    }

    /// The call itself.
    pub(super) fn call(&self) -> &Arc<dyn ProviderCall> {
        &self.call
    }

    /// The call is over, and this is why; without it the hub ends the call.
    pub(super) fn is_over(&mut self, cause: EndCause) {
        self.cause = Some(cause);
    }

    /// The provider has not made the call: nothing is to be ended.
    pub(super) fn forget(mut self) {
        self.cause = None;
    }
}

impl Drop for CallAtProvider {
    fn drop(&mut self) {
        if let Some(cause) = self.cause {
            let call = self.call.clone();
            self.tasks.spawn(async move { call.end(cause).await });
        }
    }
}

/// Repeats a request that ends something until the provider has answered.
pub(super) async fn insist<F>(provider: &'static str, request: impl Fn() -> F)
where
    F: Future<Output = Result<(), ProviderError>>,
{
    for attempt in 1..=ENDING_ATTEMPTS {
        match request().await {
            Ok(()) => return,
            Err(ProviderError::Refused(why)) => {
                // It has ended before.
                tracing::debug!(provider, why, "a provider does not end a call");
                return;
            }
            Err(ProviderError::Unreachable(why)) => {
                tracing::warn!(provider, attempt, why, "a provider did not end a call");
                sleep(ENDING_PAUSE).await;
            }
        }
    }
}
