//! [`Sink`]: where the series of a request go.

use std::hash::Hash;
use std::ops::Range;

use varve_model::StoredSeries;
use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;

use super::error::Error;

/// A place between the samples of a request: the number of floats and histograms before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Floats.
    pub n_floats: usize,
    /// Native histograms.
    pub n_histograms: usize,
}

/// Takes the series of a request one by one: first the labels, then samples and exemplars, then the
/// end.
pub trait Sink {
    /// The reason why the request must end, such as a limit.
    type Error: From<Error>;
    /// Identifies a label set within a request.
    type Key: Copy + Eq + Hash;

    /// Starts a series. `labels` are sorted by name.
    ///
    /// # Errors
    /// If the request must end; likewise below.
    fn series<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Result<Self::Key, Self::Error>;

    /// Adds a sample to the current series. `start_ms` is 0 if unknown.
    ///
    /// # Errors
    /// If the request must end.
    fn sample(&mut self, timestamp_ms: i64, value: f64, start_ms: i64) -> Result<(), Self::Error>;

    /// Adds a valid histogram to the current series. `start_ms` is 0 if unknown.
    ///
    /// # Errors
    /// If the request must end.
    fn histogram(
        &mut self,
        timestamp_ms: i64,
        histogram: Histogram,
        start_ms: i64,
    ) -> Result<(), Self::Error>;

    /// Adds an exemplar to the current series. `labels` are sorted by name.
    ///
    /// # Errors
    /// If the request must end.
    fn exemplar<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Self::Error>;

    /// Ends the current series.
    ///
    /// # Errors
    /// If the request must end.
    fn end_series(&mut self) -> Result<(), Self::Error>;

    /// Adds the metadata of a family.
    ///
    /// # Errors
    /// If the request must end.
    fn family(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        unit: &str,
    ) -> Result<(), Self::Error>;

    /// Reserves `size` bytes of memory, which the translation allocates next.
    ///
    /// # Errors
    /// If the request must end.
    fn reserve(&mut self, size: usize) -> Result<(), Self::Error>;

    /// Returns what the store has of a series, and whether it has a sample at this time.
    ///
    /// # Errors
    /// If the request must end.
    fn stored<'l>(
        &self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        timestamp_ms: i64,
    ) -> Result<StoredSeries, Self::Error>;

    /// Returns the maximum number of labels of a series.
    fn labels_max(&self) -> usize;

    /// Returns the place after the samples so far.
    fn position(&self) -> Position;

    /// Returns `true` if the store may accept samples of this time.
    fn takes_time(&self, timestamp_ms: i64) -> bool;

    /// Counts a data point of a time at which the store rejects all samples.
    fn reject_time(&mut self, metric: &str, timestamp_ms: i64);

    /// Counts `n_points` rejected data points; 0 for a rejected metric or resource without points.
    fn reject(&mut self, n_points: u64, reason: String);

    /// Counts a data point of a metric that cannot be translated.
    fn reject_point(&mut self, metric: &str, reason: &str);

    /// Counts a resource whose labels do not fit `target_info`. It is no data point of the sender.
    fn reject_info(&mut self, reason: String);

    /// Ends a data point that became these samples.
    ///
    /// # Errors
    /// If the request must end.
    fn end_point(&mut self, samples: Range<Position>) -> Result<(), Self::Error>;
}
