//! The kubelet's own metrics, Kubernetes 1.35.

use super::super::model::{counter, rare};
use super::super::template::{Histogram, Job, Rows, Subject};
use super::tables::table;

const JOB: Job = Job::Kubelet;
const SECONDS: &str = "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10";
const OPERATIONS: &str = "container_status create_container exec_sync list_containers list_podsandbox \
    podsandbox_status remove_container version";

const RUNTIME: Histogram = Histogram::new(
    "kubelet_runtime_operations_duration_seconds",
    "0.005 0.0125 0.03125 0.078125 0.1953125 0.48828125 1.220703125 3.0517578125",
    0,
    9,
    24,
)
.idle(15);
const PLEG: Histogram = Histogram::new("kubelet_pleg_relist_duration_seconds", SECONDS, 5, 6, 23);
const POD_WORKER: Histogram =
    Histogram::new("kubelet_pod_worker_duration_seconds", SECONDS, 0, 4, 26).idle(15);
const REST: Histogram = Histogram::new(
    "rest_client_request_duration_seconds",
    "0.005 0.025 0.1 0.25 0.5 1 2 4 8 15 30 60",
    0,
    6,
    23,
)
.idle(15);

pub(super) fn list(rows: &mut Rows) {
    let mut target = rows.of(JOB, Subject::Machine);
    target.table(&[], table("kubelet: other"));
    target.histogram(&PLEG, &[]);
    for operation in ["create", "sync", "update"] {
        target.histogram(&POD_WORKER, &[("operation_type", operation.into())]);
    }
    for operation in OPERATIONS.split(' ') {
        target.histogram(&RUNTIME, &[("operation_type", operation.into())]);
    }
    for verb in ["GET", "PATCH", "POST"] {
        target.histogram(
            &REST,
            &[
                ("host", "kubernetes.default.svc:443".into()),
                ("verb", verb.into()),
            ],
        );
    }
    target.each(
        "kubelet_runtime_operations_total",
        "operation_type",
        OPERATIONS,
        |_| counter(0, 7).idle(40),
    );
    target.each(
        "kubelet_runtime_operations_errors_total",
        "operation_type",
        OPERATIONS,
        |_| rare(3000),
    );
}
