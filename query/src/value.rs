//! What a query gives.

use varve_tsdb::Labels;

/// The value of a query.
#[derive(Debug, Clone)]
pub enum Value {
    /// One number at one time.
    Scalar(Point),
    /// A text at one time.
    String {
        /// Milliseconds since the epoch.
        timestamp_ms: i64,
        /// The text; any bytes, as Go's strings.
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
    /// Its time and value.
    pub point: Point,
}

/// One series of a matrix.
#[derive(Debug, Clone)]
pub struct MatrixSeries {
    /// Its labels.
    pub labels: Labels,
    /// Its points in ascending order of time; not empty.
    pub points: Vec<Point>,
}
