//! CPU time, memory and disk usage of the bench's process.

use std::path::Path;
use std::time::Duration;

/// Returns the CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    // The kernel updates the counter at ticks, milliseconds apart, and on every context switch.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("read from /proc");
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .expect("the first figure is in ns");
    Duration::from_nanos(ns)
}

/// Returns the CPU time of a process; `id` is a number or `self`.
pub(crate) fn cpu_of_process(id: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("read from /proc");
    // After the name of the program, which may contain any character: user and system time are the
    // 12th and 13th field, in hundredths of a second.
    let fields = text
        .rsplit(')')
        .next()
        .expect("a split has a part")
        .split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("it is a number"))
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Returns the resident size of the process.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read from /proc");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("it is always there");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("it is a number")
        << 10
}

/// Returns the size of all files below a directory, without the reserve of the WAL.
pub(crate) fn size_of_dir(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of_dir(&entry.path()),
            Ok(meta) if entry.file_name() != "reserve" => meta.len(),
            _ => 0,
        })
        .sum()
}
