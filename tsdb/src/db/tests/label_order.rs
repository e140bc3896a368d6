//! Series are ranked when few new ones are created.

use super::*;
use crate::background::LabelOrder;

#[test]
fn series_are_ranked_once_few_new_ones_are_created() {
    let (_dir, db) = fresh(Options { shards: 1, ..options() });
    let add = |from: usize, n: usize| {
        assert!(append(&db, &(from..from + n).map(|i| (i, NOW_MS, 1.0)).collect::<Vec<_>>()).is_empty())
    };
    let mut label_order = LabelOrder::default();
    let mut n_unranked = || {
        label_order.update(&db.store).unwrap();
        db.store.shards[0].head().n_unranked()
    };
    add(0, 1000);
    assert_eq!([n_unranked(), n_unranked()], [1000, 1000], "a flush ranks a few");
    add(1000, 1000);
    assert_eq!(n_unranked(), 2000, "more may follow");
    add(2000, 100);
    assert_eq!(n_unranked(), 0, "few new series");
    add(3000, 100);
    assert_eq!([n_unranked(), n_unranked()], [100, 100]);
    let found: Vec<_> = contents(&db, &[], TimeRange::ALL).into_keys().collect();
    let set = db.select_labels(&QueryContext::unbounded(), &[], TimeRange::ALL).unwrap();
    let ordered: Vec<_> = set.map(|series| series.unwrap().labels().clone()).collect();
    assert!(found.len() == 2200 && ordered.is_sorted() && ordered.len() == 2200);
    db.flush().unwrap();
    assert_eq!(n_unranked(), 0);
}
