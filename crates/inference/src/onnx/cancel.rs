//! A token's cancellation to a run's terminate flag, without a thread and without polling.

use ort::session::RunOptions;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// While it lives, cancelling the token terminates the run: the cancellation wakes this future's waker, which sets the flag.
/// The runtime checks it between two operators, within loops as well.
pub(super) struct StopWhenCancelled {
    _waiting: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl StopWhenCancelled {
    /// `None` when the token is cancelled already.
    pub(super) fn watch(cancel: &CancellationToken, options: Arc<RunOptions>) -> Option<Self> {
        let waker = Waker::from(Arc::new(Terminate { cancel: cancel.clone(), options }));
        let mut waiting = Box::pin(cancel.clone().cancelled_owned());
        let ready = waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        (!ready).then_some(Self { _waiting: waiting })
    }
}

struct Terminate {
    cancel: CancellationToken,
    options: Arc<RunOptions>,
}

impl Wake for Terminate {
    fn wake(self: Arc<Self>) {
        if self.cancel.is_cancelled()
            && let Err(error) = self.options.terminate()
        {
            tracing::warn!(%error, "a model's run could not be cancelled");
        }
    }
}
