//! [`TimeRange`]: a closed range of time.

/// A closed time range: both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimeRange {
    /// First millisecond inside the range.
    pub start_ms: i64,
    /// Last millisecond inside the range.
    pub end_ms: i64,
}

impl TimeRange {
    /// All of time.
    pub const ALL: Self = Self {
        start_ms: i64::MIN,
        end_ms: i64::MAX,
    };

    /// Creates the range of one millisecond.
    #[must_use]
    pub fn at(timestamp_ms: i64) -> Self {
        Self {
            start_ms: timestamp_ms,
            end_ms: timestamp_ms,
        }
    }

    /// Returns `true` if a timestamp lies inside.
    #[must_use]
    pub fn contains(self, timestamp_ms: i64) -> bool {
        self.start_ms <= timestamp_ms && timestamp_ms <= self.end_ms
    }

    /// Returns `true` if two ranges share a millisecond.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start_ms <= other.end_ms && other.start_ms <= self.end_ms
    }

    /// Returns `true` if all of `other` lies inside.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.start_ms <= other.start_ms && other.end_ms <= self.end_ms
    }

    /// Returns the smallest range that contains both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self {
            start_ms: self.start_ms.min(other.start_ms),
            end_ms: self.end_ms.max(other.end_ms),
        }
    }
}
