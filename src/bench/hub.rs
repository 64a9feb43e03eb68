//! A hub in a process of its own, and what that process costs.
//!
//! The program is this one: its hidden `bench-hub` command prints its address on the first line and serves until its
//! stdin ends. So a hub never outlives the benchmark, however that ends.

use super::BenchError;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long engines may load.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Ticks a second in `/proc`: `USER_HZ`, 100 on every Linux this runs on.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// What a hub under measurement is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engines {
    /// The stages' fakes: they take no time.
    Fake,
    /// What `antiphon serve` starts with by default.
    Offline,
}

impl Engines {
    /// What the command calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fake => "fake",
            Self::Offline => "offline",
        }
    }
}

/// How a hub is started: this, and the name of its [`Engines`] as the last argument.
#[derive(Clone, Debug)]
pub struct HubCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the engines' name.
    pub args: Vec<String>,
}

/// A running hub; dropping it ends its process.
pub(super) struct Hub {
    pub(super) url: String,
    child: Child,
    pid: u32,
}

impl Hub {
    /// Starts one and waits until its engines are loaded.
    pub(super) async fn start(command: &HubCommand, engines: Engines) -> Result<Self, BenchError> {
        let failed = |what| move |source| BenchError::Hub { what, source: Some(source) };
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .arg(engines.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed("cannot be started"))?;
        let pid = child.id().ok_or_else(|| BenchError::hub("ended at once"))?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut address = String::new();
        let read = timeout(START_DEADLINE, BufReader::new(stdout).read_line(&mut address)).await;
        let n_bytes = read.map_err(|_| BenchError::hub("took longer than a minute to start"))?;
        if n_bytes.map_err(failed("did not say its address"))? == 0 {
            return Err(BenchError::hub("ended before it was ready; what it said stands above"));
        }
        Ok(Self { url: format!("http://{}", address.trim()), child, pid })
    }

    /// Resident memory now, in bytes.
    pub(super) fn resident(&self) -> Result<u64, BenchError> {
        self.status("VmRSS:")
    }

    /// The most resident memory it ever had, in bytes.
    pub(super) fn resident_peak(&self) -> Result<u64, BenchError> {
        self.status("VmHWM:")
    }

    /// Processor time it has used, user and system, in seconds.
    pub(super) fn cpu_s(&self) -> Result<f64, BenchError> {
        let text = self.read("stat")?;
        cpu_ticks(&text).map(|ticks| ticks as f64 / TICKS_PER_SECOND).ok_or_else(|| BenchError::Proc(text))
    }

    /// Ends it.
    pub(super) async fn stop(mut self) {
        // Its stdin is closed by this; should it not end by itself, it is killed when it is dropped.
        drop(self.child.stdin.take());
        let _ = timeout(Duration::from_secs(5), self.child.wait()).await;
    }

    fn status(&self, field: &str) -> Result<u64, BenchError> {
        let text = self.read("status")?;
        kib(&text, field).map(|kib| kib * 1024).ok_or_else(|| BenchError::Proc(format!("there is no {field}")))
    }

    fn read(&self, file: &str) -> Result<String, BenchError> {
        let path = format!("/proc/{}/{file}", self.pid);
        std::fs::read_to_string(&path).map_err(|error| BenchError::Proc(format!("{path}: {error}")))
    }
}

/// A field of `/proc/<pid>/status`, in KiB.
fn kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// `utime` and `stime` of `/proc/<pid>/stat`: the 14th and 15th field. The second, the name, may hold spaces.
pub(super) fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_files_are_read_as_the_kernel_writes_them() {
        let status = "Name:\tantiphon\nVmHWM:\t   20480 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(
            (kib(status, "VmRSS:"), kib(status, "VmHWM:"), kib(status, "VmSwap:")),
            (Some(1024), Some(20480), None)
        );
        let stat = "77 (a (b) c) S 1 77 77 0 -1 4194560 1210 0 3 0 250 31 0 0 20 0 5 0 100 0 0";
        assert_eq!(cpu_ticks(stat), Some(281));
        assert_eq!(cpu_ticks("77 (a) S 1"), None);
    }

    #[tokio::test]
    async fn a_hub_that_ends_or_is_missing_is_an_error() {
        let command = |program: &str| HubCommand { program: program.into(), args: vec![] };
        let error = Hub::start(&command("/no/such/program"), Engines::Fake).await.err().expect("missing");
        assert_eq!(error.to_string(), "the hub under measurement cannot be started");
        let error = Hub::start(&command("true"), Engines::Fake).await.err().expect("ends");
        assert!(error.to_string().contains("ended before it was ready"), "{error}");
    }
}
