//! Selections that give no more labels than are asked for, whatever they are read of.

use super::*;
use crate::{LabelHint, SelectHints};

fn labels(i: usize) -> Labels {
    let (i, group) = (i.to_string(), (i % 2).to_string());
    Labels::from_pairs([(METRIC_NAME, "m"), ("i", &*i), ("group", &*group), ("zone", "z")]).unwrap()
}

fn write(db: &Db, series: std::ops::Range<usize>, timestamp_ms: i64) {
    let mut batch = WriteBatch::default();
    for i in series {
        batch.push(db.series(&labels(i)).unwrap(), Sample { timestamp_ms, value: i as f64 }, 0);
    }
    db.append(&mut batch).unwrap();
}

/// Returns the series with the labels that are asked for, and how many samples each has; and whether that is all labels.
fn select(db: &Db, asked: LabelHint) -> (Vec<(String, usize)>, bool) {
    let hints = SelectHints { labels: asked, whole_where: &["whole"], ..SelectHints::default() };
    let set = db.select_with(&QueryContext::unbounded(), &[], TimeRange::ALL, hints).unwrap();
    let is_whole = set.has_all_labels();
    let read = |series: crate::Series| {
        let mut samples = SampleColumns::default();
        series.read(&mut samples).unwrap();
        (series.labels().to_string(), samples.len())
    };
    (set.map(|series| read(series.unwrap())).collect(), is_whole)
}

#[test]
fn heads_and_blocks_give_the_labels_asked_for_in_the_order_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let with = |names: &[&str]| LabelHint::With(names.iter().map(|&name| name.to_owned()).collect());
    let check = |series: std::ops::Range<usize>, n_samples: &dyn Fn(usize) -> usize| {
        let mut sorted: Vec<_> = series.map(|i| (labels(i), i)).collect();
        sorted.sort();
        for (asked, names) in [
            (with(&["group"]), &["group"][..]),
            (with(&["zone", "group", "absent"]), &["group", "zone"]),
            (LabelHint::Without(vec!["i".to_owned(), "zone".to_owned()]), &[METRIC_NAME, "group"]),
        ] {
            let expect = |(labels, i): &(Labels, usize)| {
                (labels.filter(|name| names.contains(&name)).to_string(), n_samples(*i))
            };
            assert_eq!(select(&db, asked), (sorted.iter().map(expect).collect(), false));
        }
        assert!(select(&db, LabelHint::All).1);
    };
    write(&db, 0..20, NOW_MS - 10);
    check(0..20, &|_| 1);
    db.flush().unwrap();
    check(0..20, &|_| 1);
    write(&db, 10..30, NOW_MS);
    check(0..30, &|i| if (10..20).contains(&i) { 2 } else { 1 });
    // One series has a label that asks for all.
    let whole = labels(5).with("whole", "x");
    let mut batch = WriteBatch::default();
    batch.push(db.series(&whole).unwrap(), Sample { timestamp_ms: NOW_MS, value: 0.0 }, 0);
    db.append(&mut batch).unwrap();
    assert!(select(&db, with(&["group"])).1);
    db.flush().unwrap();
    assert!(select(&db, with(&["group"])).1);
}
