//! `varve-bench calibrate`: the bytes per sample that real peers need for an hour of the fleet.
//!
//! The expected values come from 200,000 series at 30 s. They ensure that the data compress as badly as real data do:
//! VictoriaMetrics depends on the bits of noise, Prometheus on the share of values with decimals.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{Labels, Sample};

use crate::args::{CalibrateArgs, now_ms};
use crate::client::Client;
use crate::fleet::Fleet;
use crate::message::{EncodedLabels, Version, WriteRequest};
use crate::peer::{Peer, Scratch, size_bytes};
use crate::write::{WriteOptions, write_fleet};

/// Known bytes per sample of the peers, and the tolerance.
const VICTORIA_METRICS: f64 = 1.37;
const PROMETHEUS: f64 = 2.10;
const TOLERANCE: f64 = 0.2;

const HOUR_MS: i64 = 3_600_000;
/// How long a peer may take to merge or compact.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Writes the fleet into both peers and compares.
///
/// # Errors
/// If a peer cannot be run, or its bytes per sample are out of tolerance.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<()> {
    // A block of Prometheus starts at a full hour; the hour before last is complete.
    let start_ms = now_ms() / HOUR_MS * HOUR_MS - 3 * HOUR_MS;
    let fleet = Fleet::new(args.fleet.options(start_ms));
    let n_rounds = args.fleet.n_rounds().min(HOUR_MS / fleet.options().interval_ms);
    println!("{} series, {n_rounds} samples each", fleet.n_places());
    let victoria = victoria_metrics(&args.victoria_metrics, &fleet, n_rounds)?;
    println!("VictoriaMetrics: {victoria:.3} bytes per sample, expected {VICTORIA_METRICS}");
    let prometheus = prometheus(&args.prometheus, &fleet, n_rounds)?;
    println!("Prometheus: {prometheus:.3} bytes per sample, expected {PROMETHEUS}");
    for (name, found, expect) in
        [("VictoriaMetrics", victoria, VICTORIA_METRICS), ("Prometheus", prometheus, PROMETHEUS)]
    {
        ensure!((found - expect).abs() <= TOLERANCE, "{name} is off by more than {TOLERANCE}: fix the generator");
    }
    Ok(())
}

/// Returns the bytes per sample of the parts in `data/`, timestamps and values, after a full merge. The index in
/// `data/indexdb` does not count.
fn victoria_metrics(program: &Path, fleet: &Fleet, n_rounds: i64) -> Result<f64> {
    let scratch = Scratch::new("victoria-metrics")?;
    let mut peer = Peer::start("VictoriaMetrics", program, "/health", |command, address| {
        command.arg(format!("-storageDataPath={}", scratch.path().display()));
        command.arg(format!("-httpListenAddr={address}"));
    })?;
    let n_samples = fill(&peer, fleet, n_rounds)?;
    let client = Client::new(&peer.url(""));
    for path in ["/internal/force_flush", "/internal/force_merge"] {
        let response = client.get(path)?;
        ensure!(response.is_success(), "{path} returned {}: {}", response.status, response.text());
    }
    // The merge continues after the response. It ends with one part, as an hour is in the partition of one month.
    peer.wait("merge", TIMEOUT, |_| Ok((n_parts(&client)? == Some(1)).then_some(())))?;
    peer.stop()?;
    let parts = ["small", "big"].map(|size| size_bytes(&scratch.path().join("data").join(size)));
    Ok(parts.iter().sum::<u64>() as f64 / n_samples as f64)
}

/// Returns the number of VictoriaMetrics' parts of samples, in memory and in files; `None` if a metric is missing.
fn n_parts(client: &Client) -> Result<Option<u64>> {
    let metrics = client.get("/metrics")?;
    let metrics = String::from_utf8_lossy(&metrics.body);
    let parts = ["inmemory", "small", "big"].map(|kind| {
        let line = format!("vm_parts{{type=\"storage/{kind}\"}} ");
        metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse::<u64>().ok())
    });
    Ok(parts.into_iter().sum())
}

/// Returns the bytes per sample of the chunks of a block.
fn prometheus(program: &Path, fleet: &Fleet, n_rounds: i64) -> Result<f64> {
    let scratch = Scratch::new("prometheus")?;
    let (config, data) = (scratch.path().join("prometheus.yml"), scratch.path().join("data"));
    std::fs::write(&config, "global: {}\n").context("write a configuration")?;
    let mut peer = Peer::start("Prometheus", program, "/-/ready", |command, address| {
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={address}"));
        command.arg("--web.enable-remote-write-receiver");
        // Hidden flags: blocks of an hour are compacted when the head extends half an hour beyond them.
        command.args(["--storage.tsdb.min-block-duration=1h", "--storage.tsdb.max-block-duration=1h"]);
    })?;
    fill(&peer, fleet, n_rounds)?;
    let client = Client::new(&peer.url("/api/v1/write"));
    let response = client.write(&end_of_hour(fleet.options().start_ms + HOUR_MS / 4 * 7)?, Version::V1)?;
    ensure!(response.is_success(), "the last sample was rejected with {}: {}", response.status, response.text());
    let (size, n_samples) = peer.wait("compact", TIMEOUT, |_| Ok(block(&data)))?;
    peer.stop()?;
    let n_expected = u64::from(fleet.n_places()) * n_rounds.unsigned_abs();
    ensure!(n_samples >= n_expected, "the block has {n_samples} samples, expected {n_expected}");
    Ok(size as f64 / n_samples as f64)
}

/// Writes the fleet and returns the number of its samples.
fn fill(peer: &Peer, fleet: &Fleet, n_rounds: i64) -> Result<u64> {
    let options = WriteOptions {
        url: peer.url("/api/v1/write"),
        n_connections: 2,
        samples_per_request: 2_000,
        rate: None,
        version: Version::V1,
        ahead: false,
        pid: Some(peer.pid()),
    };
    let written = write_fleet(fleet, 0..n_rounds, &options)?;
    written.check()?;
    print!("{written}");
    Ok(written.n_samples)
}

/// Returns a request with one sample that extends the head.
fn end_of_hour(timestamp_ms: i64) -> Result<Vec<u8>> {
    let labels = Labels::from_pairs([(METRIC_NAME, "varve_bench_end")]).context("build the labels")?;
    let mut request = WriteRequest::default();
    request.push(&EncodedLabels::new(&labels, Version::V1), Sample { timestamp_ms, value: 1.0 });
    request.take_body()
}

/// Returns the size of the chunks of a complete block and its number of samples.
fn block(data: &Path) -> Option<(u64, u64)> {
    std::fs::read_dir(data).ok()?.flatten().find_map(|entry| {
        let is_finished = !entry.file_name().to_string_lossy().contains("tmp");
        let meta = is_finished.then(|| std::fs::read(entry.path().join("meta.json")))?.ok()?;
        let meta: Value = serde_json::from_slice(&meta).ok()?;
        Some((size_bytes(&entry.path().join("chunks")), meta["stats"]["numSamples"].as_u64()?))
    })
}
