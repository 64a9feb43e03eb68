//! Logging to stderr, filtered by `ANTIPHON_LOG` or `RUST_LOG`.

use super::CliError;
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;

/// Where `trace` would write requests to servers with their keys. It replaces what a filter says of this target.
const WITHOUT_KEYS: &str = "tungstenite::handshake::client=warn";

/// What is logged where no variable says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultLog {
    /// Activity: of servers.
    Activity,
    /// Warnings and errors: of a single command.
    Warnings,
    /// Nothing: of a command that provokes failures by the thousand.
    Nothing,
}

impl DefaultLog {
    const fn filter(self) -> &'static str {
        match self {
            // What symphonia skips in a damaged sound file is not reported.
            Self::Activity => "warn,antiphon=info,symphonia=error",
            Self::Warnings => "warn,symphonia=error",
            Self::Nothing => "off",
        }
    }
}

/// Starts logging. Must be called once, before anything logs. `json`: one object per line.
///
/// # Errors
/// [`CliError::Usage`] if the variable is not a valid filter.
pub fn start(json: bool, default: DefaultLog) -> Result<(), CliError> {
    let filter = match ["ANTIPHON_LOG", "RUST_LOG"].into_iter().find_map(set) {
        Some((name, text)) => {
            let filter = EnvFilter::try_new(&text).map_err(|error| {
                CliError::Usage(format!("{name}={text:?} is no log filter ({error}); write for example debug"))
            })?;
            filter.add_directive(WITHOUT_KEYS.parse().expect("a directive"))
        }
        None => EnvFilter::new(default.filter()),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // It would report a stderr that cannot be written by `eprintln!`, which panics: the task that logs would end.
    let log = log.log_internal_errors(false);
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
