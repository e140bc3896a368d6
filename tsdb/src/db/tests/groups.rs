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
