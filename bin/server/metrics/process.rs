//! The `process_*` metrics that every Prometheus client exports, read from /proc.

use prometheus::proto::MetricFamily;

use super::table::family;

/// Ticks per second in /proc/self/stat: 100 on every architecture.
const TICKS_PER_S: f64 = 100.0;

/// Collects the metrics. Those that the system does not provide are skipped.
pub(super) fn gather(started_s: f64) -> Vec<MetricFamily> {
    let status = read("status");
    let memory = |key: &str| status_kib(&status, key).map(|kib| kib * 1024.0);
    let metrics = [
        ("process_cpu_seconds_total", cpu_seconds(&read("stat"))),
        ("process_resident_memory_bytes", memory("VmRSS:")),
        ("process_virtual_memory_bytes", memory("VmSize:")),
        ("process_open_fds", open_fds()),
        ("process_max_fds", fds_max(&read("limits"))),
        ("process_start_time_seconds", Some(started_s)),
    ];
    metrics.into_iter().filter_map(|(name, value)| Some(family(name, [([], value?)]))).collect()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The command name in parentheses may contain anything. The 12th and 13th field after it are utime and stime.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
    Some((ticks.next()?.ok()? + ticks.next()?.ok()?) / TICKS_PER_S)
}

fn status_kib(status: &str, key: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse().ok())
}

fn open_fds() -> Option<f64> {
    // One of them is the directory being read.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn fds_max(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_from_their_files() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(status_kib("VmPeak:\t 9 kB\nVmRSS:\t    16 kB\n", "VmRSS:"), Some(16.0));
        assert_eq!(fds_max("Max open files            1024                 4096 files"), Some(1024.0));
        assert_eq!((cpu_seconds(""), status_kib("", "VmRSS:"), fds_max("")), (None, None, None));
    }
}
