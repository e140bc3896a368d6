//! Series per group: while series are created and evicted, and after a restart.

use super::*;
use crate::BudgetGroup;

fn group(number: u16) -> BudgetGroup {
    BudgetGroup::new(number).unwrap()
}

/// Returns the numbers of all series, of series in no group, in group 1 and in group 2.
fn counts(db: &Db) -> [u64; 4] {
    [
        db.n_series(),
        db.n_series_of(BudgetGroup::NONE),
        db.n_series_of(group(1)),
        db.n_series_of(group(2)),
    ]
}

#[test]
fn a_series_belongs_to_the_first_group_that_claims_it() {
    let (_dir, db) = fresh(Options {
        shards: 4,
        ..options()
    });
    append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 1.0)]);
    (1..5).for_each(|i| assert!(db.series_in_group(&series_labels(i), group(1)).is_ok()));
    (4..7).for_each(|i| assert!(db.series_in_group(&series_labels(i), group(2)).is_ok()));
    assert_eq!(counts(&db), [7, 1, 4, 2]);
    assert!(db.find_in_group(&series_labels(0), group(2)).is_some());
    assert!(db.find_in_group(&series_labels(9), group(2)).is_none());
    assert_eq!(counts(&db), [7, 0, 4, 3]);
}

/// A series that was looked up while its head was almost full stayed in no group.
#[test]
fn a_known_series_joins_its_group_while_its_head_accepts_no_new_series() {
    let (_dir, db) = fresh(Options {
        head_size_max_bytes: 1 << 20,
        ..options()
    });
    let first_refused = (0..).find(|&i| db.series(&series_labels(i)).is_err());
    assert!(first_refused.is_some_and(|i| i > 0));
    assert_eq!(db.n_series_of(group(1)), 0);
    assert!(db.series_in_group(&series_labels(0), group(1)).is_ok());
    assert_eq!(db.n_series_of(group(1)), 1);
}

#[test]
fn evicted_series_are_not_counted() {
    let (_dir, db) = fresh(options());
    append(&db, &[(0, NOW_MS - 7_200_000, 1.0), (1, NOW_MS, 1.0)]);
    (0..2).for_each(|i| assert!(db.find_in_group(&series_labels(i), group(1)).is_some()));
    assert_eq!(counts(&db), [2, 0, 2, 0]);
    db.flush().unwrap();
    db.flush().unwrap();
    assert_eq!(counts(&db), [1, 0, 1, 0]);
}

#[test]
fn a_series_can_leave_its_group() {
    let (_dir, db) = fresh(options());
    (0..3).for_each(|i| assert!(db.series_in_group(&series_labels(i), group(1)).is_ok()));
    for _again in 0..2 {
        let series = db.series_without_group(&series_labels(1)).unwrap();
        assert_eq!(
            (db.find(&series_labels(1)), counts(&db)),
            (Some(series), [3, 1, 2, 0])
        );
    }
    db.series_without_group(&series_labels(3)).unwrap();
    assert_eq!(counts(&db), [4, 2, 2, 0]);
}

#[test]
fn groups_are_assigned_by_a_label_after_a_restart() {
    let (dir, db) = fresh(options());
    (0..10).for_each(|i| assert!(append(&db, &[(i, NOW_MS, 1.0)]).is_empty()));
    drop(db);
    let db = open(dir.path());
    assert_eq!(counts(&db), [10, 10, 0, 0]);
    db.set_group_label(Some("i"), |value| group(if value < "4" { 1 } else { 2 }));
    assert_eq!(counts(&db), [10, 0, 4, 6]);
    db.set_group_label(Some("nothing"), |_| group(1));
    assert_eq!(counts(&db), [10, 10, 0, 0]);
    db.set_group_label(Some("i"), |_| group(1));
    db.set_group_label(None, |_| group(1));
    assert_eq!(counts(&db), [10, 10, 0, 0]);
}

fn with_names(names: &[&str]) -> Labels {
    let pairs = names.iter().map(|&name| (name, "x"));
    Labels::from_pairs(pairs).unwrap()
}

#[test]
fn label_names_are_counted_once_for_all_shards_until_their_last_series_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        shards: 4,
        clock: Arc::new(ManualClock::at(NOW_MS + 10_000_000)),
        ..options()
    };
    let db = Db::open(dir.path(), options.clone()).unwrap();
    // `i` is in all shards, `a` and `b` in one or two.
    append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 1.0), (2, NOW_MS, 1.0)]);
    let n_names = db.n_label_names();
    let new = [with_names(&["a", "i"]), with_names(&["a", "b"])];
    assert_eq!(
        new.each_ref().map(|labels| db.n_new_label_names(labels)),
        [1, 2]
    );
    for labels in &new {
        db.series(labels).unwrap();
        db.series(labels).unwrap();
    }
    assert_eq!(db.n_label_names(), n_names + 2);
    assert_eq!(db.n_new_label_names(&with_names(&["a", "b", "c"])), 1);
    assert_eq!(
        (db.n_series_with("a", "x"), db.n_series_with("a", "y")),
        (2, 0)
    );

    // Series without samples are evicted.
    append(&db, &[(0, NOW_MS + 7_200_000, 1.0)]);
    db.flush().unwrap();
    db.flush().unwrap();
    assert_eq!(db.n_label_names(), n_names);
    let mut batch = WriteBatch::default();
    let sample = Sample {
        timestamp_ms: NOW_MS + 7_200_000,
        value: 1.0,
    };
    batch.push(db.series(&new[1]).unwrap(), sample, 0);
    db.append(&mut batch).unwrap();
    drop(db);
    let db = Db::open(dir.path(), options).unwrap();
    assert_eq!(db.n_label_names(), n_names + 2, "after a restart");
}
