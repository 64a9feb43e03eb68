//! (in work: `Parts` and `serve` are what `cli` calls)

mod assets;

pub use assets::asset;

use crate::config::Config;
use crate::session::Engines;
use crate::telemetry::Metrics;
use std::io;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What a server is made of.
pub struct Parts {
    /// The whole configuration.
    pub config: Config,
    /// The engines all sessions share.
    pub engines: Engines,
    /// What is counted.
    pub metrics: Metrics,
}

/// Serves on `listener` until `stop` is cancelled and running sessions have ended.
pub async fn serve(_listener: TcpListener, _parts: Parts, _stop: CancellationToken) -> io::Result<()> {
    Err(io::Error::other("this build has no server yet"))
}
