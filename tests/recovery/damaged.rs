//! Compares recovery of a damaged directory with Prometheus' own repair. Unit tests cover damage in
//! detail (`tsdb/prometheus/src/recover/tests/damage.rs`).

use std::path::Path;

use serde_json::Value;

use super::{CONFIG, END, FLAGS, recorded, recovered_samples};
use crate::harness::{Prometheus, copy_dir};

/// Maximum number of samples that recovery may lose for a damaged page or chunk.
const LOST_MAX: u64 = 30_000;

/// Damages a copy of the directory.
type Damage = fn(&Path);

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read a file");
    bytes[at] ^= 0xff;
    std::fs::write(path, bytes).expect("write a file");
}

/// Returns the number of samples that a Prometheus started on a copy serves.
fn kept_by_prometheus(dir: &Path) -> u64 {
    let prometheus = Prometheus::start_on(CONFIG, &FLAGS, |data| copy_dir(dir, data));
    let names = prometheus
        .http()
        .query("/api/v1/label/__name__/values", &[])
        .data();
    // By metric: without their names, series of different metrics have equal labels.
    let count = |name: &Value| {
        let query = format!("sum(count_over_time({{__name__={name}}}[2h]))");
        let answer = prometheus
            .http()
            .query("/api/v1/query", &[("query", &query), ("time", END)])
            .data();
        answer["result"][0]["value"][1]
            .as_str()
            .and_then(|count| count.parse::<u64>().ok())
            .unwrap_or(0)
    };
    names
        .as_array()
        .expect("names are a list")
        .iter()
        .map(count)
        .sum()
}

#[test]
fn recovery_keeps_more_of_a_damaged_directory_than_prometheus() {
    let Some((dir, original)) = recorded(&["prometheus"]) else {
        return;
    };
    let (whole, theirs) = (
        recovered_samples(&original, &dir.path().join("out")),
        kept_by_prometheus(&original),
    );
    // A query does not count staleness markers, and counts samples in two blocks once.
    assert!(
        theirs <= whole && whole < theirs + 100,
        "{whole} here, {theirs} there"
    );
    let cases: [(&str, Damage); 2] = [
        ("a flipped byte in the first segment", |dir| {
            flip(&dir.join("wal/00000000"), 400_000)
        }),
        ("a flipped byte in a head chunk", |dir| {
            flip(&dir.join("chunks_head/000004"), 20_000)
        }),
    ];
    for (name, damage) in cases {
        let copy = dir.path().join("damaged");
        copy_dir(&original, &copy);
        damage(&copy);
        let theirs = kept_by_prometheus(&copy);
        let ours = recovered_samples(&copy, &dir.path().join("out-damaged"));
        println!("{name}: of {whole} samples Prometheus keeps {theirs}, recovery {ours}");
        assert!(
            ours >= theirs,
            "{name}: {ours} of {whole}, Prometheus has {theirs}"
        );
        assert!(ours + LOST_MAX > whole, "{name}: {ours} of {whole}");
        std::fs::remove_dir_all(&copy).expect("remove a folder");
        std::fs::remove_dir_all(dir.path().join("out-damaged")).expect("remove a folder");
    }
}
