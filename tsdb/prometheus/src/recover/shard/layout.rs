//! Assignment of series to shards.

use crate::recover::series::SeriesIdx;

/// Distributes series to shards by their lowest bits: series that are created together, and mostly
/// scraped together, are adjacent in every shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardLayout {
    n_bits: u32,
}

impl ShardLayout {
    /// Creates a layout of at least `n` shards.
    pub(crate) fn at_least(n: usize) -> Self {
        Self {
            n_bits: n.next_power_of_two().ilog2(),
        }
    }

    /// Returns the number of shards.
    pub(crate) fn len(self) -> usize {
        1 << self.n_bits
    }

    /// Returns the number of slots of a shard for `n_series` series.
    pub(crate) fn n_slots(self, shard: usize, n_series: usize) -> usize {
        (n_series + self.len() - 1 - shard) >> self.n_bits
    }

    /// Returns the shard of a series and its slot there.
    #[inline]
    pub(crate) fn locate(self, series: SeriesIdx) -> (usize, u32) {
        (
            (series & ((1 << self.n_bits) - 1)) as usize,
            series >> self.n_bits,
        )
    }
}
