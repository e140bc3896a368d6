//! The value of a query.

use std::sync::Arc;

use varve_model::Labels;

use crate::histogram::FloatHistogram;

/// The value of a query.
#[derive(Debug, Clone)]
pub enum Value {
    /// One number at one time.
    Scalar(Point),
    /// A string at one time.
    String {
        /// Milliseconds since the epoch.
        timestamp_ms: i64,
        /// The bytes of the string; they need not be UTF-8.
        value: Box<[u8]>,
    },
    /// At most one sample per label set, all at one time.
    Vector(Vec<VectorSample>),
    /// Samples over time; series ascend by labels. The result cache may share them.
    Matrix(Vec<Arc<MatrixSeries>>),
}

/// A float at a time.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// The value.
    pub value: f64,
}

/// One element of a vector.
#[derive(Debug, Clone)]
pub struct VectorSample {
    /// Labels of the series.
    pub labels: Labels,
    /// Time and float. The float is meaningless if `histogram` is `Some`.
    pub point: Point,
    /// The value, if it is a histogram.
    pub histogram: Option<Arc<FloatHistogram>>,
}

/// A histogram at a time.
#[derive(Debug, Clone)]
pub struct HistogramPoint {
    /// Milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// The histogram. Adjacent points may share it.
    pub histogram: Arc<FloatHistogram>,
}

/// One series of a matrix.
#[derive(Debug, Clone)]
pub struct MatrixSeries {
    /// Labels of the series.
    pub labels: Labels,
    /// Floats in ascending order of time.
    pub points: Vec<Point>,
    /// Histograms in ascending order of time; none has the time of a float. A series has at least
    /// one float or histogram.
    pub histograms: Vec<HistogramPoint>,
}

impl Value {
    /// Returns the size in memory. Shared label sets, series and histograms count in full.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Scalar(_) => 0,
            Self::String { value, .. } => value.len(),
            Self::Vector(samples) => samples.iter().map(VectorSample::size).sum(),
            Self::Matrix(matrix) => matrix.iter().map(|series| series.size()).sum(),
        }
    }
}

impl VectorSample {
    fn size(&self) -> usize {
        let of_histogram = self
            .histogram
            .as_ref()
            .map_or(0, |histogram| histogram.size());
        size_of::<Self>() + self.labels.size() + of_histogram
    }
}

impl MatrixSeries {
    /// Size of a series in a matrix without its labels and points, with pointer and reference
    /// counts of its [`Arc`].
    pub(crate) const FIXED_SIZE: usize = size_of::<Self>() + 3 * size_of::<usize>();

    /// Returns the size in memory. A shared label set and shared histograms count in full.
    pub(crate) fn size(&self) -> usize {
        let histograms = self
            .histograms
            .iter()
            .map(|point| size_of::<HistogramPoint>() + point.histogram.size());
        Self::FIXED_SIZE
            + self.labels.size()
            + size_of_val(&*self.points)
            + histograms.sum::<usize>()
    }
}
