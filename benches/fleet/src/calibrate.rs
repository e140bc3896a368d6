//! `varve-bench calibrate`: an hour of the fleet in real peers, and the bytes a sample that they need for it.
//!
//! The figures to meet were measured on a fleet of 200,000 series at 30 s. They hold the generator to data that are as
//! hard to compress as what the peers are known to store: VictoriaMetrics' figure is governed by the bits of noise,
//! Prometheus' by how many values have decimals.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use varve_tsdb::{Labels, METRIC_NAME, Sample};

use crate::args::{CalibrateArgs, now_ms};
use crate::client::Client;
use crate::fleet::Fleet;
use crate::message::{EncodedLabels, Version, WriteRequest};
use crate::peer::{Peer, Scratch, size_bytes};
use crate::write::{WriteOptions, write_fleet};

/// Bytes a sample that the peers are known for, and how far off they may be.
const VICTORIA_METRICS: f64 = 1.37;
const PROMETHEUS: f64 = 2.10;
const TOLERANCE: f64 = 0.2;

const HOUR_MS: i64 = 3_600_000;
/// How long a peer may take to merge or compact.
const PATIENCE: Duration = Duration::from_secs(900);

/// Writes the fleet into both peers and compares.
///
/// # Errors
/// If a peer cannot be run, or needs more or less than it should.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<()> {
    // A block of Prometheus begins at a whole hour; the one before the last is over for certain.
    let start_ms = now_ms() / HOUR_MS * HOUR_MS - 3 * HOUR_MS;
    let fleet = Fleet::new(args.fleet.options(start_ms));
    let n_rounds = args.fleet.n_rounds().min(HOUR_MS / fleet.options().interval_ms);
    println!("{} series, {n_rounds} samples each", fleet.n_places());
    let victoria = victoria_metrics(&args.victoria_metrics, &fleet, n_rounds)?;
    println!("VictoriaMetrics: {victoria:.3} bytes a sample, {VICTORIA_METRICS} expected");
    let prometheus = prometheus(&args.prometheus, &fleet, n_rounds)?;
    println!("Prometheus: {prometheus:.3} bytes a sample, {PROMETHEUS} expected");
    for (name, found, expect) in
        [("VictoriaMetrics", victoria, VICTORIA_METRICS), ("Prometheus", prometheus, PROMETHEUS)]
    {
        ensure!((found - expect).abs() <= TOLERANCE, "{name} is off by more than {TOLERANCE}: mend the generator");
    }
    Ok(())
}

/// Returns the bytes a sample of the parts of `data/`, timestamps and values, after a full merge. `data/indexdb` is not
/// among them: it is the index of series.
fn victoria_metrics(program: &Path, fleet: &Fleet, n_rounds: i64) -> Result<f64> {
    let scratch = Scratch::new("victoria-metrics")?;
    let mut peer = Peer::start("VictoriaMetrics", program, "/health", |command, address| {
        command.arg(format!("-storageDataPath={}", scratch.path().display()));
        command.arg(format!("-httpListenAddr={address}"));
    })?;
    let n_samples = fill(&peer, fleet, n_rounds)?;
    let client = Client::new(&peer.url(""));
    for path in ["/internal/force_flush", "/internal/force_merge"] {
        let answer = client.get(path)?;
        ensure!(answer.is_success(), "{path} says {}: {}", answer.status, answer.text());
    }
    // The merge runs on after the answer. It is over when all is in one part: an hour lies in one month's partition.
    peer.wait("merge", PATIENCE, |_| Ok((n_parts(&client)? == Some(1)).then_some(())))?;
    peer.stop()?;
    let parts = ["small", "big"].map(|size| size_bytes(&scratch.path().join("data").join(size)));
    Ok(parts.iter().sum::<u64>() as f64 / n_samples as f64)
}

/// Counts the parts of samples that VictoriaMetrics has, in memory and in files; `None` if it does not tell.
fn n_parts(client: &Client) -> Result<Option<u64>> {
    let metrics = client.get("/metrics")?;
    let metrics = String::from_utf8_lossy(&metrics.body);
    let parts = ["inmemory", "small", "big"].map(|kind| {
        let line = format!("vm_parts{{type=\"storage/{kind}\"}} ");
        metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse::<u64>().ok())
    });
    Ok(parts.into_iter().sum())
}

/// Returns the bytes a sample of a block's chunks.
fn prometheus(program: &Path, fleet: &Fleet, n_rounds: i64) -> Result<f64> {
    let scratch = Scratch::new("prometheus")?;
    let (config, data) = (scratch.path().join("prometheus.yml"), scratch.path().join("data"));
    std::fs::write(&config, "global: {}\n").context("write a configuration")?;
    let mut peer = Peer::start("Prometheus", program, "/-/ready", |command, address| {
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={address}"));
        command.arg("--web.enable-remote-write-receiver");
        // Hidden flags: with blocks of an hour the hour is compacted as soon as the head reaches half an hour beyond it.
        command.args(["--storage.tsdb.min-block-duration=1h", "--storage.tsdb.max-block-duration=1h"]);
    })?;
    fill(&peer, fleet, n_rounds)?;
    let client = Client::new(&peer.url("/api/v1/write"));
    let answer = client.write(&end_of_hour(fleet.options().start_ms + HOUR_MS / 4 * 7)?, Version::V1)?;
    ensure!(answer.is_success(), "the last sample is refused with {}: {}", answer.status, answer.text());
    let (size, n_samples) = peer.wait("compact", PATIENCE, |_| Ok(block(&data)))?;
    peer.stop()?;
    let n_expected = u64::from(fleet.n_places()) * n_rounds.unsigned_abs();
    ensure!(n_samples >= n_expected, "the block holds {n_samples} samples, not {n_expected}");
    Ok(size as f64 / n_samples as f64)
}

/// Writes the fleet and returns how many samples it had.
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

/// Returns the request of one sample that moves the head's end.
fn end_of_hour(timestamp_ms: i64) -> Result<Vec<u8>> {
    let labels = Labels::from_pairs([(METRIC_NAME, "varve_bench_end")]).context("name a series")?;
    let mut request = WriteRequest::default();
    request.push(&EncodedLabels::new(&labels, Version::V1), Sample { timestamp_ms, value: 1.0 });
    request.take_body()
}

/// Finds a finished block and returns the bytes of its chunks and the number of its samples.
fn block(data: &Path) -> Option<(u64, u64)> {
    std::fs::read_dir(data).ok()?.flatten().find_map(|entry| {
        let is_finished = !entry.file_name().to_string_lossy().contains("tmp");
        let meta = is_finished.then(|| std::fs::read(entry.path().join("meta.json")))?.ok()?;
        let meta: Value = serde_json::from_slice(&meta).ok()?;
        Some((size_bytes(&entry.path().join("chunks")), meta["stats"]["numSamples"].as_u64()?))
    })
}
