//! etcd 3.6.

use super::super::model::{Model, constant, counter, gauge, level, rare, started};
use super::super::template::{Histogram, Job, Rows, Subject, Text};

const JOB: Job = Job::Etcd;
const DISK_SECONDS: &str = "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192";
const APPLY_SECONDS: &str = "0.0001 0.0002 0.0004 0.0008 0.0016 0.0032 0.0064 0.0128 0.0256 0.0512 0.1024 0.2048 0.4096 0.8192 1.6384 3.2768 6.5536 13.1072 26.2144 52.4288";
const CODES: &str = "Aborted AlreadyExists Canceled DataLoss DeadlineExceeded FailedPrecondition Internal InvalidArgument NotFound OK OutOfRange PermissionDenied ResourceExhausted Unauthenticated Unavailable Unimplemented Unknown";
const METHODS: [(&str, &str); 6] = [
    ("etcdserverpb.KV", "Range"),
    ("etcdserverpb.KV", "Txn"),
    ("etcdserverpb.KV", "Put"),
    ("etcdserverpb.KV", "Compact"),
    ("etcdserverpb.Lease", "LeaseGrant"),
    ("etcdserverpb.Watch", "Watch"),
];

const COMMIT: Histogram = Histogram {
    name: "etcd_disk_backend_commit_duration_seconds",
    bounds: DISK_SECONDS,
    low: 7,
    high: 9,
    bits: 22,
    decimals: 9,
    idle_percent: 0,
};
const FSYNC: Histogram = Histogram { name: "etcd_disk_wal_fsync_duration_seconds", low: 9, high: 11, ..COMMIT };
const APPLY: Histogram =
    Histogram { name: "etcd_server_apply_duration_seconds", bounds: APPLY_SECONDS, low: 0, high: 11, ..COMMIT };
const PEER: Histogram = Histogram { name: "etcd_network_peer_round_trip_time_seconds", ..APPLY };

const OTHER: [(&str, Model); 20] = [
    ("etcd_cluster_version", constant(1)),
    ("etcd_debugging_mvcc_db_total_size_in_bytes", gauge(16, 17, 2).unit(4096)),
    ("etcd_mvcc_db_total_size_in_bytes", gauge(16, 17, 2).unit(4096)),
    ("etcd_mvcc_db_total_size_in_use_in_bytes", gauge(15, 16, 6).unit(4096)),
    ("etcd_mvcc_put_total", counter(10, 12)),
    ("etcd_mvcc_range_total", counter(12, 14)),
    ("etcd_network_client_grpc_received_bytes_total", counter(20, 23)),
    ("etcd_network_client_grpc_sent_bytes_total", counter(22, 26)),
    ("etcd_server_has_leader", constant(1)),
    ("etcd_server_is_leader", constant(0)),
    ("etcd_server_leader_changes_seen_total", rare(20_000)),
    ("etcd_server_proposals_applied_total", counter(10, 12)),
    ("etcd_server_proposals_committed_total", counter(10, 12)),
    ("etcd_server_proposals_failed_total", constant(0)),
    ("etcd_server_proposals_pending", level(0, 3, 1)),
    ("etcd_server_quota_backend_bytes", constant(8_589_934_592)),
    ("process_cpu_seconds_total", counter(8, 11).decimals(2)),
    ("process_open_fds", gauge(7, 9, 3)),
    ("process_resident_memory_bytes", gauge(15, 17, 8).unit(4096)),
    ("process_start_time_seconds", started()),
];

pub(super) fn list(rows: &mut Rows) {
    let mut target = rows.of(JOB, Subject::Machine);
    target.table(&[], &OTHER);
    target.histogram(&COMMIT, &[]);
    target.histogram(&FSYNC, &[]);
    for op in ["LeaseGrant", "Put", "Txn"] {
        target.histogram(&APPLY, &[("op", op.into()), ("success", "true".into()), ("version", "v3".into())]);
    }
    for peer in ["8e9e05c52164694d", "91bc3c398fb3c146"] {
        target.histogram(&PEER, &[("To", peer.into())]);
    }
    for (service, method) in METHODS {
        let own: [(_, Text); 3] =
            [("grpc_method", method.into()), ("grpc_service", service.into()), ("grpc_type", "unary".into())];
        for code in CODES.split(' ') {
            let model = if code == "OK" { counter(4, 12) } else { constant(0) };
            let own: Vec<_> = own.iter().cloned().chain([("grpc_code", Text::Is(code))]).collect();
            target.series("grpc_server_handled_total", &own, model);
        }
        target.series("grpc_server_started_total", &own, counter(4, 12));
    }
}
