//! Where settings come from: the option that every command with engines has.

use super::error::CliError;
use clap::Args;
use std::path::PathBuf;

/// Where settings come from, for every command that has engines.
#[derive(Debug, Args)]
pub struct Settings {
    /// Settings that differ from the defaults (see `antiphon config default`)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Settings {
    /// Reads them all.
    ///
    /// # Errors
    /// What is wrong with them, each with its place.
    pub fn load(&self) -> Result<crate::config::Config, CliError> {
        let sources = crate::config::Sources::of_process(self.config.as_deref());
        Ok(crate::config::load(&sources)?)
    }
}
