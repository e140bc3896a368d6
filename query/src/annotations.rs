//! Annotations: what a query says about its answer, as warnings and infos.
//!
//! The texts are Prometheus' (`util/annotations`), the place in the query behind them included.
//!
//! Invariants
//! 1. No two annotations of a query have the same text; where one comes again, the place of the last stands, but for
//!    start timestamps that overlap, which are counted at the place of the first.
//! 2. Annotations come in the order in which they were first made.

use std::fmt;

use crate::histogram::NanNote;
use crate::promql::Place;
use crate::promql::ast::Span;
use crate::promql::number;
use crate::promql::quote::quoted;

/// Annotations of one kind that the HTTP API gives at most; a line that counts the rest follows.
pub const ANNOTATIONS_MAX: usize = 10;

/// What a query says about its answer.
#[derive(Debug, Clone, Default)]
pub struct Annotations {
    query: Box<str>,
    list: Vec<Annotation>,
    /// What was added, each text once for each place, if that is recorded.
    record: Option<Vec<Annotation>>,
}

/// How severe an annotation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Warning,
    Info,
}

#[derive(Debug, Clone)]
struct Annotation {
    note: Note,
    /// The text without details; annotations are equal if their texts are.
    text: String,
    /// Where the expression that it is about begins.
    span: Span,
}

/// The annotations that an evaluation can make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Note {
    /// A quantile is not in [0, 1].
    InvalidQuantile(f64),
    /// A ratio is not in [-1, 1] and was replaced.
    InvalidRatio(f64, f64),
    /// A series that should be a bucket has no bound.
    BadBucketLabel { metric_name: String, label: String },
    /// A rate of something that does not look like a counter, going by its name.
    PossibleNonCounter(String),
    /// A rate of something that is no counter, going by its label `__type__`.
    PossibleNonCounterLabel { metric_name: String, type_label: String },
    /// `sort` in a range query.
    SortInRangeQuery,
    /// Operands that the operator does not take.
    IncompatibleTypes { lhs: &'static str, op: &'static str, rhs: &'static str },
    /// Counts of buckets that decreased with their bounds.
    ForcedMonotonicity(ForcedMonotonicity),
    /// Something about a series that has native histograms.
    OfSeries { metric_name: String, remark: Remark },
    /// An aggregation of numbers and histograms.
    MixedAggregation,
    /// Classic and native histograms of the same name and labels.
    ClassicAndNative(String),
    /// Two histograms whose buckets cannot be brought together.
    IncompatibleBuckets(&'static str),
    /// An aggregation that passes over histograms.
    HistogramIgnored(&'static str),
    /// Observations of NaN in a histogram of this name.
    NanObservations { metric_name: String, note: NanNote },
    /// Hints of resets that contradict each other.
    ResetsCollide(HistogramOperation),
    /// Different bounds were reduced to those that are common.
    BoundsReconciled(HistogramOperation),
}

/// What kernels say about the histograms of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remark {
    /// Both numbers and histograms, for a function that takes only one of them at a time.
    Mixed,
    /// A function of counters got gauges.
    NotCounter,
    /// A function of gauges got counters.
    NotGauge,
    /// Exponential buckets and buckets with bounds of their own.
    MixedSchemas,
    /// A start timestamp before the sample before, and not that of it; in so many windows.
    StartsOverlap(u64),
    /// A function of numbers passed over the histograms among them.
    Ignored,
    /// See [`Note::ResetsCollide`].
    ResetsCollide(HistogramOperation),
    /// See [`Note::BoundsReconciled`].
    BoundsReconciled(HistogramOperation),
}

impl Remark {
    /// Returns the annotation about a series of a name.
    pub(crate) fn about(self, metric_name: &str) -> Note {
        match self {
            Self::ResetsCollide(operation) => Note::ResetsCollide(operation),
            Self::BoundsReconciled(operation) => Note::BoundsReconciled(operation),
            remark => Note::OfSeries { metric_name: metric_name.to_owned(), remark },
        }
    }
}

/// What was done with histograms.
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

/// Which buckets had to be raised.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForcedMonotonicity {
    /// The name, if it is known.
    pub(crate) metric_name: String,
    /// First and last time, in milliseconds.
    pub(crate) times_ms: (i64, i64),
    /// Smallest and greatest bound of a raised bucket.
    pub(crate) bounds: (f64, f64),
    /// The most that was added to a bucket.
    pub(crate) difference_max: f64,
    /// How many histograms were mended.
    pub(crate) n_histograms: u64,
}

impl Annotations {
    pub(crate) fn new(query: &str) -> Self {
        Self { query: query.into(), list: Vec::new(), record: None }
    }

    /// Begins to record what is added.
    pub(crate) fn record(&mut self) {
        self.record.get_or_insert_default();
    }

    /// Returns how much was recorded so far.
    pub(crate) fn n_recorded(&self) -> usize {
        self.record.as_ref().map_or(0, Vec::len)
    }

    /// Returns what was recorded since it was so much.
    pub(crate) fn recorded_since(&self, n: usize) -> impl Iterator<Item = (Note, Span)> + '_ {
        self.record.iter().flatten().skip(n).map(|annotation| (annotation.note.clone(), annotation.span))
    }

    /// Adds an annotation about the expression at `span`.
    pub(crate) fn add(&mut self, note: Note, span: Span) {
        let text = note.text();
        if let Some(record) = &mut self.record {
            match record.iter_mut().find(|known| known.span == span && known.text == text) {
                Some(known) => known.note.absorb(note.clone()),
                None => record.push(Annotation { note: note.clone(), text: text.clone(), span }),
            }
        }
        match self.list.iter_mut().find(|known| known.text == text) {
            Some(known) => {
                if !note.is_counted() {
                    known.span = span;
                }
                known.note.absorb(note);
            }
            None => self.list.push(Annotation { note, text, span }),
        }
    }

    /// Tells whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the warnings as the HTTP API gives them: `PromQL warning: ... (1:5)`, at most [`ANNOTATIONS_MAX`] and a
    /// last one that counts the others.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Warning, "warning")
    }

    /// Returns the infos, in the same way.
    pub fn infos(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Info, "info")
    }

    /// Returns all warnings and infos, without a limit.
    pub fn all(&self) -> impl Iterator<Item = String> + '_ {
        self.list.iter().map(|annotation| self.print(annotation))
    }

    fn limited<'a>(&'a self, severity: Severity, name: &'a str) -> impl Iterator<Item = String> + 'a {
        let of_kind = move || self.list.iter().filter(move |a| a.note.severity() == severity);
        let omitted = of_kind().count().saturating_sub(ANNOTATIONS_MAX);
        let rest = (omitted > 0).then(|| format!("{omitted} more {name} annotations omitted"));
        of_kind().take(ANNOTATIONS_MAX).map(|annotation| self.print(annotation)).chain(rest)
    }

    fn print(&self, annotation: &Annotation) -> String {
        let Annotation { note, text, span } = annotation;
        let place = Place::of(&self.query, span.start.min(self.query.len()));
        format!("{text}{} ({place})", note.details())
    }
}

impl Note {
    /// Tells whether two notes say the same, however often; NaN is the same as NaN.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::InvalidQuantile(a), Self::InvalidQuantile(b)) => a.to_bits() == b.to_bits(),
            (Self::OfSeries { metric_name, .. }, Self::OfSeries { metric_name: other_name, .. })
                if self.is_counted() && other.is_counted() =>
            {
                metric_name == other_name
            }
            _ => self == other,
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::InvalidQuantile(_)
            | Self::InvalidRatio(..)
            | Self::BadBucketLabel { .. }
            | Self::SortInRangeQuery
            | Self::MixedAggregation
            | Self::ClassicAndNative(_)
            | Self::IncompatibleBuckets(_)
            | Self::ResetsCollide(_) => Severity::Warning,
            Self::OfSeries { remark, .. } if *remark != Remark::Ignored => Severity::Warning,
            Self::PossibleNonCounter(_)
            | Self::PossibleNonCounterLabel { .. }
            | Self::IncompatibleTypes { .. }
            | Self::ForcedMonotonicity(_)
            | Self::OfSeries { .. }
            | Self::HistogramIgnored(_)
            | Self::NanObservations { .. }
            | Self::BoundsReconciled(_) => Severity::Info,
        }
    }

    fn text(&self) -> String {
        let severity = match self.severity() {
            Severity::Warning => "PromQL warning",
            Severity::Info => "PromQL info",
        };
        format!("{severity}: {self}")
    }

    /// Tells whether it says how often it was made.
    fn is_counted(&self) -> bool {
        matches!(self, Self::OfSeries { remark: Remark::StartsOverlap(_), .. })
    }

    /// Returns what the text leaves out so that like annotations are counted as one.
    fn details(&self) -> String {
        if let Self::OfSeries { remark: Remark::StartsOverlap(n @ 2..), .. } = self {
            return format!(" ({n} occurrences)");
        }
        let Self::ForcedMonotonicity(forced) = self else { return String::new() };
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            number::short(forced.bounds.0),
            number::short(forced.bounds.1),
            number::two_digits(forced.difference_max),
            forced.n_histograms,
            print_time(forced.times_ms.0),
            print_time(forced.times_ms.1),
        )
    }

    /// Takes over the details of a note of the same text.
    pub(crate) fn absorb(&mut self, other: Self) {
        if let Self::OfSeries { remark: Remark::StartsOverlap(n), .. } = self
            && let Self::OfSeries { remark: Remark::StartsOverlap(more), .. } = other
        {
            *n += more;
            return;
        }
        let (Self::ForcedMonotonicity(a), Self::ForcedMonotonicity(b)) = (self, other) else { return };
        a.times_ms = (a.times_ms.0.min(b.times_ms.0), a.times_ms.1.max(b.times_ms.1));
        a.bounds = (a.bounds.0.min(b.bounds.0), a.bounds.1.max(b.bounds.1));
        a.difference_max = a.difference_max.max(b.difference_max);
        a.n_histograms += b.n_histograms;
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidQuantile(q) => {
                write!(f, "quantile value should be between 0 and 1, got {}", number::short(*q))
            }
            Self::InvalidRatio(ratio, to) => {
                let (ratio, to) = (number::short(*ratio), number::short(*to));
                write!(f, "ratio value should be between -1 and 1, got {ratio}, capping to {to}")
            }
            Self::BadBucketLabel { metric_name, label } => {
                write!(f, "bucket label \"le\" is missing or has a malformed value of {}", quoted(label))?;
                write_metric_name(f, metric_name)
            }
            Self::PossibleNonCounter(name) => {
                let suffixes = "_total/_sum/_count/_bucket";
                write!(f, "metric might not be a counter, name does not end in {suffixes}: {}", quoted(name))
            }
            Self::PossibleNonCounterLabel { metric_name, type_label } => {
                let types = "\"counter\" or \"histogram\"";
                write!(f, "metric might not be a counter, __type__ label is not set to {types}")?;
                write!(f, ", got {}: {}", quoted(type_label), quoted(metric_name))
            }
            Self::SortInRangeQuery => {
                f.write_str("sort is ineffective for range queries since results are always ordered by labels")
            }
            Self::IncompatibleTypes { lhs, op, rhs } => {
                let types = format!("{lhs} {op} {rhs}");
                write!(f, "incompatible sample types encountered for binary operator {}: {types}", quoted(op))
            }
            Self::ForcedMonotonicity(forced) => {
                let page = "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile";
                write!(f, "input to histogram_quantile needed to be fixed for monotonicity (see {page})")?;
                write_metric_name(f, &forced.metric_name)
            }
            Self::OfSeries { metric_name, remark } => write!(f, "{} {}", remark.text(), quoted(metric_name)),
            Self::MixedAggregation => f.write_str("encountered a mix of histograms and floats for aggregation"),
            Self::ClassicAndNative(metric_name) => {
                f.write_str("vector contains a mix of classic and native histograms")?;
                write_metric_name(f, metric_name)
            }
            Self::IncompatibleBuckets(op) => {
                write!(f, "incompatible bucket layout encountered for binary operator {op}")
            }
            Self::HistogramIgnored(aggregation) => write!(f, "ignored histogram in {aggregation} aggregation"),
            Self::NanObservations { metric_name, note } => {
                f.write_str(match note {
                    NanNote::Result => "input to histogram_quantile has NaN observations, result is NaN",
                    NanNote::Skew => "input to histogram_quantile has NaN observations, result is skewed higher",
                    NanNote::Excluded => {
                        "input to histogram_fraction has NaN observations, which are excluded from all fractions"
                    }
                })?;
                write_metric_name(f, metric_name)
            }
            Self::ResetsCollide(operation) => write!(f, "conflicting counter resets during histogram {operation}"),
            Self::BoundsReconciled(operation) => {
                write!(f, "mismatched custom buckets were reconciled during {operation}")
            }
        }
    }
}

impl Remark {
    /// Returns the text that the name of the metric follows.
    fn text(self) -> &'static str {
        match self {
            Self::Mixed => "encountered a mix of histograms and floats for metric name",
            Self::NotCounter => "this native histogram metric is not a counter:",
            Self::NotGauge => "this native histogram metric is not a gauge:",
            Self::MixedSchemas => {
                "vector contains a mix of histograms with exponential and custom buckets schemas for metric name"
            }
            Self::StartsOverlap(_) => "sample has start time that overlaps with previous sample timestamp for metric",
            Self::Ignored => "ignored histograms in a range containing both floats and histograms for metric name",
            Self::ResetsCollide(_) | Self::BoundsReconciled(_) => "",
        }
    }
}

fn write_metric_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if name.is_empty() { Ok(()) } else { write!(f, " for metric name {}", quoted(name)) }
}

/// Prints a time as `2006-01-02T15:04:05Z`; milliseconds are cut.
fn print_time(time_ms: i64) -> String {
    let civil = crate::functions::date::Civil::of_seconds(time_ms / 1000);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotate(query: &str, notes: &[(Note, usize)]) -> Annotations {
        let mut annotations = Annotations::new(query);
        for (note, start) in notes {
            annotations.add(note.clone(), Span { start: *start, end: *start });
        }
        annotations
    }

    #[test]
    fn texts_are_told_once_with_the_last_place() {
        let note = Note::PossibleNonCounter("x".into());
        let annotations = annotate("rate(x[5m]) +\n rate(x[1m])", &[(note.clone(), 5), (note, 20)]);
        let text = "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"x\"";
        assert_eq!(annotations.infos().collect::<Vec<_>>(), [format!("{text} (2:7)")]);
        assert_eq!(annotations.warnings().count(), 0);
    }

    #[test]
    fn overlapping_starts_are_counted_at_the_place_of_the_first() {
        let note = |n, name: &str| Remark::StartsOverlap(n).about(name);
        let text = |name: &str| {
            format!(
                "PromQL warning: sample has start time that overlaps with previous sample timestamp for metric \"{name}\""
            )
        };
        let annotations = annotate("rate(x[5m])", &[(note(1, "x"), 5), (note(2, "x"), 0), (note(1, "y"), 0)]);
        let expect = [text("x") + " (3 occurrences) (1:6)", text("y") + " (1:1)"];
        assert_eq!(annotations.warnings().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn more_than_ten_are_counted() {
        let notes: Vec<_> = (2..14).map(|q| (Note::InvalidQuantile(f64::from(q)), 0)).collect();
        let warnings: Vec<_> = annotate("x", &notes).warnings().collect();
        assert_eq!(warnings.len(), 11);
        assert_eq!(warnings[0], "PromQL warning: quantile value should be between 0 and 1, got 2 (1:1)");
        assert_eq!(warnings[10], "2 more warning annotations omitted");
    }

    #[test]
    fn forced_monotonicity_tells_the_extent_of_all() {
        let forced = |time_ms, bound| {
            Note::ForcedMonotonicity(ForcedMonotonicity {
                metric_name: String::new(),
                times_ms: (time_ms, time_ms),
                bounds: (bound, bound),
                difference_max: bound,
                n_histograms: 1,
            })
        };
        let infos: Vec<_> = annotate("x", &[(forced(60_000, 5.0), 0), (forced(0, 1234.5), 0)]).infos().collect();
        let details = ", from buckets 5 to 1234.5, with a max diff of 1.2e+03, over 2 samples from \
                       1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z (1:1)";
        assert!(infos[0].ends_with(details), "{}", infos[0]);
    }
}
