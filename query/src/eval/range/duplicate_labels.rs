//! Detects series that have the same labels after their metric names are dropped.

use hashbrown::HashSet;
use varve_context::Charge;
use varve_model::Labels;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Result};
use crate::plan::is_name_label;

/// Detects duplicate label sets in a stream of series.
pub(super) struct DuplicateLabels {
    /// The dropped labels of the first series. If all series drop the same labels, the remaining
    /// labels are unique.
    dropped: Option<Labels>,
    /// 128-bit hashes of the label sets. Among a million series, a collision is expected once in
    /// 10^26 queries.
    hashes: HashSet<u128>,
    /// Series with different dropped labels have been seen.
    is_mixed: bool,
    /// Hashes of the series seen before `is_mixed` was set.
    pending: Vec<u128>,
    charge: Charge,
}

impl DuplicateLabels {
    /// Creates a detector whose memory is charged to `charge`.
    pub(super) fn new(charge: Charge) -> Self {
        Self {
            dropped: None,
            hashes: HashSet::new(),
            is_mixed: false,
            pending: Vec::new(),
            charge,
        }
    }

    /// Checks series. `renamed` has the labels of each series before and after dropping the name.
    ///
    /// # Errors
    /// [`Error::Execution`] if two series have the same labels; [`Error::Limit`] if the query
    /// exceeds its memory limit.
    pub(super) fn check(&mut self, renamed: &[(Labels, Labels)]) -> Result<()> {
        self.charge.grow(renamed.len() * size_of::<u128>())?;
        renamed
            .iter()
            .try_for_each(|(before, after)| self.check_one(before, after))
    }

    fn check_one(&mut self, before: &Labels, after: &Labels) -> Result<()> {
        let hash = xxh3_128(after.as_packed().as_bytes());
        let dropped = self
            .dropped
            .get_or_insert_with(|| before.filter(is_name_label));
        let name_labels = before.iter().filter(|(name, _)| is_name_label(name));
        if !self.is_mixed && dropped.iter().eq(name_labels) {
            // Fast path: all series so far have the same name, so they stay unique. The hash is
            // stored in case another name follows.
            self.pending.push(hash);
            return Ok(());
        }
        if !self.is_mixed {
            self.charge
                .grow(self.pending.len() * 2 * size_of::<u128>())?;
        }
        self.is_mixed = true;
        self.hashes.extend(self.pending.drain(..));
        self.charge.grow(size_of::<u128>())?;
        if self.hashes.insert(hash) {
            Ok(())
        } else {
            Err(Error::same_labels())
        }
    }
}
