//! The kubelet's own metrics, Kubernetes 1.35.

use super::super::model::{Model, constant, counter, gauge, level, rare, started};
use super::super::template::{Histogram, Job, Rows, Subject};

const JOB: Job = Job::Kubelet;
const SECONDS: &str = "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10";
const OPERATIONS: &str = "container_status create_container exec_sync list_containers list_podsandbox podsandbox_status remove_container version";

const RUNTIME: Histogram = Histogram {
    name: "kubelet_runtime_operations_duration_seconds",
    bounds: "0.005 0.0125 0.03125 0.078125 0.1953125 0.48828125 1.220703125 3.0517578125",
    low: 0,
    high: 9,
    bits: 24,
    decimals: 9,
    idle_percent: 15,
};
const PLEG: Histogram = Histogram {
    name: "kubelet_pleg_relist_duration_seconds",
    bounds: SECONDS,
    low: 5,
    high: 6,
    bits: 23,
    decimals: 9,
    idle_percent: 0,
};
const POD_WORKER: Histogram = Histogram {
    name: "kubelet_pod_worker_duration_seconds",
    bounds: SECONDS,
    low: 0,
    high: 4,
    bits: 26,
    decimals: 9,
    idle_percent: 15,
};
const REST: Histogram = Histogram {
    name: "rest_client_request_duration_seconds",
    bounds: "0.005 0.025 0.1 0.25 0.5 1 2 4 8 15 30 60",
    low: 0,
    high: 6,
    bits: 23,
    decimals: 9,
    idle_percent: 15,
};

const OTHER: [(&str, Model); 16] = [
    ("go_gc_heap_goal_bytes", gauge(26, 27, 20)),
    ("go_goroutines", gauge(9, 10, 5)),
    ("go_memstats_alloc_bytes", gauge(25, 26, 24)),
    ("go_memstats_alloc_bytes_total", counter(26, 29)),
    ("go_memstats_heap_objects", gauge(18, 19, 17)),
    ("go_memstats_mallocs_total", counter(18, 22)),
    ("kubelet_active_pods", level(12, 14, 60)),
    ("kubelet_certificate_manager_client_expiration_renew_errors", constant(0)),
    ("kubelet_node_name", constant(1)),
    ("kubelet_running_pods", level(12, 14, 60)),
    ("kubelet_started_pods_errors_total", constant(0)),
    ("kubelet_started_pods_total", rare(60)),
    ("process_cpu_seconds_total", counter(5, 10).decimals(2)),
    ("process_open_fds", gauge(6, 8, 3)),
    ("process_resident_memory_bytes", gauge(14, 16, 8).unit(4096)),
    ("process_start_time_seconds", started()),
];

pub(super) fn list(rows: &mut Rows) {
    let mut target = rows.of(JOB, Subject::Machine);
    target.table(&[], &OTHER);
    target.histogram(&PLEG, &[]);
    for operation in ["create", "sync", "update"] {
        target.histogram(&POD_WORKER, &[("operation_type", operation.into())]);
    }
    for operation in OPERATIONS.split(' ') {
        target.histogram(&RUNTIME, &[("operation_type", operation.into())]);
    }
    for verb in ["GET", "PATCH", "POST"] {
        target.histogram(&REST, &[("host", "kubernetes.default.svc:443".into()), ("verb", verb.into())]);
    }
    target.each("kubelet_runtime_operations_total", "operation_type", OPERATIONS, |_| counter(0, 7).idle(40));
    target.each("kubelet_runtime_operations_errors_total", "operation_type", OPERATIONS, |_| rare(3000));
}
