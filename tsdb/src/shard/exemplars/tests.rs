//! Exemplars of a whole store: queries and restarts.

use std::path::Path;
use std::sync::Arc;

use varve_context::{Limit, MemoryBudget};
use varve_env::testing::ManualClock;
use varve_model::Sample;
use varve_model::labels::METRIC_NAME;

use super::*;
use crate::Db;
use crate::batch::{RejectExemplar, SeriesHandle, WriteBatch};
use crate::options::{Options, WalSync};
use crate::read_context::ReadContext;

const NOW_MS: i64 = 1_700_000_000_000;

fn options(shards: usize, exemplars_max: usize) -> Options {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let series_idle_ms = 60_000;
    Options {
        shards,
        exemplars_max,
        clock,
        series_idle_ms,
        wal_sync: WalSync::Never,
        background: false,
        ..Options::default()
    }
}

fn open(dir: &Path, shards: usize) -> Db {
    Db::open(dir, options(shards, 100)).unwrap()
}

fn labels(metric: &str, idx: usize) -> Labels {
    Labels::from_pairs([(METRIC_NAME, metric), ("i", &*idx.to_string())]).unwrap()
}

fn exemplar(trace: &str, timestamp_ms: i64) -> Exemplar {
    Exemplar {
        labels: Labels::from_pairs([("trace_id", trace)]).unwrap(),
        value: 0.5,
        timestamp_ms,
    }
}

/// Appends a sample to each series and exemplars to some.
fn append(
    db: &Db,
    timestamp_ms: i64,
    series: &[Labels],
    exemplars: &[(usize, Exemplar)],
) -> Vec<RejectExemplar> {
    let handles: Vec<_> = series
        .iter()
        .map(|labels| db.series(labels).unwrap())
        .collect();
    let mut batch = WriteBatch::default();
    for &handle in handles.iter() {
        batch.push(
            handle,
            Sample {
                timestamp_ms,
                value: 1.0,
            },
            0,
        )
    }
    for (idx, exemplar) in exemplars {
        batch.push_exemplar(handles[*idx], exemplar.clone(), *idx as u32);
    }
    db.append(&mut batch).unwrap();
    batch
        .rejected_exemplars()
        .iter()
        .map(|rejected| rejected.reason)
        .collect()
}

fn found(db: &Db, selectors: &[Vec<Matcher>], range: TimeRange) -> Vec<String> {
    let found = db
        .exemplars(&ReadContext::unbounded(), selectors, range)
        .unwrap();
    let print = |one: &SeriesExemplars| {
        let traces = one
            .exemplars
            .iter()
            .map(|e| format!(" {}@{}", e.labels.get("trace_id").unwrap(), e.timestamp_ms));
        one.labels.to_string() + &traces.collect::<String>()
    };
    found.series.iter().map(print).collect()
}

fn all(db: &Db) -> Vec<String> {
    found(db, &[vec![]], TimeRange::ALL)
}

#[test]
fn a_query_returns_matches_of_any_selector_in_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 2);
    let series = [labels("a", 0), labels("a", 1), labels("b", 2)];
    let new = [
        (1, exemplar("x", 10)),
        (0, exemplar("y", 20)),
        (0, exemplar("z", 30)),
        (2, exemplar("w", 40)),
    ];
    assert_eq!(append(&db, NOW_MS, &series, &new), []);
    let metric = |name: &str| vec![Matcher::equal(METRIC_NAME, name)];
    let range = |start_ms, end_ms| TimeRange { start_ms, end_ms };
    let a = [
        "{__name__=\"a\", i=\"0\"} y@20 z@30",
        "{__name__=\"a\", i=\"1\"} x@10",
    ];
    assert_eq!(found(&db, &[metric("a")], TimeRange::ALL), a);
    assert_eq!(
        found(
            &db,
            &[metric("a"), metric("b"), metric("a")],
            TimeRange::ALL
        )
        .len(),
        3
    );
    assert_eq!(
        found(&db, &[metric("a")], range(20, 20)),
        ["{__name__=\"a\", i=\"0\"} y@20"]
    );
    for (selectors, range) in [
        (vec![metric("c")], TimeRange::ALL),
        (vec![], TimeRange::ALL),
        (vec![metric("a")], range(21, 29)),
    ] {
        assert_eq!(found(&db, &selectors, range), [""; 0]);
    }
    let budget = MemoryBudget::new(Limit::Other("test"), 100);
    let ctx = ReadContext::unrestricted(QueryContext::new(
        std::time::Duration::from_secs(60),
        budget,
    ));
    assert!(matches!(
        db.exemplars(&ctx, &[vec![]], TimeRange::ALL),
        Err(crate::Error::Limit { .. })
    ));
    let ctx = ReadContext::unbounded();
    ctx.interrupt(varve_context::Interrupt::Canceled);
    assert!(matches!(
        db.exemplars(&ctx, &[vec![]], TimeRange::ALL),
        Err(crate::Error::Interrupted(_))
    ));
}

#[test]
fn rejected_exemplars_are_reported_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 1);
    let series = [labels("a", 0)];
    let ahead = NOW_MS + Options::default().ahead_max_ms;
    let new = [
        (0, exemplar("a", ahead)),
        (0, exemplar("a", ahead + 1)),
        (0, exemplar("a", 5)),
        (0, exemplar(&"x".repeat(200), ahead)),
    ];
    let refused = append(&db, NOW_MS, &series, &new);
    assert_eq!(
        refused,
        [
            RejectExemplar::OutOfBounds,
            RejectExemplar::OutOfOrder,
            RejectExemplar::LabelsTooLong
        ]
    );
    let stats = db.stats().exemplars;
    assert_eq!(
        (
            stats.n_appended,
            stats.n_out_of_order,
            stats.n_stored,
            stats.n_series
        ),
        (1, 1, 1, 1)
    );
    let mut batch = WriteBatch::default();
    let gone = SeriesHandle {
        generation: 77,
        ..db.series(&series[0]).unwrap()
    };
    batch.push_exemplar(gone, exemplar("b", ahead), 3);
    db.append(&mut batch).unwrap();
    assert_eq!(batch.rejected_exemplars()[0].reason, RejectExemplar::Moved);
    assert_eq!(db.find(&labels("nothing", 1)), None);
}

#[test]
fn exemplars_survive_restarts_flushes_and_a_change_of_the_shard_count() {
    let dir = tempfile::tempdir().unwrap();
    let series: Vec<_> = (0..8).map(|i| labels("a", i)).collect();
    let mut expected = Vec::new();
    for (round, shards) in [2, 2, 4, 1, 2].into_iter().enumerate() {
        let db = open(dir.path(), shards);
        assert_eq!(all(&db), expected, "before round {round}");
        let time = NOW_MS + 1000 * round as i64;
        let new: Vec<_> = (0..8)
            .map(|i| (i, exemplar(&format!("{round}-{i}"), time + i as i64)))
            .collect();
        append(&db, time, &series, &new[..4]);
        if round % 2 == 1 {
            db.flush().unwrap();
        }
        append(&db, time, &series, &new[4..]);
        // Repeated exemplars change nothing.
        append(&db, time, &series, &new);
        expected = all(&db);
        assert_eq!(
            (expected.len(), db.stats().exemplars.n_stored),
            (8, 8 * (round as u64 + 1))
        );
    }
}

#[test]
fn exemplars_of_evicted_series_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let expected = {
        let db = open(dir.path(), 1);
        append(
            &db,
            NOW_MS - 600_000,
            &[labels("gone", 0)],
            &[(0, exemplar("old", NOW_MS - 600_000))],
        );
        append(
            &db,
            NOW_MS,
            &[labels("here", 0)],
            &[(0, exemplar("new", NOW_MS))],
        );
        db.flush().unwrap();
        assert_eq!(db.find(&labels("gone", 0)), None);
        all(&db)
    };
    assert_eq!(expected.len(), 2);
    assert_eq!(all(&open(dir.path(), 1)), expected);
}

#[test]
fn the_capacity_may_change_between_starts() {
    let dir = tempfile::tempdir().unwrap();
    let series = [labels("a", 0)];
    let new: Vec<_> = (0..50).map(|i| (0, exemplar("x", NOW_MS + i))).collect();
    append(&open(dir.path(), 1), NOW_MS, &series, &new);
    let stored = |exemplars_max| {
        let db = Db::open(dir.path(), options(1, exemplars_max)).unwrap();
        let all = all(&db);
        all.first().map_or(0, |text| text.matches('@').count())
    };
    assert_eq!(
        (stored(7), stored(100)),
        (7, 50),
        "a smaller ring does not remove exemplars from the log"
    );
    {
        let db = Db::open(dir.path(), options(1, 7)).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(stored(100), 7);
    {
        let db = Db::open(dir.path(), options(1, 0)).unwrap();
        assert_eq!(
            append(&db, NOW_MS + 100, &series, &new[..1]),
            [RejectExemplar::Disabled]
        );
        db.flush().unwrap();
    }
    assert_eq!(stored(100), 0);
}
