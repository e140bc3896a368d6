//! Relabel rules.

use super::*;

#[test]
fn new_rules_apply_to_known_series() {
    let fixture = Fixture::new(Limits::for_tests());
    let request = |t: i64| {
        let mut down = up("b", &[(t, 1.0)]);
        down.exemplars.push(Exemplar {
            timestamp_ms: t,
            ..Exemplar::default()
        });
        [up("a", &[(t, 1.0), (t + 1, 2.0)]), down]
    };
    fixture.stored(&request(T));
    fixture
        .receiver
        .set_relabeling(Relabeling::new(vec![drop_where("job", "b")]).unwrap());
    for t in [T + 10, T + 20] {
        let written = fixture.write(&request(t)).unwrap();
        assert_eq!((written.stored.total, written.dropped.total), (2, 1));
        assert_eq!(written.exemplars.rejected[&ExemplarRejection::Dropped], 1);
        assert!(written.rejections.is_empty(), "{}", written.rejections);
    }
    let stats = fixture.receiver.relabel_rule_stats();
    assert_eq!((stats[0].series, stats[0].samples), (1, 2));
    fixture
        .receiver
        .set_relabeling(Relabeling::new(vec![drop_where("job", "b"), remove("job")]).unwrap());
    fixture.stored(&request(T + 30));
    fixture.receiver.set_relabeling(Relabeling::default());
    fixture.stored(&request(T + 40));
    let times = |from: &[i64]| {
        bits(
            &from
                .iter()
                .flat_map(|t| [(T + t, 1.0), (T + t + 1, 2.0)])
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        fixture.contents(),
        [
            (
                r#"{__name__="up", job="a"}"#.to_owned(),
                times(&[0, 10, 20, 40])
            ),
            (
                r#"{__name__="up", job="b"}"#.to_owned(),
                bits(&[(T, 1.0), (T + 40, 1.0)])
            ),
            (r#"{__name__="up"}"#.to_owned(), times(&[30])),
        ]
    );
}

#[test]
fn the_same_rules_again_keep_routes_and_counts() {
    let fixture = Fixture::new(Limits::for_tests());
    let set_relabeling = |job| {
        fixture
            .receiver
            .set_relabeling(Relabeling::new(vec![drop_where("job", job)]).unwrap())
    };
    let n_routes = || fixture.receiver.stats().route.entries;
    set_relabeling("b");
    fixture
        .write(&[up("a", &[(T, 1.0)]), up("b", &[(T, 1.0)])])
        .unwrap();
    set_relabeling("b");
    assert_eq!(
        (n_routes(), fixture.receiver.relabel_rule_stats()[0].samples),
        (2, 1)
    );
    set_relabeling("c");
    assert_eq!(
        (n_routes(), fixture.receiver.relabel_rule_stats()[0].samples),
        (0, 0)
    );
}

#[test]
fn a_rule_that_removes_the_metric_name_rejects_the_series() {
    let fixture = Fixture::new(Limits::for_tests());
    fixture
        .receiver
        .set_relabeling(Relabeling::new(vec![remove("__name__")]).unwrap());
    for _twice in 0..2 {
        let written = fixture.write(&[up("a", &[(T, 1.0)])]).unwrap();
        assert_eq!(
            written.rejections.iter().next().unwrap().reason,
            RejectionReason::MissingMetricName
        );
    }
}
