//! Deletions: what they leave behind until their blocks are merged, and when a merge, an import or a file fails them.

use super::*;

/// Each repetition used to take memory, and time of each read, until the block was merged.
#[test]
fn a_deletion_that_covers_earlier_ones_replaces_them() {
    let (_dir, db) = fresh(options());
    append(&db, &[(0, NOW_MS, 1.0), (0, NOW_MS + 1, 1.0), (1, NOW_MS, 1.0)]);
    let n_deleted = || db.store.blocks.list().iter().map(|stored| stored.deleted(0).count()).sum::<usize>();
    for end_ms in [NOW_MS, NOW_MS, NOW_MS + 1] {
        db.delete(vec![Matcher::equal("i", "0")], TimeRange { start_ms: 0, end_ms }).unwrap();
        assert_eq!(n_deleted(), 1);
    }
    db.delete(vec![Matcher::equal("i", "0")], TimeRange::at(NOW_MS)).unwrap();
    assert_eq!((n_deleted(), everything(&db).len()), (2, 1));
    db.delete(vec![Matcher::equal(METRIC_NAME, "m")], TimeRange::ALL).unwrap();
    assert_eq!((n_deleted(), everything(&db).len()), (1, 0));
}
