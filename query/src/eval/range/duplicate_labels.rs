//! Detects series that have the same labels once their metric names are dropped.

use hashbrown::HashSet;
use varve_tsdb::Labels;
use varve_tsdb::context::Charge;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Result};
use crate::eval::columns::is_name_label;

/// Detects duplicate label sets in a stream of series.
pub(super) struct DuplicateLabels {
    /// The labels that were dropped, while they are the same for all series: then the remaining labels are unique.
    dropped: Option<Labels>,
    /// Hashes of the label sets, of 128 bits: a collision happens once in 10^26 queries.
    hashes: HashSet<u128>,
    /// Series of different names have been seen.
    is_mixed: bool,
    /// Hashes of the series before that.
    pending: Vec<u128>,
    charge: Charge,
}

impl DuplicateLabels {
    /// Creates a detector whose memory is charged to `charge`.
    pub(super) fn new(charge: Charge) -> Self {
        Self { dropped: None, hashes: HashSet::new(), is_mixed: false, pending: Vec::new(), charge }
    }

    /// Checks series, whose labels are given before and after the names were dropped.
    ///
    /// # Errors
    /// [`Error::Execution`] if two series have the same labels, [`Error::Limit`] if the query holds too much.
    pub(super) fn check(&mut self, renamed: &[(Labels, Labels)]) -> Result<()> {
        self.charge.grow(renamed.len() * size_of::<u128>())?;
        renamed.iter().try_for_each(|(before, after)| self.check_one(before, after))
    }

    fn check_one(&mut self, before: &Labels, after: &Labels) -> Result<()> {
        let hash = xxh3_128(after.as_packed().as_bytes());
        let dropped = self.dropped.get_or_insert_with(|| before.filter(is_name_label));
        let of_name = before.iter().filter(|(name, _)| is_name_label(name));
        if !self.is_mixed && dropped.iter().eq(of_name) {
            // Fast path: one name so far, so that the series stay unique. The hash is kept in case another name follows.
            self.pending.push(hash);
            return Ok(());
        }
        if !self.is_mixed {
            self.charge.grow(self.pending.len() * 2 * size_of::<u128>())?;
        }
        self.is_mixed = true;
        self.hashes.extend(self.pending.drain(..));
        self.charge.grow(size_of::<u128>())?;
        if self.hashes.insert(hash) { Ok(()) } else { Err(Error::same_labels()) }
    }
}
