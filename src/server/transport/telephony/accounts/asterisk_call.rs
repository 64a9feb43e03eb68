//! A call out as Asterisk has it: Asterisk calls the number into the hub's Stasis application, then opens a stream
//! (`chan_websocket`) to the hub, which brings the call's secret; a bridge connects the two.
//!
//! [`super::Accounts`] makes one for each call, [`super::dial`] has it made. It decides nothing about the call.

use super::ari::Ari;
use super::expected::ExpectedCall;
use super::number::number_of;
use super::provider::{EndCause, ProviderCall, insist};
use crate::server::transport::keypad::PressKeys;
use crate::server::transport::telephony::outgoing::RINGS;
use crate::server::transport::telephony::transfer_requests::BlindTransfer;
use crate::server::transport::transfers::{ProviderError, TransferError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A key and the pause after it, as Asterisk presses them by default.
const KEY: Duration = Duration::from_millis(200);

/// See the module.
pub(super) struct AsteriskCall {
    ari: Arc<Ari>,
    /// The name of its channel.
    id: String,
    secret: String,
    to: String,
    from: String,
    /// Whether it has a stream, as far as the hub has asked for one.
    has_stream: AtomicBool,
    /// Cancelled once the channel of the stream can be connected.
    stream_ready: CancellationToken,
    /// Cancelled once the call goes on in the dialplan.
    moved: CancellationToken,
}

/// Has a call of Asterisk go on in the dialplan.
struct AsteriskRedirect {
    ari: Arc<Ari>,
    id: String,
    moved: CancellationToken,
}

/// Presses keys in a call of Asterisk.
struct AsteriskKeys {
    ari: Arc<Ari>,
    id: String,
}

impl AsteriskCall {
    /// A call that Asterisk does not know of yet.
    pub(super) fn new(ari: Arc<Ari>, expected: &ExpectedCall, to: String, from: String) -> Self {
        Self {
            ari,
            id: expected.id.clone(),
            secret: expected.secret.clone(),
            to,
            from,
            has_stream: AtomicBool::new(false),
            stream_ready: CancellationToken::new(),
            moved: CancellationToken::new(),
        }
    }
}

impl ProviderCall for AsteriskCall {
    fn transport(&self) -> &'static str {
        "asterisk"
    }

    fn make(&self) -> BoxFuture<'_, Result<String, ProviderError>> {
        async move {
            self.ari.call(&self.id, &self.to, &self.from, RINGS).await?;
            Ok(self.id.clone())
        }
        .boxed()
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move {
            self.has_stream.store(true, Ordering::Relaxed);
            self.ari.open_stream(&self.id, &self.secret).await?;
            self.stream_ready.cancelled().await;
            self.ari.connect(&self.id).await
        }
        .boxed()
    }

    fn stream_ready(&self) {
        self.stream_ready.cancel();
    }

    fn redirect(&self) -> Option<Arc<dyn BlindTransfer>> {
        if !self.ari.transfers() {
            return None;
        }
        let moved = self.moved.clone();
        Some(Arc::new(AsteriskRedirect { ari: self.ari.clone(), id: self.id.clone(), moved }))
    }

    fn keys(&self) -> Option<Arc<dyn PressKeys>> {
        Some(Arc::new(AsteriskKeys { ari: self.ari.clone(), id: self.id.clone() }))
    }

    fn left(&self) -> BoxFuture<'_, ()> {
        self.moved.cancelled().boxed()
    }

    /// A call that was reported as over may go on in the dialplan: only its stream and its bridge are ended.
    fn end(&self, cause: EndCause) -> BoxFuture<'_, ()> {
        async move {
            let call = async {
                if cause != EndCause::Reported && !self.moved.is_cancelled() {
                    insist(self.transport(), || self.ari.end(&self.id)).await;
                }
            };
            if self.has_stream.load(Ordering::Relaxed) {
                let stream = insist(self.transport(), || self.ari.end_stream(&self.id));
                let bridge = insist(self.transport(), || self.ari.end_bridge(&self.id));
                tokio::join!(call, stream, bridge);
            } else {
                call.await;
            }
        }
        .boxed()
    }
}

impl BlindTransfer for AsteriskRedirect {
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>> {
        let Some(number) = number_of(&target) else { return ready(Err(TransferError::NoUri)).boxed() };
        let ari = self.ari.clone();
        let id = self.id.clone();
        let moved = self.moved.clone();
        async move {
            ari.move_to(&id, &number).await.map_err(TransferError::Provider)?;
            moved.cancel();
            Ok(())
        }
        .boxed()
    }

    fn is_final(&self) -> bool {
        true
    }
}

impl PressKeys for AsteriskKeys {
    fn press(&self, keys: &str) -> BoxFuture<'static, bool> {
        let ari = self.ari.clone();
        let id = self.id.clone();
        let keys = keys.to_owned();
        async move {
            if ari.press(&id, &keys).await.is_err() {
                return false;
            }
            // Asterisk answers before it presses them.
            sleep(KEY * keys.len() as u32).await;
            true
        }
        .boxed()
    }
}
