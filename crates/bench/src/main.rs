//! The program `antiphon-bench`: arguments, logging, runtime, command, exit code.

use antiphon::cli::DefaultLog;
use antiphon_bench::cli::{self, Cli};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Cli::parse();
    antiphon::server::raise_descriptor_limit();
    antiphon::cli::main(false, DefaultLog::Warnings, cli::run(args))
}
