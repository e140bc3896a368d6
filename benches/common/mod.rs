//! A small fleet: deterministic series like those of kube-prometheus; values are computed from
//! series and step.

use varve_model::Labels;
use varve_model::labels::METRIC_NAME;
use varve_tsdb::{Db, Options, WalSync};

/// Interval of samples in milliseconds.
pub(crate) const STEP_MS: i64 = 30_000;
/// Timestamp of the first sample.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// The names of its metrics.
pub(crate) const METRICS: [&str; 8] = [
    "container_cpu_usage_seconds_total",
    "container_memory_working_set_bytes",
    "container_network_receive_bytes_total",
    "kube_pod_status_ready",
    "node_cpu_seconds_total",
    "kubelet_runtime_operations_total",
    "DCGM_FI_DEV_GPU_UTIL",
    "container_fs_reads_total",
];

/// Returns the labels of series `i`: ten of them, of which pod, container id and node differ
/// between pods.
pub(crate) fn labels(i: usize) -> Labels {
    let metric = METRICS[i % METRICS.len()];
    let pod = i / METRICS.len();
    let node = pod / 30;
    let mix = (pod as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Labels::from_pairs([
        (METRIC_NAME, metric),
        ("cluster", "training-1"),
        ("container", ["trainer", "sidecar", "exporter"][pod % 3]),
        ("endpoint", "https-metrics"),
        (
            "id",
            &*format!(
                "/kubepods/burstable/pod{mix:016x}/{:016x}",
                mix.rotate_left(17)
            ),
        ),
        (
            "instance",
            &*format!("10.{}.{}.{}:10250", node >> 16, node >> 8 & 255, node & 255),
        ),
        ("job", "kubelet"),
        (
            "namespace",
            ["research", "kube-system", "monitoring", "data"][pod % 4],
        ),
        ("node", &*format!("gpu-node-{node:05}")),
        (
            "pod",
            &*format!("trainer-{:08x}-{:05x}", mix >> 32, mix & 0xfffff),
        ),
    ])
    .expect("names are unique")
}

/// Returns the value of series `i` at a step: constants, integer counters, gauges with two
/// decimals, float counters.
pub(crate) fn value(i: usize, step: i64) -> f64 {
    let noise = (i as u64 ^ (step as u64) << 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 48;
    match i % 8 {
        3 => 1.0,
        6 => (noise % 10_000) as f64 / 100.0,
        0 | 4 => step as f64 * 0.25 + noise as f64 * 1e-9,
        1 => (noise * 4096 + (1 << 30)) as f64,
        _ => (step * 1500 + (noise % 97) as i64) as f64,
    }
}

/// Opens a store that never syncs by itself.
pub(crate) fn open(dir: &std::path::Path, shards: usize, replay_concurrency: usize) -> Db {
    let options = Options {
        shards,
        wal_sync: WalSync::Never,
        wal_replay_concurrency: replay_concurrency,
        ..Options::default()
    };
    Db::open(dir, options).expect("open an empty directory")
}
