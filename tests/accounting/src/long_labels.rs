//! Requests for series whose labels have almost 1 MiB, the maximum.

use std::sync::PoisonError;

use tempfile::TempDir;
use varve_model::{Labels, Matcher, Sample};
use varve_query::Steps;
use varve_tsdb::{Db, Options, WriteBatch};

use super::requests::Request;
use super::store::END_MS;
use super::{ALONE, engine, uncharged_bytes};

const N_SERIES: usize = 80;
/// Labels of a series that have a long value.
const LONG_LABELS: usize = 15;
const VALUE_SIZE: usize = 60_000;

/// Labels of which each series of `m` has its own values, and of `target_info` the same.
fn labels(name: &str, i: usize) -> Labels {
    let mut pairs = vec![
        ("__name__".to_owned(), name.to_owned()),
        ("i".to_owned(), i.to_string()),
        ("instance".to_owned(), (i % 2).to_string()),
        ("job".to_owned(), "j".to_owned()),
    ];
    for n in 0..LONG_LABELS {
        pairs.push((format!("l{n:02}"), format!("{i}{}", "x".repeat(VALUE_SIZE))));
    }
    Labels::from_pairs(pairs.iter().map(|(name, value)| (&**name, &**value))).unwrap()
}

fn append(db: &Db, timestamp_ms: i64) {
    for i in 0..N_SERIES {
        let mut batch = WriteBatch::default();
        let sample = Sample {
            timestamp_ms,
            value: i as f64,
        };
        batch.push(db.series(&labels("m", i)).unwrap(), sample, 0);
        if i < 2 {
            batch.push(db.series(&labels("target_info", i)).unwrap(), sample, 0);
        }
        db.append(&mut batch).unwrap();
    }
}

/// Creates a store, with the series in a block too if `in_block`.
fn store(in_block: bool) -> (TempDir, Db) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        background: false,
        page_cache_size_bytes: 1 << 20,
        ..Options::default()
    };
    let db = Db::open(directory.path(), options).unwrap();
    if in_block {
        append(&db, END_MS - 60_000);
        db.flush().unwrap();
    }
    append(&db, END_MS);
    (directory, db)
}

/// 64 label sets were looked up before they were charged: some 60 MiB for each selection.
#[test]
fn long_labels_are_charged_before_many_are_built() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = engine();
    let queries = [
        "m",
        "m[5m]",
        "m > 1e6",
        "abs(m) > 1e6",
        "rate(m[5m])",
        "-m",
        "count(m)",
        "count by (l01, l02, l03) (m)",
        "sum without (i) (m)",
        "max without (l01, i) (m)",
        "quantile without (i) (0.5, m)",
        "topk(3, m)",
        "count_values(\"x\", m)",
        "count_values without (i) (\"x\", m)",
        "m * on () m",
        "m * on (i) m",
        "m * ignoring (l01) m",
        "m + m",
        "m + on (i, l01) group_left (l02) m",
        "m == on (i) group_left () m",
        "m or m",
        "m and m",
        "m unless on (l01) m",
        "sort_by_label(m, \"l01\", \"i\")",
        "info(m)",
        "histogram_quantile(0.5, m)",
        "label_replace(m, \"z\", \"$1$1$1$1\", \"l01\", \"(.*)\")",
        "label_join(m, \"z\", \"\", \"l01\", \"l02\", \"l03\", \"l04\")",
    ];
    let matchers = || vec![Matcher::equal("__name__", "m")];
    let mut requests = vec![
        Request::Select {
            matchers: matchers(),
            samples: false,
        },
        Request::Select {
            matchers: matchers(),
            samples: true,
        },
        Request::Labels {
            name: Some("l01"),
            matchers: matchers(),
        },
        Request::Exemplars(vec![matchers()]),
    ];
    for query in queries {
        for times in [
            Steps::instant(END_MS),
            Steps::range(END_MS - 60_000, END_MS, 15_000),
        ] {
            requests.push(Request::Query(query.to_owned(), times));
        }
    }
    let mut violations = Vec::new();
    for in_block in [false, true] {
        let (_directory, db) = store(in_block);
        for request in &requests {
            let uncharged = uncharged_bytes(&db, &engine, request);
            println!(
                "{uncharged:>10} bytes, block {in_block}: {}",
                request.summary()
            );
            if uncharged > super::UNCHARGED_MAX {
                violations.push((uncharged, in_block, request.summary()));
            }
        }
    }
    assert!(violations.is_empty(), "uncharged bytes: {violations:#?}");
}
