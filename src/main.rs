//! The binary `antiphon`; [`antiphon::cli`] does the rest.

use antiphon::cli::{self, Cli};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Cli::parse();
    cli::main(args.log_json, args.default_log(), cli::run(args))
}
