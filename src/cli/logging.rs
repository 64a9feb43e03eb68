//! Logging to stderr, filtered by `ANTIPHON_LOG` or `RUST_LOG`.

use super::CliError;
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;

/// Default filters: a server logs its activity, a single command only warnings and errors.
const SERVER: &str = "warn,antiphon=info";
const COMMAND: &str = "warn";

/// Starts logging. Must be called once, before anything logs. `json`: one object per line; `stays`: the command is a
/// server.
///
/// # Errors
/// [`CliError::Usage`] if the variable is not a valid filter.
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
