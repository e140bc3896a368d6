//! CPU time of the process.

use std::fs;
use std::time::Duration;

/// The unit of times in `/proc`, on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// Returns the CPU time of all threads of the process, also of those that have ended, rounded down
/// to [`TICK`]. Deep queries run on a thread of their own.
///
/// Source: Linux, Documentation/filesystems/proc.rst: the fields 14 and 15 of `stat` are the time
/// in user and in kernel mode. Field 2 is the name of the program in parentheses.
pub(crate) fn process_cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = text.rsplit_once(')').unwrap().1.split_whitespace();
    let n_ticks: u32 = fields
        .skip(14 - 3)
        .take(2)
        .map(|ticks| ticks.parse::<u32>().unwrap())
        .sum();
    n_ticks * TICK
}
