//! Real Thanos on what Varve has uploaded.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{Bucket, N_BLOCKS, check_answers, text, uploaded};
use crate::harness::{Server, Thanos, missing, promtool};

/// Runs `thanos tools bucket` and returns what it prints.
pub(super) fn bucket_tool(bucket: &Bucket, args: &[&str]) -> String {
    let mut command = Command::new("thanos");
    command
        .args(["tools", "bucket"])
        .args(args)
        .arg(bucket.flag());
    let output = command.output().unwrap();
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{args:?}: {printed}");
    printed
}

/// Returns the number of blocks that `thanos tools bucket inspect` lists.
pub(super) fn n_inspected(bucket: &Bucket) -> usize {
    let printed = bucket_tool(bucket, &["inspect", "--output=csv"]);
    printed
        .lines()
        .filter(|line| line.starts_with("01") && line.contains(','))
        .count()
}

/// Asserts that Thanos finds nothing wrong with the blocks.
pub(super) fn verify(bucket: &Bucket) {
    let printed = bucket_tool(
        bucket,
        &[
            "verify",
            "--issues=overlapped_blocks",
            "--issues=index_known_issues",
        ],
    );
    assert!(
        !printed.contains("level=error") && !printed.contains("level=warn"),
        "{printed}"
    );
}

/// Asserts that a store gateway returns a server's own results.
fn check_gateway(bucket: &Bucket, server: &Server) {
    let store = Thanos::store(&[&bucket.flag()]);
    let query = Thanos::query(&[store.grpc_address()], &["--query.replica-label=replica"]);
    check_answers(server.http(), query.http(), &[("dedup", "true")]);
}

/// Asserts that promtool reads a block, and that it has only encodings that Thanos knows.
fn check_block(dir: &Path, name: &str) {
    let analyzed = promtool(&["tsdb", "analyze", text(dir), name]);
    assert!(analyzed.status.success(), "{analyzed:?}");
    let listed = promtool(&["tsdb", "list", text(dir)]);
    assert!(
        listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains(name),
        "{listed:?}"
    );
    // Floats and histograms. Thanos knows 1 to 3.
    assert_eq!(
        encodings(&dir.join(name).join("chunks/000001")),
        BTreeSet::from([1, 2]),
        "{name}"
    );
}

/// Returns the encodings of the chunks in a file.
fn encodings(path: &Path) -> BTreeSet<u8> {
    let file = std::fs::read(path).unwrap();
    // A chunk: size as a varint, encoding, data, checksum of four bytes.
    let (mut rest, mut found) = (&file[8..], BTreeSet::new());
    while !rest.is_empty() {
        let n_bytes = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let size = (0..n_bytes).fold(0, |size, i| size | usize::from(rest[i] & 0x7f) << (7 * i));
        found.insert(rest[n_bytes]);
        rest = &rest[n_bytes + 1 + size + 4..];
    }
    found
}

fn sum(blocks: impl Iterator<Item = Value>) -> u64 {
    blocks
        .map(|meta| meta["stats"]["numSamples"].as_u64().unwrap())
        .sum()
}

#[test]
fn thanos_reads_compacts_and_deduplicates_the_blocks_of_two_replicas() {
    if missing(&["thanos", "promtool"]) {
        return;
    }
    let bucket = Bucket::directory();
    let (mut a, _config) = uploaded(&bucket, "a", &[]);
    let (b, _config) = uploaded(&bucket, "b", &[]);
    let blocks = bucket.blocks();
    assert_eq!(
        (blocks.len(), n_inspected(&bucket)),
        (2 * N_BLOCKS, 2 * N_BLOCKS)
    );
    verify(&bucket);
    bucket.check_complete();
    for (name, meta) in &blocks {
        let thanos = &meta["thanos"];
        assert_eq!(
            (&thanos["labels"]["cluster"], &thanos["source"]),
            (&Value::from("x"), &Value::from("receive"))
        );
        assert_eq!(thanos["downsample"]["resolution"], 0);
        assert!(
            thanos["index_stats"]["series_max_size"].as_u64().unwrap() > 0,
            "{thanos}"
        );
        assert!(
            thanos["index_stats"]["chunk_max_size"].as_u64().unwrap() > 0,
            "{thanos}"
        );
        check_block(&bucket.path, name);
    }
    check_gateway(&bucket, &a);
    let n_samples = sum(blocks
        .into_values()
        .filter(|meta| meta["thanos"]["labels"]["replica"] == "a"));
    compact(&bucket);
    let is_marked = |name: &str| bucket.path.join(name).join("deletion-mark.json").exists();
    let left: Vec<_> = bucket
        .blocks()
        .into_iter()
        .filter(|(name, _)| !is_marked(name))
        .collect();
    assert!(left.len() < 2 * N_BLOCKS, "nothing was compacted");
    assert_eq!(
        sum(left.into_iter().map(|(_, meta)| meta)),
        n_samples,
        "one copy"
    );
    check_gateway(&bucket, &a);
    // Without its state, a server finds its blocks among the sources of compacted ones.
    a.terminate();
    std::fs::remove_file(a.data_dir().join("uploads")).unwrap();
    let config = super::replica("a");
    a.restart(&[&bucket.flag(), &config.flag(), super::UPLOAD_EVERY]);
    super::wait_for_uploads(&a);
    assert_eq!(a.metric("varve_uploads_blocks_total"), 0.0);
    drop(b);
}

/// Runs the compactor once.
fn compact(bucket: &Bucket) {
    let dir = TempDir::new().unwrap();
    let output = Command::new("thanos")
        .args([
            "compact",
            "--http-address=127.0.0.1:0",
            "--consistency-delay=0s",
            "--downsampling.disable",
        ])
        .args([
            "--deduplication.replica-label=replica",
            "--deduplication.func=penalty",
            &bucket.flag(),
        ])
        .arg(format!("--data-dir={}", dir.path().display()))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !printed.contains("halt"),
        "{printed}"
    );
}
