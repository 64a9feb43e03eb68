//! Work that blocks, beside the runtime: every command that loads engines or reads large files uses it.

use super::error::CliError;

/// Runs what blocks, such as loading engines, beside the runtime.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CliError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| CliError::Failed(format!("it broke off: {error}")))
}
