//! Memory and CPU time of a process, from `/proc`.

use super::BenchError;

/// Ticks per second in `/proc`: `USER_HZ`, which is 100 on every supported Linux.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// A process of this machine, identified by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

impl Process {
    /// Current resident memory, in bytes. It includes pages of the program's file, which come and go with the memory
    /// that the system has free. Fails if there is no such process, or no `/proc`.
    pub fn resident(self) -> Result<u64, BenchError> {
        self.status("VmRSS:")
    }

    /// The part of the resident memory that is no file's, in bytes: growth and slopes are measured by it.
    pub fn anonymous(self) -> Result<u64, BenchError> {
        let text = self.read("status")?;
        anonymous_kib(&text).map(|kib| kib * 1024).ok_or_else(|| BenchError::Proc("there is no RssAnon:".into()))
    }

    /// Peak resident memory, in bytes.
    pub fn resident_peak(self) -> Result<u64, BenchError> {
        self.status("VmHWM:")
    }

    /// Files and connections that it has open.
    pub fn files(self) -> Result<usize, BenchError> {
        let path = format!("/proc/{}/fd", self.0);
        let files = std::fs::read_dir(&path).map_err(|error| BenchError::Proc(format!("{path}: {error}")))?;
        Ok(files.count())
    }

    /// CPU time used so far, user and system, in seconds.
    pub fn cpu_s(self) -> Result<f64, BenchError> {
        let text = self.read("stat")?;
        cpu_ticks(&text).map(|ticks| ticks as f64 / TICKS_PER_SECOND).ok_or_else(|| BenchError::Proc(text))
    }

    fn status(self, field: &str) -> Result<u64, BenchError> {
        let text = self.read("status")?;
        kib(&text, field).map(|kib| kib * 1024).ok_or_else(|| BenchError::Proc(format!("there is no {field}")))
    }

    fn read(self, file: &str) -> Result<String, BenchError> {
        let path = format!("/proc/{}/{file}", self.0);
        std::fs::read_to_string(&path).map_err(|error| BenchError::Proc(format!("{path}: {error}")))
    }
}

/// A field of `/proc/<pid>/status`, in KiB.
fn kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Anonymous and shared memory of `/proc/<pid>/status`, in KiB: resident memory without pages of files.
fn anonymous_kib(status: &str) -> Option<u64> {
    Some(kib(status, "RssAnon:")? + kib(status, "RssShmem:")?)
}

/// `utime` plus `stime` of `/proc/<pid>/stat`: fields 14 and 15. The second field, the name, may contain spaces.
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
        let parts = "VmRSS:\t   90000 kB\nRssAnon:\t   40000 kB\nRssFile:\t   49000 kB\nRssShmem:\t    1000 kB\n";
        assert_eq!((anonymous_kib(parts), anonymous_kib(status)), (Some(41_000), None));
        let stat = "77 (a (b) c) S 1 77 77 0 -1 4194560 1210 0 3 0 250 31 0 0 20 0 5 0 100 0 0";
        assert_eq!(cpu_ticks(stat), Some(281));
        assert_eq!(cpu_ticks("77 (a) S 1"), None);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let said = Process(u32::MAX).resident().expect_err("no such process").to_string();
        assert!(said.contains("/proc/4294967295/status"), "{said}");
    }
}
