use varve_promql::ast::Span;

use super::annotation::Severity;
use super::list::{KEPT_SIZE_MAX, OMITTED_MAX};
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
    let expect = [text("x") + " (3 occurrences) (1:6)", text("y") + " (1:1)"];
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
        "PromQL warning: quantile value should be between 0 and 1, got 2 (1:1)"
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
        .for_each(|i| list.add(name(i), Span::default()));
    (0..N).for_each(|i| annotations.add(name(i), Span::default()));
    list.add_to(&mut annotations);
    assert!(annotations.list.size <= KEPT_SIZE_MAX && annotations.list.entries.len() < N);
    let omitted = format!("{} more info annotations omitted", N - ANNOTATIONS_MAX);
    assert_eq!(annotations.infos().last(), Some(omitted));
    (0..2 * OMITTED_MAX).for_each(|i| annotations.add(name(i), Span::default()));
    assert_eq!(
        annotations.list.omitted[Severity::Info as usize].len(),
        OMITTED_MAX
    );
}

#[test]
fn forced_monotonicity_reports_the_extent_of_all_fixes() {
    let forced = |time_ms, bound| {
        Annotation::ForcedMonotonicity(ForcedMonotonicity {
            metric_name: String::new(),
            times_ms: (time_ms, time_ms),
            bounds: (bound, bound),
            difference_max: bound,
            n_histograms: 1,
        })
    };
    let infos: Vec<_> = annotate("x", &[(forced(60_000, 5.0), 0), (forced(0, 1234.5), 0)])
        .infos()
        .collect();
    let details = ", from buckets 5 to 1234.5, with a max diff of 1.2e+03, over 2 samples from \
                   1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z (1:1)";
    assert!(infos[0].ends_with(details), "{}", infos[0]);
}
