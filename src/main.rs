//! The binary: arguments, log, runtime, command, exit code.

use antiphon::cli::{self, Cli, CliError};
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;

/// How long threads that still work for an engine are waited for at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args = Cli::parse();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn start(args: Cli) -> Result<(), CliError> {
    cli::logging::start(args.log_json, args.command.stays())?;
    // The remote engines' TLS takes the process' provider. Only a second installation could fail, and would be the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::Failed(format!("no threads can be started: {error}")))?;
    let done = runtime.block_on(cli::run(args.command));
    runtime.shutdown_timeout(LAST_WAIT);
    done
}

/// One line for each thing that is wrong.
fn report(error: &CliError) {
    for line in cli::with_causes(error).lines() {
        eprintln!("antiphon: {line}");
    }
}
