//! The harness of all tests: processes, an HTTP client, a remote-write client, and the real
//! programs that Varve works with.

mod cgroup;
mod config;
mod http;
mod http2;
pub(crate) mod kube_prometheus;
pub(crate) mod messages;
mod peers;
mod process;
mod server;
mod thanos;

pub(crate) use cgroup::MemoryGroup;
pub(crate) use config::ConfigFile;
pub(crate) use http::{Access, Answer, Http, RawConnection};
pub(crate) use http2::{Call, Http2, frame};
pub(crate) use messages::remote_write::{
    BucketSpan, Exemplar, Histogram, Label, MetricType, TimeSeries, WriteRequest, exemplar, family,
    series, snappy, v2,
};
pub(crate) use peers::{
    Alertmanager, NodeExporter, Prometheus, Release, Releases, VictoriaMetrics, promtool,
    python_with, releases,
};
pub(crate) use process::Process;
pub(crate) use server::{Server, new_data_dir, serve_command, try_serve};
pub(crate) use thanos::{Thanos, free_address, is_thanos_missing, write_to_router};
pub(crate) use varve_oracle::missing;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The timeout of everything that a test waits for. It is generous, as the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `probe` until it returns a value. Panics with `what` after [`PATIENCE`].
pub(crate) fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    const INTERVAL: Duration = Duration::from_millis(10);
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for {what}"
        );
        sleep(INTERVAL);
    }
}

/// Calls `holds` until it is true.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Copies a directory with everything in it.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("create a directory");
    for entry in std::fs::read_dir(from).expect("list a directory") {
        let path = entry.expect("list a directory").path();
        let target = to.join(path.file_name().expect("a file has a name"));
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("copy a file");
        }
    }
}

/// Returns the time since 1970 in milliseconds.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970");
    i64::try_from(since.as_millis()).expect("milliseconds fit")
}

/// A random number generator (SplitMix64). A printed seed replays a test.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
