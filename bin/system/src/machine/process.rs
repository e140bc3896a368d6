//! CPU time and memory of a process, from `/proc`.

use std::time::Duration;

use anyhow::{Context, Result};

/// Ticks per second in `/proc/<pid>/stat`: 100 on every architecture.
const TICKS_PER_S: u64 = 100;

/// CPU time and memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// User and system time.
    pub cpu: Duration,
    pub(crate) resident_bytes: u64,
    /// The maximum of `resident_bytes`.
    pub peak_bytes: u64,
}

/// Reads the usage of a process.
pub fn usage(pid: u32) -> Result<ProcessUsage> {
    let stat = read(pid, "stat")?;
    let status = read(pid, "status")?;
    let kib = |key: &str| {
        status_kib(&status, key).with_context(|| format!("find {key} of process {pid}"))
    };
    let cpu = cpu(&stat).with_context(|| format!("find the CPU time of process {pid}"))?;
    Ok(ProcessUsage {
        cpu,
        resident_bytes: kib("VmRSS:")? * 1024,
        peak_bytes: kib("VmHWM:")? * 1024,
    })
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

/// Returns user plus system time, fields 14 and 15. Field 2 is a name that may contain any
/// character.
pub fn cpu(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut ticks = after_name
        .split_whitespace()
        .skip(11)
        .map(str::parse::<u64>);
    let total = ticks.next()?.ok()? + ticks.next()?.ok()?;
    Some(Duration::from_millis(total * 1000 / TICKS_PER_S))
}

/// Returns a value of `/proc/<pid>/status` in KiB.
pub fn status_kib(status: &str, key: &str) -> Option<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(key))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_from_their_files() {
        let stat = "7 (a) b (c)) S 1 1 1 0 -1 4194560 1 1 1 1 250 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu("7 (a"), None);
        assert_eq!(
            status_kib("VmPeak:\t 9 kB\nVmRSS:\t    16 kB\n", "VmRSS:"),
            Some(16)
        );
    }

    #[test]
    fn this_process_has_used_memory() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.resident_bytes > 0 && usage.peak_bytes >= usage.resident_bytes / 2);
    }
}
