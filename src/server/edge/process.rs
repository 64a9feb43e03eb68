//! CPU and memory usage of this process, read from `/proc` (Linux only), its tasks and limits.
//!
//! The state, the metrics, the load and the limits of connections and sessions read it. It changes nothing but the
//! limit of open files.

use antiphon_telemetry::{Exposition, Family};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::fs::read_to_string;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Kernel ticks per second in `/proc/self/stat`: constant on Linux (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Minimum sampling interval: below it, the resolution of the ticks dominates.
const LEAST: Duration = Duration::from_millis(500);

/// The sample of the previous query.
pub(in crate::server) struct Process(Mutex<Sample>);

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    ticks: Option<u64>,
    cpu_percent: Option<f64>,
}

/// The current usage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in crate::server) struct Usage {
    /// CPU time in percent of one core, since the previous sample.
    pub(in crate::server) cpu_percent: Option<f64>,
    /// Resident memory.
    pub(in crate::server) memory_bytes: Option<u64>,
}

impl Process {
    pub(in crate::server) fn new() -> Self {
        Self(Mutex::new(Sample { at: Instant::now(), ticks: ticks(), cpu_percent: None }))
    }

    /// The current usage. Reads two small files under `/proc`.
    pub(in crate::server) fn usage(&self) -> Usage {
        let mut sample = self.0.lock().expect("no panic while locked");
        let took = sample.at.elapsed();
        if took >= LEAST {
            let now = ticks();
            let used = now.zip(sample.ticks).map(|(now, before)| now.saturating_sub(before) as f64 / TICKS_PER_SECOND);
            let percent = used.map(|seconds| (seconds / took.as_secs_f64() * 1e4).round() / 100.0);
            *sample = Sample { at: Instant::now(), ticks: now, cpu_percent: percent };
        }
        Usage { cpu_percent: sample.cpu_percent, memory_bytes: memory() }
    }
}

/// Tasks of this thread's runtime that have not ended. Only within a runtime.
pub(in crate::server) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// CPU time of this process so far, in seconds; resolution 10 ms. Reads a small file under `/proc`.
pub(in crate::server) fn cpu_seconds() -> Option<f64> {
    ticks().map(|ticks| ticks as f64 / TICKS_PER_SECOND)
}

/// Files and connections that this process has open.
pub(in crate::server) fn open_descriptors() -> Option<usize> {
    // Reading the folder opens one.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}

/// How many files and connections this process may have open (`RLIMIT_NOFILE`); `usize::MAX` where there is no limit.
pub(in crate::server) fn max_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Raises that limit to what the process may have: the soft limit of a shell, 1024, is for programs that use `select`. A server
/// calls it before it reads the limit.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised (ulimit -n)");
    }
}

static TASKS: Family = Family::gauge("antiphon_tasks", "Asynchronous tasks that have not ended.");
static MEMORY: Family = Family::gauge("process_resident_memory_bytes", "Resident memory.");
static CPU: Family = Family::counter("process_cpu_seconds_total", "Processor time used, by user and system.");
static OPEN_FDS: Family = Family::gauge("process_open_fds", "Open files and connections.");
static MAX_FDS: Family = Family::gauge("process_max_fds", "Files and connections that may be open.");

/// What this process holds and has used. The names with `process_` are those of Prometheus' client libraries.
pub(in crate::server) fn metrics() -> String {
    let mut text = Exposition::default();
    text.value(&TASKS, tasks());
    if let Some(bytes) = memory() {
        text.value(&MEMORY, bytes);
    }
    if let Some(seconds) = cpu_seconds() {
        text.value(&CPU, seconds);
    }
    if let Some(n) = open_descriptors() {
        text.value(&OPEN_FDS, n);
    }
    text.value(&MAX_FDS, max_descriptors());
    text.into_text()
}

fn ticks() -> Option<u64> {
    cpu_ticks(&read_to_string("/proc/self/stat").ok()?)
}

/// User and system time, fields 14 and 15. The second field is a name in parentheses that may contain spaces.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Resident memory, in bytes. Reads a small file under `/proc`.
pub(in crate::server) fn memory() -> Option<u64> {
    let status = read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_blanks() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn a_low_limit_of_open_files_is_raised_as_far_as_it_may_be() {
        let limit = getrlimit(Resource::Nofile);
        let low = Rlimit { current: Some(64), ..limit };
        setrlimit(Resource::Nofile, low).expect("it may be lowered");
        assert_eq!(max_descriptors(), 64);
        raise_descriptor_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }

    #[test]
    fn this_process_uses_memory() {
        let usage = Process::new().usage();
        assert!(usage.memory_bytes.is_some_and(|bytes| bytes > 1024 * 1024), "{usage:?}");
        assert_eq!(usage.cpu_percent, None, "nobody has asked before");
    }
}
