//! CPU time and memory of series calls and of routed writes: Varve, a sidecar with its Prometheus,
//! `thanos receive`.

use std::net::SocketAddr;
use std::path::PathBuf;

use prost::Message as _;

use crate::harness::messages::thanos::{Matcher, SeriesRequest};
use crate::harness::{
    ConfigFile, Http, Http2, Process, Random, Server, Thanos, WriteRequest, is_thanos_missing,
    now_ms, releases, series,
};

/// Number of samples of a series, and their interval: an hour, as a dashboard reads.
const N_SAMPLES: i64 = 240;
const STEP_MS: i64 = 15_000;
const SERIES_PER_REQUEST: usize = 500;
/// Samples are written in parts of ten minutes.
const PART_SAMPLES: i64 = 40;
const N_PARTS: i64 = N_SAMPLES / PART_SAMPLES;
/// Alternating calls of each store, and calls in a row.
const N_ROUNDS: usize = 5;
const N_CALLS: usize = 3;

/// Returns the number of series of the environment.
fn n_series() -> usize {
    std::env::var("VARVE_COST_SERIES").map_or(40_000, |n| n.parse().expect("a number"))
}

/// Returns requests with the samples `times` of all series: constants, counters, and noise.
fn requests(
    n_series: usize,
    end_ms: i64,
    times: std::ops::Range<i64>,
) -> impl Iterator<Item = WriteRequest> {
    let one = move |i: usize| {
        let mut random = Random::new(i as u64);
        let mut value = random.below(1000) as f64;
        let next = |time: i64| {
            match i % 3 {
                0 => {}
                1 => value += random.below(20) as f64,
                _ => value = random.below(1_000_000) as f64 / 1000.0,
            }
            (end_ms - (N_SAMPLES - 1 - time) * STEP_MS, value)
        };
        let samples: Vec<_> = (0..times.end)
            .map(next)
            .skip(times.start as usize)
            .collect();
        let (pod, name) = (format!("pod-{}", i % 997), format!("metric_{}", i % 50));
        let instance = format!("10.0.{}.{}:9100", i / 250, i % 250);
        series(
            &[
                ("__name__", &name),
                ("instance", &instance),
                ("job", "node"),
                ("pod", &pod),
            ],
            &samples,
        )
    };
    (0..n_series).step_by(SERIES_PER_REQUEST).map(move |first| {
        WriteRequest::new((first..n_series.min(first + SERIES_PER_REQUEST)).map(one))
    })
}

/// Processes that together are a store, and the address of its store API.
struct Store<'a> {
    name: &'static str,
    processes: Vec<&'a Process>,
    grpc: SocketAddr,
    cpu: f64,
}

impl Store<'_> {
    fn cpu(&self) -> f64 {
        self.processes
            .iter()
            .map(|process| process.cpu_seconds())
            .sum()
    }

    /// Returns the size of a response, and adds the CPU time of [`N_CALLS`] calls.
    fn call(&mut self, message: &[u8]) -> usize {
        let (from, http2) = (self.cpu(), Http2::connect(self.grpc));
        let mut size = 0;
        for _ in 0..N_CALLS {
            let (n, call) = http2.measure("/thanos.Store/Series", message);
            assert_eq!(call.status, "0", "{}: {call:?}", self.name);
            size = n;
        }
        self.cpu += self.cpu() - from;
        size
    }

    fn resident_size(&self) -> u64 {
        self.processes
            .iter()
            .map(|process| process.resident_size_max())
            .sum()
    }
}

fn program() -> Option<PathBuf> {
    std::env::var("VARVE_PROGRAMS").ok().map(PathBuf::from)
}

#[test]
#[ignore = "needs VARVE_PROGRAMS: a release build"]
fn a_series_call_costs_less_than_that_of_a_sidecar_and_of_receive() {
    let (Some(program), Some(release)) = (program(), releases().first()) else {
        return;
    };
    if is_thanos_missing() {
        return;
    }
    let config = ConfigFile::new("global: {external_labels: {cluster: c, replica: a}}");
    let varve = Server::start_program(
        &program,
        &[
            &config.flag(),
            "--query.max-memory=1GiB",
            "--web.enable-admin-api",
        ],
    );
    let flags = [
        "--storage.tsdb.min-block-duration=2h",
        "--storage.tsdb.max-block-duration=2h",
    ];
    let prometheus = release.start(
        "global: {external_labels: {cluster: c, replica: a}}\n",
        &flags,
    );
    let sidecar = Thanos::sidecar(&prometheus);
    let (receive, receive_http) = Thanos::ingestor();
    let (n_series, end_ms) = (n_series(), now_ms() / STEP_MS * STEP_MS);
    for part in 0..N_PARTS {
        if part == N_PARTS - 1 {
            // Varve has samples of ten minutes in memory. By default, Prometheus and receive have
            // those of two hours.
            varve
                .http()
                .post("/api/v1/admin/tsdb/compact", &[], b"")
                .expect_status(204);
        }
        for request in requests(
            n_series,
            end_ms,
            part * PART_SAMPLES..(part + 1) * PART_SAMPLES,
        ) {
            let body = request.to_body();
            varve.http().write_body(&body).expect_status(204);
            assert!(prometheus.http().write_body(&body).status < 300);
            receive_http
                .post("/api/v1/receive", &[("content-encoding", "snappy")], &body)
                .expect_status(200);
        }
    }
    let mut stores = [
        Store {
            name: "Varve",
            processes: vec![varve.process()],
            grpc: varve.http().address(),
            cpu: 0.0,
        },
        Store {
            name: "Prometheus with a sidecar",
            processes: vec![prometheus.process(), sidecar.process()],
            grpc: sidecar.grpc_address(),
            cpu: 0.0,
        },
        Store {
            name: "thanos receive",
            processes: vec![receive.process()],
            grpc: receive.grpc_address(),
            cpu: 0.0,
        },
    ];
    for (what, span_ms) in [("an hour", 3_600_000), ("five minutes", 300_000)] {
        let request = SeriesRequest {
            min_time: end_ms - span_ms,
            max_time: end_ms,
            matchers: vec![Matcher::matching("__name__", "metric_.+")],
            response_batch_size: 64,
            without_replica_labels: vec!["replica".to_owned()],
            ..SeriesRequest::default()
        };
        let message = request.encode_to_vec();
        for store in &mut stores {
            store.call(&message);
            store.cpu = 0.0;
        }
        for _ in 0..N_ROUNDS {
            for store in &mut stores {
                let size = store.call(&message);
                assert!(size > 50 * n_series, "{}: {size} bytes", store.name);
            }
        }
        for store in &mut stores {
            let per_series = store.cpu * 1e6 / (N_ROUNDS * N_CALLS * n_series) as f64;
            let size = store.call(&message);
            let memory = store.resident_size() as f64 / 1e6;
            println!(
                "{what}, {}: {per_series:.2} us of CPU per series, {size} bytes, {memory:.0} MB",
                store.name
            );
        }
    }
}

#[test]
#[ignore = "needs VARVE_PROGRAMS: a release build"]
fn a_routed_write_costs_less_than_in_receive() {
    let Some(program) = program() else { return };
    if is_thanos_missing() {
        return;
    }
    let config = ConfigFile::new("global: {external_labels: {replica: a}}");
    let varve = Server::start_program(&program, &[&config.flag()]);
    let (receive, _http) = Thanos::ingestor();
    let stores = [
        (varve.process(), varve.http().address()),
        (receive.process(), receive.grpc_address()),
    ];
    let routers = stores.map(|(_, address)| Thanos::router(&[address], &[]));
    let (n_series, end_ms) = (n_series(), now_ms() / STEP_MS * STEP_MS);
    let cpu = || stores.map(|(process, _)| process.cpu_seconds());
    // The first samples create the series.
    for (what, times) in [("new series", 0..1), ("samples of known ones", 1..12)] {
        let (from, n) = (cpu(), n_series * times.clone().count());
        for request in times.flat_map(|time| requests(n_series, end_ms, time..time + 1)) {
            let body = request.to_body();
            for (_, http) in routers.iter() {
                write(http, &body);
            }
        }
        let [ours, theirs] = std::array::from_fn(|i| (cpu()[i] - from[i]) * 1e6 / n as f64);
        println!("{what}: Varve {ours:.2} us of CPU each, thanos receive {theirs:.2} us");
    }
    let [ours, theirs] = stores.map(|(process, _)| process.resident_size_max() / 1_000_000);
    println!("Varve {ours} MB, thanos receive {theirs} MB");
}

fn write(router: &Http, body: &[u8]) {
    crate::harness::wait_until("the router to reach its ingestor", || {
        router
            .post("/api/v1/receive", &[("content-encoding", "snappy")], body)
            .status
            == 200
    });
}
