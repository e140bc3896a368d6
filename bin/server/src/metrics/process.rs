//! The `process_*` metrics that every Prometheus client exports, read from /proc.

use prometheus::proto::MetricFamily;
use varve_system::machine::process::{cpu, status_kib};

use varve_system::metrics::family;

/// Collects the metrics. Those that the system does not provide are skipped.
pub(super) fn gather(started_s: f64) -> Vec<MetricFamily> {
    let status = read("status");
    let memory = |key: &str| status_kib(&status, key).map(|kib| (kib * 1024) as f64);
    let metrics = [
        (
            "process_cpu_seconds_total",
            cpu(&read("stat")).map(|time| time.as_secs_f64()),
        ),
        ("process_resident_memory_bytes", memory("VmRSS:")),
        ("process_virtual_memory_bytes", memory("VmSize:")),
        ("process_open_fds", open_fds()),
        ("process_max_fds", fds_max(&read("limits"))),
        ("process_start_time_seconds", Some(started_s)),
    ];
    metrics
        .into_iter()
        .filter_map(|(name, value)| Some(family(name, [([], value?)])))
        .collect()
}

fn open_fds() -> Option<f64> {
    // One of them is the directory being read.
    Some(
        std::fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1) as f64,
    )
}

fn fds_max(limits: &str) -> Option<f64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
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
        assert_eq!(
            fds_max("Max open files            1024                 4096 files"),
            Some(1024.0)
        );
        assert_eq!(
            (cpu(""), status_kib("", "VmRSS:"), fds_max("")),
            (None, None, None)
        );
    }
}
