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
use reqwest::StatusCode;
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

/// Why a request that ends something has not ended it.
#[derive(Debug)]
pub(super) enum EndError {
    /// It has ended before, as the provider says in its words.
    Before(String),
    /// The provider does not accept the credentials. Others may be in force at the next attempt.
    Credentials(String),
    /// The provider may do it later: the end of a sentence.
    Later(String),
}

impl EndError {
    /// What an error with this status says, in these words. `is_over`: whether the provider itself says that there is
    /// nothing to be ended.
    pub(super) fn of(status: StatusCode, is_over: bool, words: String) -> Self {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Credentials(words),
            _ if is_over => Self::Before(words),
            _ => Self::Later(words),
        }
    }
}

impl From<ProviderError> for EndError {
    fn from(error: ProviderError) -> Self {
        match error {
            ProviderError::Refused(why) => Self::Later(why),
            ProviderError::Unreachable(why) => Self::Later(why.to_owned()),
        }
    }
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

/// Repeats a request that ends something until the provider has ended it, or says that there is nothing to be ended.
pub(super) async fn insist<F>(provider: &'static str, request: impl Fn() -> F)
where
    F: Future<Output = Result<(), EndError>>,
{
    for attempt in 1..=ENDING_ATTEMPTS {
        match request().await {
            Ok(()) => return,
            Err(EndError::Before(why)) => {
                tracing::debug!(provider, why, "a call has ended before");
                return;
            }
            Err(EndError::Credentials(why)) => {
                tracing::warn!(provider, attempt, why, "a provider did not end a call: it refuses the credentials");
            }
            Err(EndError::Later(why)) => tracing::warn!(provider, attempt, why, "a provider did not end a call"),
        }
        sleep(ENDING_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn only_what_has_ended_before_is_not_ended_again() {
        let n_attempts = async |answers: Vec<Result<(), EndError>>| {
            let answers = Mutex::new(answers.into_iter());
            let n = Mutex::new(0);
            insist("asterisk", || {
                *n.lock().expect("no panic while locked") += 1;
                ready(answers.lock().expect("no panic while locked").next().unwrap_or(Ok(())))
            })
            .await;
            n.into_inner().expect("no panic while locked")
        };
        let answer = |status: u16, is_over: bool| {
            Err(EndError::of(StatusCode::from_u16(status).expect("a status"), is_over, String::new()))
        };
        assert_eq!(n_attempts(vec![answer(404, true)]).await, 1);
        assert_eq!(n_attempts(vec![Err(ProviderError::Unreachable("no connection").into())]).await, 2);
        for (status, is_over) in [(404, false), (429, false), (500, false), (401, true), (403, true)] {
            assert_eq!(n_attempts(vec![answer(status, is_over)]).await, 2, "{status}");
            let all = (0..5).map(|_| answer(status, is_over)).collect();
            assert_eq!(n_attempts(all).await, ENDING_ATTEMPTS, "{status}");
        }
    }
}
