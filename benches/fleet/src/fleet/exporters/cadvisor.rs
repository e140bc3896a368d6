//! cAdvisor in the kubelet of Kubernetes 1.35: containers, and the network of pods.

use super::super::model::{Model, constant, counter, drawn, gauge, level, now, rare, started};
use super::super::template::{Job, Rows, SANDBOX, Subject};

const PER_CONTAINER: [(&str, Model); 31] = [
    ("container_cpu_cfs_periods_total", counter(7, 9).idle(20)),
    ("container_cpu_cfs_throttled_periods_total", counter(1, 6).idle(20)),
    ("container_cpu_cfs_throttled_seconds_total", counter(14, 22).decimals(6).idle(20)),
    ("container_cpu_system_seconds_total", counter(13, 22).decimals(6)),
    ("container_cpu_user_seconds_total", counter(14, 24).decimals(6)),
    ("container_file_descriptors", level(12, 90, 6)),
    ("container_fs_reads_bytes_total", counter(1, 9).unit(4096).idle(50)),
    ("container_fs_reads_total", counter(0, 6).idle(50)),
    ("container_fs_writes_bytes_total", counter(4, 13).unit(4096).idle(40)),
    ("container_fs_writes_total", counter(1, 8).idle(40)),
    ("container_last_seen", now().decimals(3)),
    ("container_memory_cache", gauge(12, 20, 8).unit(4096).idle(20)),
    ("container_memory_failcnt", rare(2000)),
    ("container_memory_kernel_usage", gauge(9, 13, 3).unit(4096)),
    ("container_memory_mapped_file", gauge(8, 14, 4).unit(4096).idle(20)),
    ("container_memory_max_usage_bytes", drawn(10_000, 4_000_000).unit(4096)),
    ("container_memory_rss", gauge(13, 22, 11).unit(4096)),
    ("container_memory_total_active_file_bytes", gauge(10, 16, 6).unit(4096).idle(20)),
    ("container_memory_total_inactive_file_bytes", gauge(10, 18, 9).unit(4096).idle(20)),
    ("container_memory_usage_bytes", gauge(14, 23, 12).unit(4096)),
    ("container_memory_working_set_bytes", gauge(14, 22, 12).unit(4096)),
    ("container_oom_events_total", constant(0)),
    ("container_pressure_cpu_waiting_seconds_total", counter(10, 19).decimals(6)),
    ("container_pressure_io_waiting_seconds_total", counter(6, 14).decimals(6).idle(30)),
    ("container_pressure_memory_stalled_seconds_total", constant(0)),
    ("container_processes", level(1, 4, 40)),
    ("container_sockets", level(4, 80, 5)),
    ("container_spec_cpu_quota", drawn(1, 64).unit(25_000)),
    ("container_spec_memory_limit_bytes", drawn(1, 256).unit(268_435_456)),
    ("container_start_time_seconds", started().decimals(3)),
    ("container_threads", level(8, 120, 4)),
];

const PER_INTERFACE: [(&str, Model); 7] = [
    ("container_network_receive_bytes_total", counter(14, 29)),
    ("container_network_receive_errors_total", constant(0)),
    ("container_network_receive_packets_dropped_total", rare(60)),
    ("container_network_receive_packets_total", counter(7, 19)),
    ("container_network_transmit_bytes_total", counter(14, 29)),
    ("container_network_transmit_errors_total", constant(0)),
    ("container_network_transmit_packets_total", counter(7, 19)),
];

/// Returns the number of containers of a pod. Every third pod has a second container, every ninth a third.
pub(super) fn n_containers(slot: u16) -> u8 {
    1 + u8::from(slot.is_multiple_of(3)) + u8::from(slot.is_multiple_of(9))
}

pub(super) fn list(rows: &mut Rows, slot: u16) {
    for container in 0..n_containers(slot) {
        let mut target = rows.of(Job::Cadvisor, Subject::Container { slot, container });
        let cpu = counter(14, 25).decimals(6);
        target.series("container_cpu_usage_seconds_total", &[("cpu", "total".into())], cpu);
        target.table(&[], &PER_CONTAINER);
        for operation in ["Read", "Write"] {
            let own = [("device", "/dev/nvme1n1".into()), ("operation", operation.into())];
            target.series("container_blkio_device_usage_total", &own, counter(5, 15).unit(4096).idle(30));
        }
        for (kind, model) in [("pgfault", counter(9, 18)), ("pgmajfault", rare(30))] {
            for scope in ["container", "hierarchy"] {
                let own = [("failure_type", kind.into()), ("scope", scope.into())];
                target.series("container_memory_failures_total", &own, model);
            }
        }
    }
    // The network belongs to the sandbox of the pod.
    let sandbox = Subject::Container { slot, container: SANDBOX };
    rows.of(Job::Cadvisor, sandbox).table(&[("interface", "eth0".into())], &PER_INTERFACE);
}
