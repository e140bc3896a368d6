//! Annotations: warnings and infos about the result of a query.
//!
//! The messages are those of Prometheus (`util/annotations`), including the position of the
//! expression in the query.
//!
//! Invariants
//! 1. No two annotations of a query have the same text. For equal annotations, the last position is
//!    reported. Exception: overlapping start timestamps are counted, and reported at the first
//!    position.
//! 2. Annotations are in the order in which they were first added.

use std::fmt;

use hashbrown::{HashSet, HashTable};
use varve_promql::Position;
use varve_promql::ast::Span;
use varve_promql::decimal::{self, General};
use varve_promql::quote::quoted;
use xxhash_rust::xxh3::xxh3_64;

use crate::histogram::{Combined, NanEffect};

/// Maximum number of annotations per severity in an HTTP response. A further line reports how many
/// are omitted.
pub const ANNOTATIONS_MAX: usize = 10;

/// Maximum size in bytes of the annotations that a list keeps. Further annotations are only
/// counted.
const KEPT_SIZE_MAX: usize = 256 << 10;

/// Maximum number of annotations per severity that a list counts without keeping them.
const OMITTED_MAX: usize = 1 << 14;

/// The annotations of a query.
#[derive(Debug, Clone, Default)]
pub struct Annotations {
    query: Box<str>,
    /// Each text once.
    list: AnnotationList,
    /// All added annotations, each text once per position; `None` if recording is off.
    record: Option<AnnotationList>,
}

/// Distinct annotations with the positions of their expressions. Its size is bounded.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnnotationList {
    entries: Vec<Entry>,
    /// Indexes of entries, by hash.
    index: HashTable<usize>,
    /// Size of the entries in bytes.
    size: usize,
    /// Hashes of annotations that exceeded [`KEPT_SIZE_MAX`], by severity.
    omitted: [HashSet<u64>; 2],
}

/// The severity of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Warning,
    Info,
}

#[derive(Debug, Clone)]
struct Entry {
    annotation: Annotation,
    /// The message without details. Two annotations are equal if their messages are.
    text: String,
    /// The hash of `text`.
    hash: u64,
    /// Position of the annotated expression.
    span: Span,
}

/// An annotation that an evaluation adds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Annotation {
    /// A quantile is not in [0, 1].
    InvalidQuantile(f64),
    /// The strategy of `integral` is not 0, 1 or 2.
    InvalidIntegralStrategy(f64),
    /// A ratio is not in [-1, 1] and was clamped.
    InvalidRatio(f64, f64),
    /// A bucket series has no valid `le`.
    BadBucketLabel { metric_name: String, label: String },
    /// A rate of a metric whose name is not that of a counter.
    PossibleNonCounter(String),
    /// A rate of a metric whose label `__type__` is not a counter type.
    PossibleNonCounterLabel {
        metric_name: String,
        type_label: String,
    },
    /// `sort` in a range query.
    SortInRangeQuery,
    /// The operator does not support operands of these types.
    IncompatibleTypes {
        lhs: &'static str,
        op: &'static str,
        rhs: &'static str,
    },
    /// Cumulative bucket counts decreased and were raised.
    ForcedMonotonicity(ForcedMonotonicity),
    /// An annotation about the series of a metric.
    OfMetric {
        metric_name: String,
        annotation: SeriesAnnotation,
    },
    /// An aggregation of floats and histograms.
    MixedAggregation,
    /// Classic and native histograms of the same name and labels.
    ClassicAndNative(String),
    /// Two histograms with incompatible bucket layouts.
    IncompatibleBuckets(&'static str),
    /// An aggregation that ignores histograms.
    HistogramIgnored(&'static str),
    /// A histogram of this metric has NaN observations.
    NanObservations {
        metric_name: String,
        effect: NanEffect,
    },
    /// Conflicting counter reset hints.
    CounterResetCollision(HistogramOperation),
    /// Histograms with different custom bounds were reduced to their common bounds.
    CustomBoundsReconciled(HistogramOperation),
}

/// An annotation that a kernel adds about the samples of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesAnnotation {
    /// Both floats and histograms, for a function that supports only one of them at a time.
    MixedFloatsHistograms,
    /// A gauge histogram, for a function of counters.
    NotCounter,
    /// A counter histogram, for a function of gauges.
    NotGauge,
    /// Exponential and custom buckets.
    MixedSchemas,
    /// A start timestamp is before the previous sample and differs from that sample's start
    /// timestamp. Holds the number of affected windows.
    StartTimestampsOverlap(u64),
    /// A function that supports only floats ignored histograms.
    HistogramsIgnored,
    /// See [`Annotation::CounterResetCollision`].
    CounterResetCollision(HistogramOperation),
    /// See [`Annotation::CustomBoundsReconciled`].
    CustomBoundsReconciled(HistogramOperation),
}

impl SeriesAnnotation {
    /// Returns this annotation with the metric name of the series.
    pub(crate) fn of_metric(self, metric_name: &str) -> Annotation {
        match self {
            Self::CounterResetCollision(operation) => Annotation::CounterResetCollision(operation),
            Self::CustomBoundsReconciled(operation) => {
                Annotation::CustomBoundsReconciled(operation)
            }
            annotation => Annotation::OfMetric {
                metric_name: metric_name.to_owned(),
                annotation,
            },
        }
    }
}

/// An operation on histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramOperation {
    Addition,
    Subtraction,
    Aggregation,
}

impl fmt::Display for HistogramOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Addition => "addition",
            Self::Subtraction => "subtraction",
            Self::Aggregation => "aggregation",
        })
    }
}

/// Extent of the counts that were raised to make buckets monotonic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForcedMonotonicity {
    /// The metric name; empty if it is unknown.
    pub(crate) metric_name: String,
    /// First and last affected time, in milliseconds.
    pub(crate) times_ms: (i64, i64),
    /// Smallest and greatest bound of the raised buckets.
    pub(crate) bounds: (f64, f64),
    /// Maximum increase of a bucket count.
    pub(crate) difference_max: f64,
    /// Number of histograms that were fixed.
    pub(crate) n_histograms: u64,
}

impl Annotations {
    pub(crate) fn new(query: &str) -> Self {
        Self {
            query: query.into(),
            ..Self::default()
        }
    }

    /// Records every annotation that is added from now on.
    pub(crate) fn record(&mut self) {
        self.record.get_or_insert_default();
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        let lists = [Some(&self.list), self.record.as_ref()]
            .into_iter()
            .flatten();
        self.query.len() + lists.map(|list| list.size).sum::<usize>()
    }

    /// Returns the number of recorded annotations.
    pub(crate) fn n_recorded(&self) -> usize {
        self.record
            .as_ref()
            .map_or(0, |record| record.entries.len())
    }

    /// Returns the annotations recorded after the first `n`.
    pub(crate) fn recorded_since(&self, n: usize) -> impl Iterator<Item = (Annotation, Span)> + '_ {
        let recorded = self.record.iter().flat_map(|record| &record.entries);
        recorded
            .skip(n)
            .map(|entry| (entry.annotation.clone(), entry.span))
    }

    /// Adds an annotation about the expression at `span`.
    pub(crate) fn add(&mut self, annotation: Annotation, span: Span) {
        self.add_entry(Entry::new(annotation, span));
    }

    fn add_entry(&mut self, entry: Entry) {
        if let Some(record) = &mut self.record {
            record.add_entry(entry.clone(), true);
        }
        self.list.add_entry(entry, false);
    }

    /// Returns `true` if there are no annotations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.entries.is_empty()
    }

    /// Returns `true` if steps with these annotations may be joined to others with the same
    /// annotations: there is none, or only the info that a metric might not be a counter.
    pub(crate) fn allow_joins(&self) -> bool {
        let AnnotationList {
            entries, omitted, ..
        } = &self.list;
        let is_allowed =
            |entry: &Entry| matches!(entry.annotation, Annotation::PossibleNonCounter(_));
        entries.len() <= 1
            && entries.iter().all(is_allowed)
            && omitted.iter().all(HashSet::is_empty)
    }

    /// Returns `true` if the annotations, their order and their positions are the same. Details may
    /// differ.
    pub(crate) fn are_equal(&self, other: &Self) -> bool {
        let (own, others) = (&self.list.entries, &other.list.entries);
        let is_equal = |(a, b): (&Entry, &Entry)| a.text == b.text && a.span == b.span;
        own.len() == others.len() && own.iter().zip(others).all(is_equal)
    }

    /// Returns the warnings in the format of the HTTP API: `PromQL warning: ... (1:5)`. Returns at
    /// most [`ANNOTATIONS_MAX`] warnings and a line with the number of omitted ones.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Warning, "warning")
    }

    /// Returns the infos; format and limit are those of [`Annotations::warnings`].
    pub fn infos(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Info, "info")
    }

    /// Returns all warnings and infos that the list keeps.
    pub fn all(&self) -> impl Iterator<Item = String> + '_ {
        self.list.entries.iter().map(|entry| self.print(entry))
    }

    fn limited<'a>(
        &'a self,
        severity: Severity,
        name: &'a str,
    ) -> impl Iterator<Item = String> + 'a {
        let of_severity = move || {
            self.list
                .entries
                .iter()
                .filter(move |entry| entry.annotation.severity() == severity)
        };
        let n_counted = self.list.omitted[severity as usize].len();
        let omitted = (of_severity().count() + n_counted).saturating_sub(ANNOTATIONS_MAX);
        let rest = (omitted > 0).then(|| format!("{omitted} more {name} annotations omitted"));
        of_severity()
            .take(ANNOTATIONS_MAX)
            .map(|entry| self.print(entry))
            .chain(rest)
    }

    fn print(&self, entry: &Entry) -> String {
        let Entry {
            annotation,
            text,
            span,
            ..
        } = entry;
        let position = Position::of(&self.query, span.start.min(self.query.len()));
        format!("{text}{} ({position})", annotation.details())
    }
}

impl Entry {
    fn new(annotation: Annotation, span: Span) -> Self {
        let text = annotation.text();
        Self {
            annotation,
            hash: xxh3_64(text.as_bytes()),
            text,
            span,
        }
    }

    /// Returns an upper bound of the size in bytes.
    fn size(&self) -> usize {
        2 * size_of::<Self>() + 2 * self.text.len()
    }
}

impl AnnotationList {
    /// Adds an annotation, or merges it into an equal one at the same position.
    pub(crate) fn add(&mut self, annotation: Annotation, span: Span) {
        self.add_entry(Entry::new(annotation, span), true);
    }

    /// Adds an annotation, or merges it into an equal one. Annotations at different positions are
    /// different if `by_span`. Otherwise the last position is kept, except for annotations with
    /// details.
    fn add_entry(&mut self, entry: Entry, by_span: bool) {
        let Self { entries, index, .. } = self;
        let is_known = |&at: &usize| {
            entries[at].text == entry.text && (!by_span || entries[at].span == entry.span)
        };
        if let Some(&at) = index.find(entry.hash, is_known) {
            let known = &mut entries[at];
            if !entry.annotation.has_details() {
                known.span = entry.span;
            }
            known.annotation.merge(entry.annotation);
        } else if self.size + entry.size() > KEPT_SIZE_MAX {
            self.omit(entry.annotation.severity() as usize, entry.hash);
        } else {
            self.size += entry.size();
            index.insert_unique(entry.hash, entries.len(), |&at| entries[at].hash);
            entries.push(entry);
        }
    }

    /// Counts an annotation without keeping it.
    fn omit(&mut self, severity: usize, hash: u64) {
        let omitted = &mut self.omitted[severity];
        if omitted.len() < OMITTED_MAX
            && self
                .index
                .find(hash, |&at| self.entries[at].hash == hash)
                .is_none()
        {
            omitted.insert(hash);
        }
    }

    fn omit_all(&mut self, omitted: [HashSet<u64>; 2]) {
        for (severity, hashes) in omitted.into_iter().enumerate() {
            hashes
                .into_iter()
                .for_each(|hash| self.omit(severity, hash));
        }
    }

    /// Adds all annotations of another list.
    pub(crate) fn merge(&mut self, other: Self) {
        other
            .entries
            .into_iter()
            .for_each(|entry| self.add_entry(entry, true));
        self.omit_all(other.omitted);
    }

    /// Returns the annotations with their positions.
    pub(crate) fn into_list(self) -> Vec<(Annotation, Span)> {
        self.entries
            .into_iter()
            .map(|entry| (entry.annotation, entry.span))
            .collect()
    }

    /// Adds all annotations of this list to the annotations of the query.
    pub(crate) fn add_to(self, annotations: &mut Annotations) {
        self.entries
            .into_iter()
            .for_each(|entry| annotations.add_entry(entry));
        annotations.list.omit_all(self.omitted);
    }
}

/// Distinct annotations that kernels add about one series. Overlapping start timestamps count their
/// windows.
#[derive(Debug, Default)]
pub(crate) struct SeriesAnnotations {
    pub(crate) list: Vec<SeriesAnnotation>,
}

impl SeriesAnnotations {
    pub(crate) fn add(&mut self, annotation: SeriesAnnotation) {
        let known = self.list.iter_mut().find_map(|known| match known {
            SeriesAnnotation::StartTimestampsOverlap(n) => Some(n),
            _ => None,
        });
        if let (SeriesAnnotation::StartTimestampsOverlap(more), Some(n)) = (annotation, known) {
            *n += more;
            return;
        }
        if !self.list.contains(&annotation) {
            self.list.push(annotation);
        }
    }

    /// Adds all annotations of another list.
    pub(crate) fn extend(&mut self, other: Self) {
        other
            .list
            .into_iter()
            .for_each(|annotation| self.add(annotation));
    }

    /// Adds the annotation about reconciled bounds if `combined` reports it. Ignores counter reset
    /// collisions.
    pub(crate) fn add_combined(&mut self, combined: Combined, operation: HistogramOperation) {
        if combined.custom_bounds_reconciled {
            self.add(SeriesAnnotation::CustomBoundsReconciled(operation));
        }
    }
}

impl Annotation {
    fn severity(&self) -> Severity {
        match self {
            Self::PossibleNonCounter(_)
            | Self::PossibleNonCounterLabel { .. }
            | Self::IncompatibleTypes { .. }
            | Self::ForcedMonotonicity(_)
            | Self::OfMetric {
                annotation: SeriesAnnotation::HistogramsIgnored,
                ..
            }
            | Self::HistogramIgnored(_)
            | Self::NanObservations { .. }
            | Self::CustomBoundsReconciled(_) => Severity::Info,
            _ => Severity::Warning,
        }
    }

    fn text(&self) -> String {
        let severity = match self.severity() {
            Severity::Warning => "PromQL warning",
            Severity::Info => "PromQL info",
        };
        format!("{severity}: {self}")
    }

    /// Returns `true` if the annotation has details that a merge adds up. As in Prometheus, its
    /// first position counts.
    fn has_details(&self) -> bool {
        matches!(
            self,
            Self::ForcedMonotonicity(_)
                | Self::OfMetric {
                    annotation: SeriesAnnotation::StartTimestampsOverlap(_),
                    ..
                }
        )
    }

    /// Returns the details. The text omits them, so that annotations that differ only in details
    /// are equal.
    fn details(&self) -> String {
        if let Self::OfMetric {
            annotation: SeriesAnnotation::StartTimestampsOverlap(n @ 2..),
            ..
        } = self
        {
            return format!(" ({n} occurrences)");
        }
        let Self::ForcedMonotonicity(forced) = self else {
            return String::new();
        };
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            General(forced.bounds.0),
            General(forced.bounds.1),
            decimal::two_digits(forced.difference_max),
            forced.n_histograms,
            print_time(forced.times_ms.0),
            print_time(forced.times_ms.1),
        )
    }

    /// Merges the details of an annotation with the same text.
    fn merge(&mut self, other: Self) {
        if let Self::OfMetric {
            annotation: SeriesAnnotation::StartTimestampsOverlap(n),
            ..
        } = self
            && let Self::OfMetric {
                annotation: SeriesAnnotation::StartTimestampsOverlap(more),
                ..
            } = other
        {
            *n += more;
            return;
        }
        let (Self::ForcedMonotonicity(a), Self::ForcedMonotonicity(b)) = (self, other) else {
            return;
        };
        a.times_ms = (
            a.times_ms.0.min(b.times_ms.0),
            a.times_ms.1.max(b.times_ms.1),
        );
        a.bounds = (a.bounds.0.min(b.bounds.0), a.bounds.1.max(b.bounds.1));
        a.difference_max = a.difference_max.max(b.difference_max);
        a.n_histograms += b.n_histograms;
    }
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidQuantile(q) => {
                write!(
                    f,
                    "quantile value should be between 0 and 1, got {}",
                    General(*q)
                )
            }
            Self::InvalidIntegralStrategy(strategy) => {
                write!(
                    f,
                    "strategy should be 0, 1, or 2 (default), using 2, got {}",
                    General(*strategy)
                )
            }
            Self::InvalidRatio(ratio, to) => {
                let (ratio, to) = (General(*ratio), General(*to));
                write!(
                    f,
                    "ratio value should be between -1 and 1, got {ratio}, capping to {to}"
                )
            }
            Self::BadBucketLabel { metric_name, label } => {
                write!(
                    f,
                    "bucket label \"le\" is missing or has a malformed value of {}",
                    quoted(label)
                )?;
                write_metric_name(f, metric_name)
            }
            Self::PossibleNonCounter(name) => {
                let suffixes = "_total/_sum/_count/_bucket";
                write!(
                    f,
                    "metric might not be a counter, name does not end in {suffixes}: {}",
                    quoted(name)
                )
            }
            Self::PossibleNonCounterLabel {
                metric_name,
                type_label,
            } => {
                let types = "\"counter\" or \"histogram\"";
                write!(
                    f,
                    "metric might not be a counter, __type__ label is not set to {types}"
                )?;
                write!(f, ", got {}: {}", quoted(type_label), quoted(metric_name))
            }
            Self::SortInRangeQuery => f.write_str(
                "sort is ineffective for range queries since results are always ordered by labels",
            ),
            Self::IncompatibleTypes { lhs, op, rhs } => {
                let types = format!("{lhs} {op} {rhs}");
                write!(
                    f,
                    "incompatible sample types encountered for binary operator {}: {types}",
                    quoted(op)
                )
            }
            Self::ForcedMonotonicity(forced) => {
                let page = "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile";
                write!(
                    f,
                    "input to histogram_quantile needed to be fixed for monotonicity (see {page})"
                )?;
                write_metric_name(f, &forced.metric_name)
            }
            Self::OfMetric {
                metric_name,
                annotation,
            } => write!(f, "{} {}", annotation.text(), quoted(metric_name)),
            Self::MixedAggregation => {
                f.write_str("encountered a mix of histograms and floats for aggregation")
            }
            Self::ClassicAndNative(metric_name) => {
                f.write_str("vector contains a mix of classic and native histograms")?;
                write_metric_name(f, metric_name)
            }
            Self::IncompatibleBuckets(op) => {
                write!(
                    f,
                    "incompatible bucket layout encountered for binary operator {op}"
                )
            }
            Self::HistogramIgnored(aggregation) => {
                write!(f, "ignored histogram in {aggregation} aggregation")
            }
            Self::NanObservations {
                metric_name,
                effect,
            } => {
                f.write_str(match effect {
                    NanEffect::Result => "input to histogram_quantile has NaN observations, result is NaN",
                    NanEffect::Skew => "input to histogram_quantile has NaN observations, result is skewed higher",
                    NanEffect::Excluded => {
                        "input to histogram_fraction has NaN observations, which are excluded from all fractions"
                    }
                })?;
                write_metric_name(f, metric_name)
            }
            Self::CounterResetCollision(operation) => {
                write!(f, "conflicting counter resets during histogram {operation}")
            }
            Self::CustomBoundsReconciled(operation) => {
                write!(
                    f,
                    "mismatched custom buckets were reconciled during {operation}"
                )
            }
        }
    }
}

impl SeriesAnnotation {
    /// Returns the text before the metric name.
    fn text(self) -> &'static str {
        match self {
            Self::MixedFloatsHistograms => {
                "encountered a mix of histograms and floats for metric name"
            }
            Self::NotCounter => "this native histogram metric is not a counter:",
            Self::NotGauge => "this native histogram metric is not a gauge:",
            Self::MixedSchemas => {
                "vector contains a mix of histograms with exponential and custom buckets schemas for metric name"
            }
            Self::StartTimestampsOverlap(_) => {
                "sample has start time that overlaps with previous sample timestamp for metric"
            }
            Self::HistogramsIgnored => {
                "ignored histograms in a range containing both floats and histograms for metric name"
            }
            Self::CounterResetCollision(_) | Self::CustomBoundsReconciled(_) => "",
        }
    }
}

fn write_metric_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if name.is_empty() {
        Ok(())
    } else {
        write!(f, " for metric name {}", quoted(name))
    }
}

/// Formats a time as `2006-01-02T15:04:05Z`; milliseconds are truncated.
fn print_time(time_ms: i64) -> String {
    let civil = crate::date::Civil::of_seconds(time_ms / 1000);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
    )
}

#[cfg(test)]
mod tests {
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
        let annotation =
            |n, name: &str| SeriesAnnotation::StartTimestampsOverlap(n).of_metric(name);
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
}
