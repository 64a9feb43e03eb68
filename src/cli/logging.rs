//! The log: to stderr, as `ANTIPHON_LOG` or `RUST_LOG` say.

use super::CliError;
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;

/// What is logged when nothing is said: a server tells what it does, a single command only what goes wrong.
const SERVER: &str = "warn,antiphon=info";
const COMMAND: &str = "warn";

/// Starts logging; to be called once, before anything logs.
///
/// # Errors
/// [`CliError::Usage`] when the variable's text is no filter.
pub fn start(json: bool, stays: bool) -> Result<(), CliError> {
    let filter = match ["ANTIPHON_LOG", "RUST_LOG"].into_iter().find_map(set) {
        Some((name, text)) => EnvFilter::try_new(&text).map_err(|error| {
            CliError::Usage(format!("{name}={text:?} is no log filter ({error}); write for example debug"))
        })?,
        None => EnvFilter::new(if stays { SERVER } else { COMMAND }),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if json {
        log.json().init();
    } else {
        let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        log.with_ansi(colours).with_target(false).init();
    }
    Ok(())
}

fn set(name: &'static str) -> Option<(&'static str, String)> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| (name, text))
}
