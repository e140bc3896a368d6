mod random;

use tempfile::TempDir;
use varve_context::{Limit, MemoryBudget, QueryContext, ReadOptions};
use varve_model::{Labels, Matcher, Sample, TimeRange};
use varve_promql::Features;
use varve_tsdb::retention::RetentionRule;
use varve_tsdb::{Db, Options, ReadContext, WriteBatch};

use super::*;
use crate::engine::{Engine, EngineOptions, QueryResult, Request, test_options};
use crate::error::Error;
use crate::stats::StatsMode;
use crate::value::Value;

const CACHE_SIZE: usize = 1 << 20;

fn options() -> Options {
    Options {
        background: false,
        out_of_order_window_ms: 3_600_000,
        ..Options::default()
    }
}

fn open() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    (dir, db)
}

fn engine(cache_size: usize) -> Engine {
    let features = Features {
        experimental_functions: true,
        ..Features::default()
    };
    Engine::new(EngineOptions {
        cache_size,
        features,
        ..test_options()
    })
}

fn append(db: &Db, name: &str, i: usize, seconds: i64, value: f64) {
    let labels = Labels::from_pairs([("__name__", name), ("i", &*i.to_string())]).unwrap();
    let mut batch = WriteBatch::default();
    batch.push(
        db.series(&labels).unwrap(),
        Sample {
            timestamp_ms: seconds * 1000,
            value,
        },
        0,
    );
    db.append(&mut batch).unwrap();
}

/// Appends samples every 30 s, from minute to minute, to two metrics of two series.
fn fill(db: &Db, minutes: std::ops::Range<i64>) {
    for seconds in (minutes.start * 60..minutes.end * 60).step_by(30) {
        for (name, i) in [("a", 0), ("a", 1), ("a_total", 0), ("a_total", 1)] {
            append(db, name, i, seconds, (seconds * (i as i64 + 3)) as f64);
        }
    }
}

/// Evaluates a query from minute to minute, with a step of a minute; at one minute if both are
/// equal.
fn run(
    db: &Db,
    engine: &Engine,
    query: &str,
    minutes: (i64, i64),
    use_cache: bool,
) -> Result<QueryResult, Error> {
    let times = match minutes {
        (start, end) if start == end => crate::Steps::instant(start * 60_000),
        (start, end) => crate::Steps::range(start * 60_000, end * 60_000, 60_000),
    };
    let request = Request {
        stats: StatsMode::AsWritten,
        use_cache,
        ..Request::new(query, times)
    };
    engine.run(db, &ReadContext::unbounded(), &request)
}

fn print(result: &Result<QueryResult, Error>) -> String {
    match result {
        Ok(QueryResult {
            value, annotations, ..
        }) => {
            format!(
                "{value:?} {:?}",
                annotations
                    .warnings()
                    .chain(annotations.infos())
                    .collect::<Vec<_>>()
            )
        }
        Err(error) => error.to_string(),
    }
}

/// Checks that a cached query returns what an uncached one returns, and how many of its steps were
/// cached.
#[track_caller]
fn check(db: &Db, engine: &Engine, query: &str, minutes: (i64, i64), n_cached: usize) {
    let cached = run(db, engine, query, minutes, true);
    assert_eq!(
        print(&cached),
        print(&run(db, engine, query, minutes, false)),
        "{query}"
    );
    assert_eq!(
        cached.unwrap().stats.unwrap().n_cached_steps,
        n_cached,
        "{query}"
    );
}

#[test]
fn a_window_that_moves_evaluates_only_new_and_changed_steps() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    let query = "sum by (i) (rate(a_total[5m])) + on (i) a";
    check(&db, &engine, query, (10, 60), 0);
    check(
        &db,
        &engine,
        "sum by (i) (rate(a_total[5m]))  +  on (i) a",
        (10, 60),
        51,
    );
    check(&db, &engine, query, (20, 50), 31);
    // Samples in the minute of the last step change it.
    fill(&db, 61..62);
    append(&db, "a", 7, 60 * 60 + 40, 1.0);
    check(&db, &engine, query, (11, 61), 49);
    check(&db, &engine, query, (11, 61), 51);
    // A longer range shares the entry, and keeps its steps.
    check(&db, &engine, query, (5, 61), 0);
    check(&db, &engine, query, (11, 62), 51);
    check(&db, &engine, query, (6, 62), 57);
    // A late sample affects the steps whose windows contain it.
    append(&db, "a", 0, 40 * 60 + 7, 5.0);
    check(&db, &engine, query, (6, 62), 34);
    // Another phase has another entry.
    let times = crate::Steps::range(6 * 60_000 + 1, 3_600_000, 60_000);
    let request = Request {
        stats: StatsMode::AsWritten,
        use_cache: true,
        ..Request::new(query, times)
    };
    let result = engine
        .run(&db, &ReadContext::unbounded(), &request)
        .unwrap();
    assert_eq!(result.stats.unwrap().n_cached_steps, 0);
    // A change of another metric changes nothing.
    append(&db, "other", 0, 30 * 60, 1.0);
    check(&db, &engine, query, (6, 62), 57);
    let stats = engine.cache_stats();
    assert_eq!(
        (stats.n_entries, stats.n_hits + stats.n_partial_hits),
        (2, 8)
    );
}

#[test]
fn changes_of_blocks_invalidate_the_steps_that_they_affect() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    check(&db, &engine, "sum(a)", (10, 60), 0);
    db.flush().unwrap();
    db.compact_fully().unwrap();
    check(&db, &engine, "sum(a)", (10, 60), 51);
    let range = TimeRange {
        start_ms: 30 * 60_000,
        end_ms: 32 * 60_000,
    };
    db.delete(vec![varve_model::Matcher::equal("i", "1")], range)
        .unwrap();
    check(&db, &engine, "sum(a)", (10, 60), 20);
    db.clean_tombstones().unwrap();
    check(&db, &engine, "sum(a)", (10, 60), 51);
}

#[test]
fn imported_and_own_samples_invalidate_the_steps_that_they_affect() {
    let (dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    check(&db, &engine, "sum(a)", (10, 60), 0);
    let fs: std::sync::Arc<dyn varve_env::Fs> = std::sync::Arc::new(varve_env::RealFs);
    let import = dir.path().join("import");
    std::fs::create_dir_all(&import).unwrap();
    let labels = [("__name__", "a"), ("i", "2")];
    let mut samples = varve_model::SampleColumns::default();
    samples.push(Sample {
        timestamp_ms: 40 * 60_000,
        value: 1.0,
    });
    let mut writer = varve_tsdb::ImportWriter::create(&fs, &import, 1, 0, labels).unwrap();
    writer.add(&labels, &samples).unwrap();
    writer.finish().unwrap();
    check(&db, &engine, "sum(a)", (10, 60), 51);
    assert_eq!(db.import().unwrap(), 1);
    check(&db, &engine, "sum(a)", (10, 60), 30);
    // Of a recording rule, or of the server itself.
    let mut own = WriteBatch::own();
    let series = db
        .series(&Labels::from_pairs([("__name__", "a"), ("i", "3")]).unwrap())
        .unwrap();
    own.push(
        series,
        Sample {
            timestamp_ms: 50 * 60_000,
            value: 1.0,
        },
        0,
    );
    check(&db, &engine, "sum(a)", (10, 60), 51);
    db.append(&mut own).unwrap();
    check(&db, &engine, "sum(a)", (10, 60), 40);
}

#[test]
fn retention_invalidates_the_steps_of_removed_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let retention = Options {
        retention_ms: Some(3_600_000),
        in_order_max_age_ms: i64::MAX,
        ..options()
    };
    let db = Db::open(dir.path(), retention).unwrap();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..110);
    db.flush().unwrap();
    check(&db, &engine, "sum(a)", (10, 300), 0);
    append(&db, "b", 0, 260 * 60, 1.0);
    check(&db, &engine, "sum(a)", (10, 300), 291);
    db.confirm_retention().unwrap();
    assert_eq!(db.stats().n_blocks, 0);
    check(&db, &engine, "sum(a)", (10, 300), 0);
    // Blocks that are removed by number.
    db.flush().unwrap();
    check(&db, &engine, "sum(b)", (10, 300), 0);
    check(&db, &engine, "sum(b)", (10, 300), 291);
    db.remove_blocks(
        &db.blocks()
            .iter()
            .map(|block| block.number)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    check(&db, &engine, "sum(b)", (10, 300), 250);
}

#[test]
fn retention_rules_invalidate_the_steps_of_rewritten_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(
        dir.path(),
        Options {
            in_order_max_age_ms: i64::MAX,
            ..options()
        },
    )
    .unwrap();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..110);
    db.flush().unwrap();
    append(&db, "b", 0, 260 * 60, 1.0);
    check(&db, &engine, "sum(a)", (10, 300), 0);
    check(&db, &engine, "sum(a)", (10, 300), 291);
    let matchers = vec![Matcher::equal("i", "1")];
    db.set_retention(
        None,
        None,
        vec![RetentionRule {
            matchers,
            time_ms: Some(3_600_000),
        }],
    );
    db.compact().unwrap();
    assert_eq!(db.stats().compaction.n_removed_by_rules, 2 * 220);
    check(&db, &engine, "sum(a)", (10, 300), 0);
}

#[test]
fn whole_results_are_reused_while_nothing_changes() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    // An instant query, a sorted result, and steps that depend on each other.
    for (query, minutes, n_steps) in [
        ("sum(a)", (60, 60), 1),
        ("sort_desc(a)", (60, 60), 1),
        ("limitk(9, sum by (x) (a))", (10, 60), 51),
        ("quantile(scalar(a{i=\"0\"}), a_total)", (10, 60), 51),
    ] {
        check(&db, &engine, query, minutes, 0);
        check(&db, &engine, query, minutes, n_steps);
        check(&db, &engine, query, (minutes.0, minutes.1 + 1), 0);
        check(
            &db,
            &engine,
            query,
            minutes,
            if minutes.0 == minutes.1 { n_steps } else { 0 },
        );
    }
    check(&db, &engine, "a[5m]", (60, 60), 0);
    check(&db, &engine, "a[5m]", (60, 60), 1);
    append(&db, "a", 1, 60 * 60 - 20, 1.0);
    check(&db, &engine, "a[5m]", (60, 60), 0);
    // The position of an annotation depends on the text.
    check(&db, &engine, "  rate(a[5m])", (60, 60), 0);
    check(&db, &engine, "rate(a[5m])", (60, 60), 0);
    check(&db, &engine, "rate(a[5m])", (60, 60), 1);
}

#[test]
fn steps_with_annotations_are_joined() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    let query = "sum(rate(a[5m])) + sum(rate(a_total[5m]))";
    for (minutes, n_cached) in [
        ((10, 40), 0),
        ((10, 50), 31),
        ((20, 51), 31),
        ((15, 45), 31),
        ((10, 51), 0),
    ] {
        check(&db, &engine, query, minutes, n_cached);
    }
    // In a subquery, the steps of annotations are unknown. The last step is evaluated, because it
    // may lack the annotations of the others.
    let query = "max_over_time(rate(a[5m])[10m:1m])";
    for (minutes, n_cached) in [((10, 40), 0), ((10, 50), 31), ((15, 45), 30)] {
        check(&db, &engine, query, minutes, n_cached);
    }
    // The position of an annotation depends on the text.
    check(
        &db,
        &engine,
        "sum(rate(a[5m]))  +  sum(rate(a_total[5m]))",
        (10, 52),
        0,
    );
    check(&db, &engine, "sum( rate(a_total[5m]) )", (10, 50), 0);
    check(&db, &engine, "sum(rate(a_total[5m]))", (11, 51), 40);
    // Several annotations.
    for minute in 0..61 {
        append(&db, "b", 0, minute * 60, minute as f64);
    }
    check(&db, &engine, "rate(a[5m]) + rate(b[5m])", (10, 50), 0);
    check(&db, &engine, "rate(a[5m]) + rate(b[5m])", (11, 51), 40);
    // `a` ends: its annotation is only in the cached steps, then in none.
    for minute in 61..80 {
        append(&db, "a_total", 0, minute * 60, minute as f64);
    }
    for (minutes, n_cached) in [
        ((20, 60), 0),
        ((20, 70), 41),
        ((21, 71), 50),
        ((60, 72), 12),
        ((66, 79), 7),
    ] {
        check(
            &db,
            &engine,
            "rate(a[5m]) or rate(a_total[5m])",
            minutes,
            n_cached,
        );
    }
}

/// Such a result was evaluated again at all steps.
#[test]
fn the_info_about_raised_buckets_is_about_the_steps_of_the_window() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    for minute in 0..80 {
        for (i, le, count) in [(0, "1", 10), (1, "2", 20), (2, "+Inf", 30)] {
            let labels = [("__name__", "h_bucket"), ("i", "x"), ("le", le)];
            let mut batch = WriteBatch::default();
            // Every seventh minute, the second count is behind the first.
            let behind = if i == 1 && minute % 7 == 0 { 15 } else { 0 };
            let sample = Sample {
                timestamp_ms: minute * 60_000,
                value: (count - behind + minute % 5) as f64,
            };
            let labels = Labels::from_pairs(labels).unwrap();
            batch.push(db.series(&labels).unwrap(), sample, 0);
            db.append(&mut batch).unwrap();
        }
    }
    for query in [
        "histogram_quantile(0.9, h_bucket)",
        "histogram_quantile(0.9, sum by (le) (h_bucket))",
        "histogram_quantile(0.9, h_bucket) / histogram_quantile(0.5, h_bucket)",
        "histogram_quantiles(h_bucket, \"q\", 0.9, 0.5)",
        "histogram_quantile(2, h_bucket) or histogram_quantile(-1, a)",
    ] {
        for (minutes, n_cached) in [
            ((10, 40), 0),
            ((11, 41), 30),
            ((12, 42), 30),
            ((13, 43), 30),
            ((20, 50), 24),
            ((29, 34), 6),
            ((30, 60), 21),
        ] {
            check(&db, &engine, query, minutes, n_cached);
        }
    }
    // A late sample ends the cached steps, a deletion all of them.
    let query = "histogram_quantile(0.9, h_bucket)";
    append(&db, "h_bucket", 1, 45 * 60 + 30, 1.0);
    check(&db, &engine, query, (30, 60), 15);
    let range = TimeRange {
        start_ms: 0,
        end_ms: 40 * 60_000,
    };
    db.delete(vec![Matcher::equal("le", "2")], range).unwrap();
    check(&db, &engine, query, (30, 60), 0);
    check(&db, &engine, query, (31, 61), 30);
    // In a subquery, steps share the histograms that are counted.
    let query = "max_over_time(histogram_quantile(0.9, h_bucket)[5m:1m])";
    check(&db, &engine, query, (45, 75), 0);
    check(&db, &engine, query, (46, 76), 0);
}

#[test]
fn results_are_joined_unless_the_order_of_series_decides() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    // The group `b` comes first while its first series exists, and last without it. Then both sums
    // are equal.
    for (i, x, minutes) in [("0", "b", 0..20), ("1", "a", 0..60), ("2", "b", 0..60)] {
        let labels = Labels::from_pairs([("__name__", "m"), ("i", i), ("x", x)]).unwrap();
        for minute in minutes {
            let mut batch = WriteBatch::default();
            batch.push(
                db.series(&labels).unwrap(),
                Sample {
                    timestamp_ms: minute * 60_000,
                    value: 1.0,
                },
                0,
            );
            db.append(&mut batch).unwrap();
        }
    }
    for (query, n_joined) in [
        ("topk(1, sum by (x) (m))", 0),
        ("bottomk by (x) (1, sum by (x) (m))", 21),
        ("topk(2, sum by (x) (m))", 21),
        ("avg(sum by (x) (m))", 21),
        ("topk(1, m)", 21),
        ("limitk(1, m)", 21),
        ("limit_ratio(0.5, m)", 21),
        ("count(topk(1, m))", 21),
        (
            "m * on (i) group_left (x) label_replace(m, \"x\", \"y\", \"\", \"\")",
            21,
        ),
        (
            "sum(m * on (i) group_left (x) label_replace(m, \"x\", \"y\", \"\", \"\"))",
            0,
        ),
    ] {
        check(&db, &engine, query, (10, 30), 0);
        check(&db, &engine, query, (10, 40), n_joined);
    }
}

#[test]
fn settings_and_options_of_a_request_are_part_of_the_key() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    let times = crate::Steps::range(600_000, 3_600_000, 60_000);
    let request = Request {
        stats: StatsMode::AsWritten,
        use_cache: true,
        ..Request::new("a", times)
    };
    let cached_in = |ctx: &ReadContext, request: &Request<'_>| {
        let result = engine.run(&db, ctx, request).unwrap();
        result.stats.unwrap().n_cached_steps
    };
    let cached = |request: &Request<'_>| cached_in(&ReadContext::unbounded(), request);
    assert_eq!((cached(&request), cached(&request)), (0, 51));
    assert_eq!(
        cached(&Request {
            lookback_delta_ms: Some(1000),
            ..request.clone()
        }),
        0
    );
    assert_eq!(
        cached(&Request {
            use_start_timestamps: Some(true),
            ..request.clone()
        }),
        0
    );
    assert_eq!(
        cached(&Request {
            stats: StatsMode::AsPlanned,
            ..request.clone()
        }),
        0
    );
    assert_eq!(
        cached(&Request {
            use_cache: false,
            ..request.clone()
        }),
        0
    );
    let external_labels = [("cluster".to_owned(), "c".to_owned())].into();
    assert_eq!(
        cached(&Request {
            external_labels,
            ..request.clone()
        }),
        0
    );
    // The matchers and the limits of a tenant.
    for i in ["0", "1"] {
        let only_i = [varve_model::Matcher::equal("i", i)].into();
        let ctx = ReadContext::restricted(QueryContext::unbounded(), only_i);
        assert_eq!(
            (cached_in(&ctx, &request), cached_in(&ctx, &request)),
            (0, 51)
        );
    }
    let options = ReadOptions {
        range_s_max: Some((Limit::Other("range"), 3600)),
        ..ReadOptions::default()
    };
    let memory = MemoryBudget::new(Limit::Other("memory"), usize::MAX);
    let limited = QueryContext::with_options(std::time::Duration::MAX, memory, options);
    let limited = ReadContext::unrestricted(limited);
    assert_eq!(cached_in(&limited, &request), 0);
    assert_eq!(cached(&request), 51);
}

/// A query of one step took its step from a longer range, where `step()` is not 0, and the other
/// way round.
#[test]
fn one_step_and_several_have_different_values_of_step() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    for end_ms in [600_000, 660_000, 600_000] {
        let times = crate::Steps::range(600_000, end_ms, 60_000);
        let run = |use_cache| {
            let request = Request {
                use_cache,
                ..Request::new("a + step()", times)
            };
            print(&engine.run(&db, &ReadContext::unbounded(), &request))
        };
        assert_eq!(run(true), run(false), "{end_ms}");
    }
}

/// A subquery is also evaluated between the ranges of two steps. An error there was missing if the
/// result was cached.
#[test]
fn samples_between_the_ranges_of_steps_invalidate_results() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    (0..61).for_each(|minute| append(&db, "c", 0, minute * 60 + 57, 1.0));
    let query = "sum_over_time((a{i=\"0\"} * on () last_over_time(c[5s]))[10s:5s])";
    // Steps every five minutes.
    let run = |minute: i64, use_cache| {
        let times = crate::Steps::range(600_000, minute * 60_000, 300_000);
        let request = Request {
            stats: StatsMode::AsWritten,
            use_cache,
            ..Request::new(query, times)
        };
        engine.run(&db, &ReadContext::unbounded(), &request)
    };
    for (minute, n_cached) in [(30, 0), (30, 5), (35, 0), (35, 6)] {
        assert_eq!(
            run(minute, true).unwrap().stats.unwrap().n_cached_steps,
            n_cached,
            "{minute}"
        );
    }
    for i in [0, 1] {
        append(&db, "c", i, 32 * 60 + 8, 1.0);
    }
    let [cached, uncached] = [true, false].map(|use_cache| print(&run(35, use_cache)));
    assert!(uncached.contains("duplicate series"), "{uncached}");
    assert_eq!(cached, uncached);
}

#[test]
fn the_size_of_the_cache_is_bounded() {
    let (_dir, db) = open();
    fill(&db, 0..61);
    let engine = engine(16 << 10);
    for i in 0..50 {
        check(&db, &engine, &format!("sum(a) + {i}"), (10, 60), 0);
        let stats = engine.cache_stats();
        assert!(stats.size_bytes <= 16 << 10, "{stats:?}");
    }
    let stats = engine.cache_stats();
    assert!(
        stats.n_entries > 2 && stats.n_evicted == 50 - stats.n_entries,
        "{stats:?}"
    );
    // The most recently used entry stays; a result that is too large is not cached.
    check(&db, &engine, "sum(a) + 49", (10, 60), 51);
    check(&db, &engine, "{__name__=~\".+\"}", (1, 60), 0);
    check(&db, &engine, "{__name__=~\".+\"}", (1, 60), 0);
    engine.clear_cache();
    assert_eq!(
        (
            engine.cache_stats().n_entries,
            engine.cache_stats().size_bytes
        ),
        (0, 0)
    );
    check(&db, &engine, "sum(a) + 49", (10, 60), 0);
    // Without a size, nothing is cached.
    let none = super::tests::engine(0);
    check(&db, &none, "sum(a)", (10, 60), 0);
    check(&db, &none, "sum(a)", (10, 60), 0);
}

#[test]
fn series_with_labels_that_leave_with_the_name_are_evaluated_together() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    for (kind, minutes) in [("counter", 0..20), ("gauge", 30..50)] {
        let labels = Labels::from_pairs([("__name__", "m_total"), ("__type__", kind)]).unwrap();
        for minute in minutes {
            let mut batch = WriteBatch::default();
            let sample = Sample {
                timestamp_ms: minute * 60_000,
                value: minute as f64,
            };
            batch.push(db.series(&labels).unwrap(), sample, 0);
            db.append(&mut batch).unwrap();
        }
    }
    // Both are one series of the result.
    check(&db, &engine, "rate(m_total[5m])", (5, 20), 0);
    check(&db, &engine, "rate(m_total[5m])", (5, 45), 0);
    check(&db, &engine, "rate(m_total[5m])", (6, 45), 0);
    check(&db, &engine, "rate(m_total[5m])", (6, 45), 40);
}

/// Each thread appends late samples and asks at once: a result that does not have them was served
/// from the cache although the append had ended.
#[test]
fn an_append_that_has_ended_is_never_missing() {
    let (_dir, db) = open();
    let engine = engine(CACHE_SIZE);
    fill(&db, 0..61);
    let count = |minutes| {
        let result = run(
            &db,
            &engine,
            "sum(count_over_time(late[1h]))",
            minutes,
            true,
        )
        .unwrap();
        match result.value {
            Value::Vector(samples) => samples.first().map_or(0.0, |sample| sample.point.value),
            Value::Matrix(series) => series
                .first()
                .map_or(0.0, |series| series.points.last().unwrap().value),
            other => panic!("{other:?}"),
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, count) = (&db, &count);
            scope.spawn(move || {
                let mut last = 0.0;
                for at in 0..150 {
                    append(db, "late", thread, 600 + at * 17 % 2400, 1.0);
                    let now = count(if at % 2 == 0 { (60, 60) } else { (50, 60) });
                    assert!(
                        now >= last && now >= (at + 1) as f64,
                        "{now} samples after {last}, {at}"
                    );
                    last = now;
                }
            });
        }
    });
    assert_eq!(count((60, 60)), 600.0);
}
