//! cAdvisor in the kubelet of Kubernetes 1.35: containers, and the network of pods.

use super::super::model::{counter, rare};
use super::super::template::{Job, Rows, SANDBOX, Subject};
use super::tables::table;

/// Returns the number of containers of a pod. Every third pod has a second container, every ninth a
/// third.
pub(super) fn n_containers(slot: u16) -> u8 {
    1 + u8::from(slot.is_multiple_of(3)) + u8::from(slot.is_multiple_of(9))
}

pub(super) fn list(rows: &mut Rows, slot: u16) {
    for container in 0..n_containers(slot) {
        let mut target = rows.of(Job::Cadvisor, Subject::Container { slot, container });
        let cpu = counter(14, 25).decimals(6);
        target.series(
            "container_cpu_usage_seconds_total",
            &[("cpu", "total".into())],
            cpu,
        );
        target.table(&[], table("cadvisor: per container"));
        for operation in ["Read", "Write"] {
            let own = [
                ("device", "/dev/nvme1n1".into()),
                ("operation", operation.into()),
            ];
            target.series(
                "container_blkio_device_usage_total",
                &own,
                counter(5, 15).unit(4096).idle(30),
            );
        }
        for (kind, model) in [("pgfault", counter(9, 18)), ("pgmajfault", rare(30))] {
            for scope in ["container", "hierarchy"] {
                let own = [("failure_type", kind.into()), ("scope", scope.into())];
                target.series("container_memory_failures_total", &own, model);
            }
        }
    }
    // The network belongs to the sandbox of the pod.
    let sandbox = Subject::Container {
        slot,
        container: SANDBOX,
    };
    rows.of(Job::Cadvisor, sandbox).table(
        &[("interface", "eth0".into())],
        table("cadvisor: per interface"),
    );
}
