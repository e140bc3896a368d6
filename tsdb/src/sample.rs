//! Samples and ranges of time.

/// A float value at a time.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Any double, bit for bit: NaN payloads, -0 and infinities included.
    pub value: f64,
}

/// The NaN that says "this series has ended here" (Prometheus `model/value`, StaleNaN).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Tells whether a value is the staleness marker; other NaNs are ordinary values.
#[must_use]
pub fn is_stale_nan(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// A closed range of time: both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// First millisecond inside the range.
    pub start_ms: i64,
    /// Last millisecond inside the range.
    pub end_ms: i64,
}

impl TimeRange {
    /// All of time.
    pub const ALL: Self = Self { start_ms: i64::MIN, end_ms: i64::MAX };

    /// Tells whether a time lies inside.
    #[must_use]
    pub fn contains(self, timestamp_ms: i64) -> bool {
        self.start_ms <= timestamp_ms && timestamp_ms <= self.end_ms
    }

    /// Tells whether two ranges share a millisecond.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start_ms <= other.end_ms && other.start_ms <= self.end_ms
    }
}

/// Float samples of one series as two columns of equal length, in ascending order of time.
#[derive(Debug, Clone, Default)]
pub struct SampleColumns {
    /// Milliseconds since the Unix epoch, strictly ascending.
    pub timestamps_ms: Vec<i64>,
    /// The value at each timestamp, bit for bit as it was appended.
    pub values: Vec<f64>,
}

impl SampleColumns {
    /// Counts the samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.timestamps_ms.len()
    }

    /// Tells whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timestamps_ms.is_empty()
    }

    /// Removes all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.timestamps_ms.clear();
        self.values.clear();
    }

    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        self.timestamps_ms.push(sample.timestamp_ms);
        self.values.push(sample.value);
    }

    /// Iterates over the samples in order of time.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample> + '_ {
        self.timestamps_ms.iter().zip(&self.values).map(|(&timestamp_ms, &value)| Sample { timestamp_ms, value })
    }
}
