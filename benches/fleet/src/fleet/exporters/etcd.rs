//! etcd 3.6.

use super::super::model::{constant, counter};
use super::super::template::{Histogram, Job, Rows, Subject, Text};
use super::tables::table;

const JOB: Job = Job::Etcd;
const DISK_SECONDS: &str =
    "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192";
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

const COMMIT: Histogram = Histogram::new(
    "etcd_disk_backend_commit_duration_seconds",
    DISK_SECONDS,
    7,
    9,
    22,
);
const FSYNC: Histogram = Histogram::new(
    "etcd_disk_wal_fsync_duration_seconds",
    DISK_SECONDS,
    9,
    11,
    22,
);
const APPLY: Histogram = Histogram::new(
    "etcd_server_apply_duration_seconds",
    APPLY_SECONDS,
    0,
    11,
    22,
);
const PEER: Histogram = Histogram::new(
    "etcd_network_peer_round_trip_time_seconds",
    APPLY_SECONDS,
    0,
    11,
    22,
);

pub(super) fn list(rows: &mut Rows) {
    let mut target = rows.of(JOB, Subject::Machine);
    target.table(&[], table("etcd: other"));
    target.histogram(&COMMIT, &[]);
    target.histogram(&FSYNC, &[]);
    for op in ["LeaseGrant", "Put", "Txn"] {
        target.histogram(
            &APPLY,
            &[
                ("op", op.into()),
                ("success", "true".into()),
                ("version", "v3".into()),
            ],
        );
    }
    for peer in ["8e9e05c52164694d", "91bc3c398fb3c146"] {
        target.histogram(&PEER, &[("To", peer.into())]);
    }
    for (service, method) in METHODS {
        let own: [(_, Text); 3] = [
            ("grpc_method", method.into()),
            ("grpc_service", service.into()),
            ("grpc_type", "unary".into()),
        ];
        for code in CODES.split(' ') {
            let model = if code == "OK" {
                counter(4, 12)
            } else {
                constant(0)
            };
            let own: Vec<_> = own
                .iter()
                .cloned()
                .chain([("grpc_code", Text::Is(code))])
                .collect();
            target.series("grpc_server_handled_total", &own, model);
        }
        target.series("grpc_server_started_total", &own, counter(4, 12));
    }
}
