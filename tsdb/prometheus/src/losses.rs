//! Why samples of a data directory are lost.

use std::path::Path;

use varve_env::Fs;
use varve_env::sample_totals::SampleTotals;

use super::block::BlockReader;

/// The definition of their series is lost.
pub const OF_UNKNOWN_SERIES: &str = "of unknown series";
/// A head chunk cannot be decoded.
pub const IN_DAMAGED_CHUNKS: &str = "in damaged head chunks";
/// A block, or a chunk of it, cannot be read.
pub const IN_DAMAGED_BLOCKS: &str = "in damaged blocks";
/// Parts of files are missing or damaged.
pub const IN_DAMAGED_PARTS: &str = "in damaged or missing parts of files";
/// Histograms that are too large or have an unknown schema, and series with a label without a name.
pub const NOT_SUPPORTED: &str = "not supported";

/// Adds the samples of a block that cannot be opened to `totals`. Their number is unknown without a
/// description. Returns the number of samples, as far as it is known.
pub fn lose_block(fs: &dyn Fs, dir: &Path, totals: &mut SampleTotals) -> u64 {
    let n_samples = BlockReader::read_meta(fs, dir).map_or(0, |meta| meta.stats.n_samples);
    if n_samples == 0 {
        totals.lose_unknown(IN_DAMAGED_BLOCKS);
    }
    totals.n_found += n_samples;
    totals.lose(IN_DAMAGED_BLOCKS, n_samples);
    n_samples
}

/// Counts the samples that the description of an open block has, `n_written`, and the block lacks as
/// lost. `totals` has those that were found. Returns the number of lost samples.
pub(crate) fn lose_unread(n_written: u64, totals: &mut SampleTotals) -> u64 {
    let n_lost = n_written.saturating_sub(totals.n_found);
    totals.n_found += n_lost;
    totals.lose(IN_DAMAGED_BLOCKS, n_lost);
    n_lost
}
