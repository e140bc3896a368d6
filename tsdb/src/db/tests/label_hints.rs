//! Selections return only the requested labels from heads and blocks.

use super::*;
use crate::select::{LabelHint, SelectHints};

fn labels(i: usize) -> Labels {
    let (i, group) = (i.to_string(), (i % 2).to_string());
    Labels::from_pairs([
        (METRIC_NAME, "m"),
        ("i", &*i),
        ("group", &*group),
        ("zone", "z"),
    ])
    .unwrap()
}

fn write(db: &Db, series: std::ops::Range<usize>, timestamp_ms: i64) {
    let mut batch = WriteBatch::default();
    for i in series {
        batch.push(
            db.series(&labels(i)).unwrap(),
            Sample {
                timestamp_ms,
                value: i as f64,
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
}

/// Returns the series with the requested labels and their numbers of samples.
fn select(db: &Db, requested: LabelHint) -> Vec<(String, usize)> {
    let hints = SelectHints {
        labels: requested,
        whole_where: &["whole"],
        ..SelectHints::default()
    };
    let set = db
        .select_with(&ReadContext::unbounded(), &[], TimeRange::ALL, hints)
        .unwrap();
    let read = |series: crate::select::Series| {
        let mut samples = SampleColumns::default();
        series.read(&mut samples).unwrap();
        (series.labels().to_string(), samples.len())
    };
    set.map(|series| read(series.unwrap())).collect()
}

#[test]
fn heads_and_blocks_return_requested_labels_in_the_order_of_all_labels() {
    let (_dir, db) = fresh(options());
    let with =
        |names: &[&str]| LabelHint::With(names.iter().map(|&name| name.to_owned()).collect());
    let check = |series: std::ops::Range<usize>, n_samples: &dyn Fn(usize) -> usize| {
        let mut sorted: Vec<_> = series.map(|i| (labels(i), i)).collect();
        sorted.sort();
        for (requested, names) in [
            (with(&["group"]), &["group"][..]),
            (with(&[]), &[]),
            (with(&["absent"]), &[]),
            (with(&["zone", "group", "absent"]), &["group", "zone"]),
            (
                LabelHint::Without(vec!["i".to_owned(), "zone".to_owned()]),
                &[METRIC_NAME, "group"],
            ),
        ] {
            let expect = |(labels, i): &(Labels, usize)| {
                (
                    labels.filter(|name| names.contains(&name)).to_string(),
                    n_samples(*i),
                )
            };
            let expect: Vec<_> = sorted.iter().map(expect).collect();
            assert_eq!(select(&db, requested), expect);
        }
        // Without labels, the order does not matter.
        let mut unlabelled = select(&db, LabelHint::None);
        let mut expect: Vec<_> = sorted
            .iter()
            .map(|(_, i)| ("{}".to_owned(), n_samples(*i)))
            .collect();
        unlabelled.sort();
        expect.sort();
        assert_eq!(unlabelled, expect);
    };
    write(&db, 0..20, NOW_MS - 10);
    check(0..20, &|_| 1);
    db.flush().unwrap();
    check(0..20, &|_| 1);
    write(&db, 10..30, NOW_MS);
    check(0..30, &|i| if (10..20).contains(&i) { 2 } else { 1 });
    // One series has a label for which all labels are requested.
    let whole = labels(5).with("whole", "x");
    let mut batch = WriteBatch::default();
    batch.push(
        db.series(&whole).unwrap(),
        Sample {
            timestamp_ms: NOW_MS,
            value: 0.0,
        },
        0,
    );
    db.append(&mut batch).unwrap();
    assert_eq!(select(&db, with(&["group"])), select(&db, LabelHint::All));
    db.flush().unwrap();
    assert_eq!(select(&db, with(&["group"])), select(&db, LabelHint::All));
}

#[test]
fn selections_without_labels_return_the_same_series_without_deleted_samples() {
    let (_dir, db) = fresh(options());
    write(&db, 0..600, NOW_MS - 10);
    write(&db, 100..600, NOW_MS);
    db.flush().unwrap();
    let times_ms = |range, labels| {
        let hints = SelectHints {
            labels,
            ..SelectHints::default()
        };
        let set = db
            .select_with(&ReadContext::unbounded(), &[], range, hints)
            .unwrap();
        let read = |series: crate::Result<crate::select::Series>| {
            let mut samples = SampleColumns::default();
            series.unwrap().read(&mut samples).unwrap();
            samples.timestamps_ms
        };
        set.map(read).collect::<Vec<_>>()
    };
    let check = |n_all: usize, n_new: usize| {
        let new = TimeRange::at(NOW_MS);
        for (range, n) in [(TimeRange::ALL, n_all), (new, n_new)] {
            let bare = times_ms(range, LabelHint::With(Vec::new()));
            let mut all = times_ms(range, LabelHint::All);
            assert_eq!((bare.len(), &bare), (n, &all));
            let mut in_any_order = times_ms(range, LabelHint::None);
            in_any_order.sort();
            all.sort();
            assert_eq!(in_any_order, all);
        }
    };
    check(600, 500);
    db.delete(vec![Matcher::equal("i", "7")], TimeRange::ALL)
        .unwrap();
    db.delete(vec![Matcher::equal("group", "1")], TimeRange::at(NOW_MS))
        .unwrap();
    check(599, 250);
    db.compact_fully().unwrap();
    check(599, 250);
}

#[test]
fn concurrent_reads_of_one_block_return_the_same_as_one() {
    let (_dir, db) = fresh(options());
    for k in 0..50 {
        write(&db, 0..600, NOW_MS - 50 * (50 - k));
    }
    db.flush().unwrap();
    let set = || {
        db.select(&ReadContext::unbounded(), &[], TimeRange::ALL)
            .unwrap()
    };
    let all: Vec<_> = set().map(Result::unwrap).collect();
    let read = |series: &crate::select::Series| {
        let mut samples = SampleColumns::default();
        series.read(&mut samples).unwrap();
        (samples.timestamps_ms, samples.values)
    };
    let expected: Vec<_> = all.iter().map(read).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| all.iter().map(read).collect::<Vec<_>>()))
            .collect();
        for thread in threads {
            assert!(thread.join().unwrap() == expected);
        }
    });
}

#[test]
fn an_interrupted_request_reads_little_more_of_a_block() {
    let (_dir, db) = fresh(options());
    write(&db, 0..2000, NOW_MS);
    db.flush().unwrap();
    let mut samples = SampleColumns::default();
    for requested in [LabelHint::All, LabelHint::With(Vec::new())] {
        let ctx = ReadContext::unbounded();
        let hints = SelectHints {
            labels: requested,
            ..SelectHints::default()
        };
        let mut set = db.select_with(&ctx, &[], TimeRange::ALL, hints).unwrap();
        let first = set.next().unwrap().unwrap();
        first.read(&mut samples).unwrap();
        ctx.interrupt(varve_context::Interrupt::Canceled);
        let n_handed_out = set.by_ref().take_while(Result::is_ok).count();
        assert!(n_handed_out < 256, "{n_handed_out}");
        assert!(set.next().is_none());
        let n_read = (0..1000)
            .take_while(|_| first.read(&mut samples).is_ok())
            .count();
        assert!(n_read < varve_context::CHECK_INTERVAL / 64, "{n_read}");
    }
}
