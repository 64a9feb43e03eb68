//! CPU pinning: the hub under measurement on one core, the load on another.
//!
//! Uses `taskset` (util-linux), so that no unsafe code is needed. Without it, or without a second core, nothing is
//! pinned and the section says so.

use super::HubCommand;
use std::process::{Command, Stdio};

/// The load's threads, pinned to core 0; dropping it restores their previous affinity.
pub(super) struct LoadAffinity {
    before: String,
}

impl LoadAffinity {
    /// Pins every thread of this process to core 0. The error text states why it is not possible.
    pub(super) fn load() -> Result<Self, String> {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return Err("this machine has one processor".into());
        }
        let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
        let before = allowed(&status).ok_or("the system does not say where this process may run")?;
        taskset(&before.clone()).and(taskset("0"))?;
        Ok(Self { before })
    }

    /// The same command, pinned to core 1.
    pub(super) fn other(&self, command: &HubCommand) -> HubCommand {
        let program = command.program.to_string_lossy().into_owned();
        let args = ["-c".into(), "1".into(), program].into_iter().chain(command.args.clone()).collect();
        HubCommand { program: "taskset".into(), args }
    }
}

impl Drop for LoadAffinity {
    fn drop(&mut self) {
        // If this fails, later measures are slower and report that they were disturbed.
        let _ = taskset(&self.before);
    }
}

fn taskset(cores: &str) -> Result<(), String> {
    let own = std::process::id().to_string();
    let set = Command::new("taskset").args(["-a", "-c", "-p", cores, &own]).stdout(Stdio::null()).status();
    match set {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("taskset ended with {status}")),
        Err(error) => Err(format!("taskset: {error}")),
    }
}

/// `Cpus_allowed_list` of `/proc/self/status`.
fn allowed(status: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_is_started_by_taskset_with_its_own_arguments() {
        let pinned = LoadAffinity { before: allowed("Name:\tx\nCpus_allowed_list:\t0-1\n").expect("given") };
        assert_eq!(pinned.before, "0-1");
        let command = pinned.other(&HubCommand { program: "hub".into(), args: vec!["hub".into()] });
        assert_eq!((command.program.to_str(), command.args.join(" ")), (Some("taskset"), "-c 1 hub hub".into()));
    }
}
