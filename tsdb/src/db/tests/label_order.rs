//! Series are ranked when their coming has ceased.

use super::*;
use crate::background::LabelOrder;

#[test]
fn series_are_ranked_once_no_more_of_them_come() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options { shards: 1, ..options() }).unwrap();
    let add = |from: usize, n: usize| {
        assert!(append(&db, &(from..from + n).map(|i| (i, NOW_MS, 1.0)).collect::<Vec<_>>()).is_empty())
    };
    let mut label_order = LabelOrder::default();
    let mut look = || {
        label_order.update(&db.store).unwrap();
        db.store.shards[0].head().n_unranked()
    };
    add(0, 1000);
    assert_eq!([look(), look()], [1000, 1000], "few are left to the flush");
    add(1000, 1000);
    assert_eq!(look(), 2000, "more may be coming");
    add(2000, 100);
    assert_eq!(look(), 0, "hardly any came");
    add(3000, 100);
    assert_eq!([look(), look()], [100, 100]);
    let found: Vec<_> = contents(&db, &[], TimeRange::ALL).into_keys().collect();
    let set = db.select_labels(&QueryContext::unbounded(), &[], TimeRange::ALL).unwrap();
    let ordered: Vec<_> = set.map(|series| series.unwrap().labels().clone()).collect();
    assert!(found.len() == 2200 && ordered.is_sorted() && ordered.len() == 2200);
    db.flush().unwrap();
    assert_eq!(look(), 0);
}
