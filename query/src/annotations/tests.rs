use varve_promql::ast::Span;

use super::annotation::Severity;
use super::list::{KEPT_SIZE_MAX, OCCURRENCES_SIZE_MAX, OMITTED_MAX};
use super::*;

fn annotate(query: &str, list: &[(Annotation, usize)]) -> Annotations {
    let mut annotations = Annotations::new(query);
    for (annotation, start) in list {
        annotations.add(
            annotation.clone(),
            Span {
                start: *start,
                end: *start,
            },
            Occurrence::Unknown,
        );
    }
    annotations
}

#[test]
fn equal_annotations_are_reported_once_at_the_last_position() {
    let annotation = Annotation::PossibleNonCounter("x".into());
    let annotations = annotate(
        "rate(x[5m]) +\n rate(x[1m])",
        &[(annotation.clone(), 5), (annotation, 20)],
    );
    let text = "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"x\"";
    assert_eq!(
        annotations.infos().collect::<Vec<_>>(),
        [format!("{text} (2:7)")]
    );
    assert_eq!(annotations.warnings().count(), 0);
}

#[test]
fn overlapping_start_timestamps_are_counted_at_the_first_position() {
    let annotation = |n, name: &str| SeriesAnnotation::StartTimestampsOverlap(n).of_metric(name);
    let text = |name: &str| {
        format!(
            "PromQL warning: sample has start time that overlaps with previous sample timestamp for metric \"{name}\""
        )
    };
    let annotations = annotate(
        "rate(x[5m])",
        &[
            (annotation(1, "x"), 5),
            (annotation(2, "x"), 0),
            (annotation(1, "y"), 0),
        ],
    );
    let expect = [text("y") + " (1:1)", text("x") + " (3 occurrences) (1:6)"];
    assert_eq!(annotations.warnings().collect::<Vec<_>>(), expect);
}

#[test]
fn annotations_beyond_ten_are_counted() {
    let list: Vec<_> = (2..14)
        .map(|q| (Annotation::InvalidQuantile(f64::from(q)), 0))
        .collect();
    let warnings: Vec<_> = annotate("x", &list).warnings().collect();
    assert_eq!(warnings.len(), 11);
    assert_eq!(
        warnings[0],
        "PromQL warning: quantile value should be between 0 and 1, got 10 (1:1)"
    );
    assert_eq!(warnings[10], "2 more warning annotations omitted");
}

#[test]
fn annotations_beyond_the_kept_size_are_counted_once() {
    const N: usize = 10_000;
    let name = |i: usize| Annotation::PossibleNonCounter(format!("metric_{i}"));
    let (mut list, mut annotations) = (AnnotationList::default(), Annotations::new("x"));
    (0..N)
        .chain(0..N)
        .for_each(|i| list.add(name(i), Span::default(), Occurrence::Unknown));
    (0..N).for_each(|i| annotations.add(name(i), Span::default(), Occurrence::Unknown));
    list.add_to(&mut annotations);
    assert!(annotations.list.size <= KEPT_SIZE_MAX && annotations.list.entries.len() < N);
    let omitted = format!("{} more info annotations omitted", N - ANNOTATIONS_MAX);
    assert_eq!(annotations.infos().last(), Some(omitted));
    (0..2 * OMITTED_MAX)
        .for_each(|i| annotations.add(name(i), Span::default(), Occurrence::Unknown));
    assert_eq!(
        annotations.list.omitted[Severity::Info as usize].len(),
        OMITTED_MAX
    );
}

fn raised(time_ms: i64, bound: f64) -> RaisedExtent {
    RaisedExtent {
        times_ms: (time_ms, time_ms),
        bounds: (bound, bound),
        difference_max: bound,
        n_histograms: 1,
    }
}

#[test]
fn forced_monotonicity_reports_the_extent_of_all_fixes() {
    let forced = |time_ms, bound| {
        Annotation::ForcedMonotonicity(ForcedMonotonicity {
            metric_name: String::new(),
            extent: raised(time_ms, bound),
        })
    };
    let infos: Vec<_> = annotate("x", &[(forced(60_000, 5.0), 0), (forced(0, 1234.5), 0)])
        .infos()
        .collect();
    let details = ", from buckets 5 to 1234.5, with a max diff of 1.2e+03, over 2 samples from \
                   1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z (1:1)";
    assert!(infos[0].ends_with(details), "{}", infos[0]);
}

/// Adds an annotation about a metric at a position.
fn add(annotations: &mut Annotations, name: &str, start: usize, occurrence: Occurrence) {
    let annotation = Annotation::PossibleNonCounter(name.into());
    annotations.add(annotation, Span { start, end: start }, occurrence);
}

/// Returns the names and columns of the metrics in the infos.
fn names(annotations: &Annotations) -> Vec<String> {
    let mut names = Vec::new();
    for info in annotations.infos() {
        let (_, name) = info.rsplit_once(": ").unwrap();
        names.push(name.to_owned());
    }
    names
}

#[test]
fn annotations_of_a_range_of_steps_are_those_at_its_steps() {
    let mut annotations = Annotations::new("x + x");
    for step in [0, 1, 5] {
        add(&mut annotations, "a", 4, Occurrence::at(step));
    }
    add(&mut annotations, "b", 0, Occurrence::at(2));
    assert!(annotations.have_steps());
    for (range, expect) in [
        (0..6, &["\"b\" (1:1)", "\"a\" (1:5)"][..]),
        (0..2, &["\"a\" (1:5)"]),
        (2..5, &["\"b\" (1:1)"]),
        (3..5, &[]),
        (3..6, &["\"a\" (1:5)"]),
    ] {
        let cut = annotations.cut(&range);
        assert_eq!(names(&cut), expect, "{range:?}");
        // The steps of the range are counted from its start.
        assert_eq!(names(&cut.cut(&(0..range.len()))), expect, "{range:?}");
    }
    add(&mut annotations, "c", 0, Occurrence::Unknown);
    assert!(!annotations.have_steps());
    assert_eq!(names(&annotations.cut(&(3..5))), ["\"c\" (1:1)"]);
}

#[test]
fn extents_of_raised_buckets_are_joined_and_cut() {
    let forced = |steps: std::ops::Range<usize>| {
        let mut annotations = Annotations::new("x");
        for bound in [1.0, 2.0] {
            let mut extents = Vec::new();
            for step in steps.clone().step_by(bound as usize) {
                extents.push((step - steps.start, raised(step as i64 * 60_000, bound)));
            }
            let forced = ForcedMonotonicity {
                metric_name: String::new(),
                extent: RaisedExtent::of_all(&extents).unwrap(),
            };
            let occurrence = Occurrence::Raised(extents);
            let annotation = Annotation::ForcedMonotonicity(forced);
            annotations.add(annotation, Span::default(), occurrence);
        }
        annotations
    };
    let infos = |annotations: &Annotations| annotations.infos().collect::<Vec<_>>();
    let all = forced(0..20);
    assert!(infos(&all)[0].contains("from buckets 1 to 2, with a max diff of 2, over 30 samples"));
    assert_eq!(infos(&all.cut(&(4..9))), infos(&forced(4..9)));
    assert!(infos(&all.cut(&(20..25))).is_empty());
    let joined = Annotations::join(&all.cut(&(2..10)), 8, &forced(10..14)).unwrap();
    assert_eq!(infos(&joined), infos(&forced(2..14)));
    assert_eq!(infos(&joined.cut(&(6..12))), infos(&forced(8..14)));
    // In a subquery, steps share evaluations.
    let mut inner = Annotations::new("x");
    inner.set_at_query_steps(false);
    for entry in all.added_since(0) {
        inner.add_entry(entry.clone());
    }
    assert_eq!(infos(&inner), infos(&all));
    assert!(!inner.are_divisible() && Annotations::join(&inner, 20, &all).is_none());
}

#[test]
fn annotations_are_joined_unless_an_evaluation_of_all_steps_may_have_others() {
    let of = |list: &[(&str, usize, Option<usize>)]| {
        let mut annotations = Annotations::new("x + x");
        for &(name, start, step) in list {
            let occurrence = step.map_or(Occurrence::Unknown, Occurrence::at);
            add(&mut annotations, name, start, occurrence);
        }
        annotations
    };
    let at = |name, start| (name, start, Some(0));
    let unknown = |name, start| (name, start, None);
    for (first, later, expect) in [
        (&[][..], &[][..], Some(&[][..])),
        (
            &[at("a", 4)],
            &[at("b", 0)],
            Some(&["\"b\" (1:1)", "\"a\" (1:5)"]),
        ),
        // The last position counts.
        (
            &[at("a", 0), at("a", 4)],
            &[at("a", 0)],
            Some(&["\"a\" (1:5)"]),
        ),
        (
            &[at("a", 0)],
            &[at("a", 4), at("a", 0)],
            Some(&["\"a\" (1:1)"]),
        ),
        (&[at("a", 0)], &[at("a", 4)], None),
        (&[unknown("a", 0)], &[], None),
        (&[unknown("a", 0)], &[at("a", 4)], None),
        (
            &[unknown("a", 0)],
            &[unknown("a", 0)],
            Some(&["\"a\" (1:1)"]),
        ),
        (&[], &[unknown("a", 0)], Some(&["\"a\" (1:1)"])),
    ] {
        let joined = Annotations::join(&of(first), 1, &of(later));
        let found = joined.as_ref().map(names);
        let found: Option<Vec<_>> = found
            .as_ref()
            .map(|names| names.iter().map(String::as_str).collect());
        assert_eq!(found.as_deref(), expect, "{first:?} {later:?}");
    }
    let mut collision = of(&[]);
    let annotation = Annotation::CounterResetCollision(HistogramOperation::Addition);
    collision.add(annotation, Span::default(), Occurrence::at(0));
    assert!(Annotations::join(&collision, 1, &of(&[])).is_none());
}

#[test]
fn annotations_beyond_a_size_are_not_joined() {
    // The steps of occurrences that exceed their size are unknown.
    let mut annotations = Annotations::new("x");
    for i in 0..100 {
        add(&mut annotations, &i.to_string(), 0, Occurrence::at(40_000));
    }
    assert!(!annotations.have_steps() && annotations.are_divisible());
    assert!(annotations.list.occurrences_size <= OCCURRENCES_SIZE_MAX);
    assert!(annotations.list.occurrences_size > OCCURRENCES_SIZE_MAX / 2);
    // Positions that exceed the size of the list move the last one.
    let mut annotations = Annotations::new("x + x");
    for i in 0..10_000 {
        add(&mut annotations, "a", i, Occurrence::at(0));
    }
    assert!(annotations.list.size <= KEPT_SIZE_MAX && !annotations.are_divisible());
    assert!(annotations.list.entries.len() < 10_000);
    assert_eq!(names(&annotations), ["\"a\" (1:6)"]);
    let mut first = Annotations::new("x");
    let mut later = Annotations::new("x");
    for i in 0..300 {
        add(&mut first, &format!("a{i}"), 0, Occurrence::at(0));
        add(&mut later, &format!("b{i}"), 0, Occurrence::at(0));
    }
    assert!(first.are_divisible() && later.are_divisible());
    assert!(Annotations::join(&first, 1, &later).is_none());
}
