//! CPU time of the current thread.

use std::fs;
use std::time::Duration;

/// Returns the CPU time of the current thread, to the accuracy of the scheduler's tick (1 to 10 ms).
///
/// Source: Linux, Documentation/scheduler/sched-stats: the first field of `schedstat` is the time on the CPU in
/// nanoseconds.
pub(crate) fn thread_cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}
