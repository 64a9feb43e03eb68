//! A hub in a separate process, and the resource use of that process.
//!
//! The program is this one: its hidden command `hub --with-stdin` prints its address on the first line and serves until
//! its stdin ends, so a hub never outlives the benchmark.

use super::{BenchError, Process, name_of};
use clap::ValueEnum;
use rand::RngExt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Timeout for loading the engines.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// The engines of a hub under measurement. The comments are the help of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engines {
    /// The fakes of all stages, with zero latency
    Fake,
    /// The default engines of `antiphon serve` with the installed models
    Shipped,
    /// The same with a scripted language model
    Conversation,
    /// Remote engines, all at one address
    Mock,
    /// Simulated engines in the hub
    Simulated,
    /// The engines that need no model, with a recognizer that follows a script
    Scripted,
    /// Simulated engines on workers
    Cluster,
}

/// The command that starts a hub; the name of its [`Engines`] is appended as the last argument.
#[derive(Clone, Debug)]
pub struct HubCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments before the name of the engines.
    pub args: Vec<String>,
}

/// A running hub; dropping it ends its process.
pub struct Hub {
    /// Its address: `http://127.0.0.1:PORT`.
    pub url: String,
    /// The process, for its resource use.
    pub process: Process,
    child: Child,
}

impl Hub {
    /// Starts a hub and waits until its engines are loaded.
    pub async fn start(command: &HubCommand, engines: Engines) -> Result<Self, BenchError> {
        Self::spawn(command, &[name_of(engines)]).await
    }

    /// Starts a hub whose recognizer follows a script, with this detector of speech: `earshot` or `silero`.
    pub(super) async fn scripted(command: &HubCommand, vad: &str) -> Result<Self, BenchError> {
        let vad = format!("vad.engine={vad}");
        Self::spawn(command, &[name_of(Engines::Scripted), "--set".to_owned(), vad]).await
    }

    /// Starts a server with additional arguments. It must print its address first and stop when its stdin ends.
    pub(super) async fn spawn(command: &HubCommand, args: &[String]) -> Result<Self, BenchError> {
        let StartedProcess { line, process, child, .. } = start(command, args, None).await?;
        Ok(Self { url: format!("http://{line}"), process, child })
    }

    /// Stops the hub.
    pub async fn stop(mut self) {
        // Closing stdin stops it; if it does not stop, it is killed when it is dropped.
        drop(self.child.stdin.take());
        let _ = timeout(Duration::from_secs(5), self.child.wait()).await;
    }
}

/// A process of this program that has printed its first line.
pub(super) struct StartedProcess {
    /// The line, without its end.
    pub(super) line: String,
    pub(super) process: Process,
    pub(super) child: Child,
    /// What it prints next.
    pub(super) stdout: BufReader<ChildStdout>,
}

/// Starts a process and waits for its first line. Its log goes to the file `log`, in which it is kept, or to stderr.
pub(super) async fn start(
    command: &HubCommand,
    args: &[String],
    log: Option<std::fs::File>,
) -> Result<StartedProcess, BenchError> {
    let failed = |what| move |source| BenchError::Hub { what, source: Some(source) };
    let mut run = Command::new(&command.program);
    run.args(&command.args).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    if let Some(log) = log {
        run.stderr(log).env("ANTIPHON_LOG", "warn,antiphon=info,antiphon_cluster=debug").env("NO_COLOR", "1");
    }
    let mut child = run.spawn().map_err(failed("cannot be started"))?;
    let pid = child.id().ok_or_else(|| BenchError::hub("ended immediately"))?;
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    let read = timeout(START_DEADLINE, stdout.read_line(&mut line)).await;
    let n_bytes = read.map_err(|_| BenchError::hub("took longer than a minute to start"))?;
    if n_bytes.map_err(failed("did not say its address"))? == 0 {
        return Err(BenchError::hub("ended before it was ready; see its output above"));
    }
    Ok(StartedProcess { line: line.trim().to_owned(), process: Process(pid), child, stdout })
}

/// An address of this machine that is free for UDP and TCP, where a hub may listen for SIP.
pub(super) fn free_address() -> Result<SocketAddr, BenchError> {
    let is_free = |address: &SocketAddr| TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok();
    let ports = std::iter::repeat_with(|| rand::rng().random_range(10_000..20_000)).take(1_000);
    let mut addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    addresses.find(is_free).ok_or_else(|| BenchError::Method("no port is free for SIP".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hub_that_ends_or_is_missing_is_an_error() {
        let command = |program: &str| HubCommand { program: program.into(), args: vec![] };
        let error = Hub::start(&command("/no/such/program"), Engines::Fake).await.err().expect("missing");
        assert_eq!(error.to_string(), "the hub under measurement cannot be started");
        let error = Hub::start(&command("true"), Engines::Fake).await.err().expect("ends");
        assert!(error.to_string().contains("ended before it was ready"), "{error}");
    }
}
