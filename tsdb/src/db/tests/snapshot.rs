//! The contents of snapshots, and failing imports.

use varve_model::Exemplar;

use super::*;
use crate::batch::RejectExemplar;

fn exemplars(db: &Db) -> Vec<String> {
    let found = db
        .exemplars(&ReadContext::unbounded(), &[vec![]], TimeRange::ALL)
        .unwrap();
    found
        .series
        .iter()
        .map(|one| format!("{} {:?}", one.labels, one.exemplars))
        .collect()
}

#[test]
fn a_snapshot_contains_samples_metadata_and_exemplars() {
    let (_dir, db) = fresh(Options {
        shards: 4,
        exemplars_max: 100,
        ..options()
    });
    let metadata = Metadata {
        kind: "gauge".into(),
        help: "Some.".into(),
        unit: "bytes".into(),
    };
    db.set_metadata([("m", metadata.clone())]).unwrap();
    let mut batch = WriteBatch::default();
    for (i, tag) in (0..10).zip(0..) {
        let handle = db.series(&series_labels(i)).unwrap();
        batch.push(
            handle,
            Sample {
                timestamp_ms: NOW_MS,
                value: i as f64,
            },
            tag,
        );
        let labels = Labels::from_pairs([("trace_id", &*i.to_string())]).unwrap();
        batch.push_exemplar(
            handle,
            Exemplar {
                labels,
                value: 0.5,
                timestamp_ms: NOW_MS - i as i64,
            },
            tag,
        );
    }
    db.append(&mut batch).unwrap();
    assert!(
        !batch
            .rejected_exemplars()
            .iter()
            .any(|refused| refused.reason == RejectExemplar::Moved)
    );
    for (name, skip_head) in [("all", false), ("blocks", true)] {
        let path = db.snapshot(name, skip_head).unwrap();
        let copy = Db::open(
            &path,
            Options {
                exemplars_max: 100,
                ..options()
            },
        )
        .unwrap();
        assert_eq!(everything(&copy), everything(&db), "{name}");
        assert_eq!(
            *copy.metadata(),
            Families::from([("m".into(), metadata.clone().into())])
        );
        assert_eq!(
            (exemplars(&copy).len(), exemplars(&copy)),
            (10, exemplars(&db))
        );
        // The copy is a normal store: new series get new refs.
        assert_eq!(
            append(&copy, &[(10, NOW_MS + 1, 1.0), (0, NOW_MS + 1, 1.0)]),
            []
        );
        copy.flush().unwrap();
        drop(copy);
        let copy = Db::open(
            &path,
            Options {
                exemplars_max: 100,
                ..options()
            },
        )
        .unwrap();
        assert_eq!(
            (everything(&copy).len(), exemplars(&copy)),
            (11, exemplars(&db))
        );
    }
}
