//! The program `antiphon-bench`: arguments, logging, runtime, command, exit code.

use antiphon_bench::cli::{self, Cli};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Cli::parse();
    antiphon::server::raise_descriptor_limit();
    let log = args.default_log();
    antiphon::cli::main(false, log, || cli::run(args))
}
