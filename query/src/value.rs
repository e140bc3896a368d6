//! The value of a query.

use std::sync::Arc;

use varve_tsdb::Labels;

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
        /// The string; any bytes, like strings in Go.
        value: Box<[u8]>,
    },
    /// At most one sample per label set, all at one time.
    Vector(Vec<VectorSample>),
    /// Samples over time; series ascend by labels.
    Matrix(Vec<MatrixSeries>),
}

/// A value at a time.
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
    /// Its labels.
    pub labels: Labels,
    /// Its time and value; the value is meaningless if there is a histogram.
    pub point: Point,
    /// Its value, if that is a histogram.
    pub histogram: Option<Arc<FloatHistogram>>,
}

/// A histogram at a time.
#[derive(Debug, Clone)]
pub struct HistogramPoint {
    /// Milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// The histogram; neighbours may share it.
    pub histogram: Arc<FloatHistogram>,
}

/// One series of a matrix.
#[derive(Debug, Clone)]
pub struct MatrixSeries {
    /// Its labels.
    pub labels: Labels,
    /// Its floats in ascending order of time.
    pub points: Vec<Point>,
    /// Its histograms in ascending order of time, none at the time of a float. There is at least one float or histogram.
    pub histograms: Vec<HistogramPoint>,
}
