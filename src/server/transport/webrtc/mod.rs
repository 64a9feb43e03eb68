//! WebRTC: browsers and other peers of the Realtime API that take an SDP answer instead of a WebSocket.
//!
//! [`signaling`] takes offers over HTTP, [`answer`] answers them, [`endpoint`] holds the sockets of all calls, and
//! [`peer`] is the task of one call, on str0m, between the sockets and a [`Call`](super::call::Call). The session is
//! the one of the binary mode with Opus: paced frames, which [`speaker`] sends in real time; the hub truncates at a
//! barge-in, because it owns the output buffer ([`events`]). `server` binds and runs it; nothing here starts without an
//! offer.

mod answer;
pub(super) mod connection;
mod endpoint;
mod events;
mod microphone;
mod peer;
pub(in crate::server) mod signaling;
mod speaker;
#[cfg(feature = "testing")]
pub mod testing;

use crate::config::RtcConfig;
use endpoint::Endpoint;
use std::io;
use std::sync::Arc;
use str0m::config::{CryptoProvider, DtlsCert};
use tokio_util::sync::CancellationToken;

/// The sockets and the certificate.
pub(in crate::server) struct Webrtc {
    endpoint: Arc<Endpoint>,
    crypto: Arc<CryptoProvider>,
    /// One for all calls: making one takes as long as many handshakes.
    certificate: DtlsCert,
}

impl Webrtc {
    /// Binds the sockets; `None`: `rtc.listen` is empty.
    ///
    /// # Errors
    /// The address cannot be bound, or no address is known under which peers reach it.
    pub(in crate::server) async fn bind(config: &RtcConfig) -> io::Result<Option<Self>> {
        if config.listen.is_empty() {
            return Ok(None);
        }
        let endpoint = Arc::new(Endpoint::bind(config).await.map_err(|error| {
            io::Error::new(error.kind(), format!("WebRTC cannot listen on {} (rtc.listen): {error}", config.listen))
        })?);
        let crypto = Arc::new(str0m::crypto::from_feature_flags());
        let certificate = crypto.dtls_provider.generate_certificate();
        let certificate = certificate.ok_or_else(|| io::Error::other("no certificate for WebRTC could be made"))?;
        Ok(Some(Self { endpoint, crypto, certificate }))
    }

    /// Receives for all calls until `stop`.
    pub(in crate::server) async fn run(&self, stop: CancellationToken) {
        self.endpoint.clone().run(stop).await;
    }
}
