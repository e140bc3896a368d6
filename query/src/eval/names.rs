//! Whether series are still told apart when their metric names are gone.

use hashbrown::HashSet;
use varve_tsdb::Labels;
use varve_tsdb::context::Charge;
use xxhash_rust::xxh3::xxh3_128;

use super::series::is_name_label;
use crate::error::{Error, Result};

/// Tells whether two series came to have the same labels when a function took names off.
pub(super) struct Names {
    /// The labels that were taken off, as long as they are the same for all series: then what is left must differ.
    removed: Option<Labels>,
    /// What the label sets hash to, in 128 bits: two of them have the same by chance once in 10^26 queries.
    made: HashSet<u128>,
    mixed: bool,
    waiting: Vec<u128>,
    charge: Charge,
}

impl Names {
    /// Starts without label sets; `charge` takes those that come.
    pub(super) fn new(charge: Charge) -> Self {
        Self { removed: None, made: HashSet::new(), mixed: false, waiting: Vec::new(), charge }
    }

    /// Fails if two series come to have the same labels, which are given before and after.
    pub(super) fn check(&mut self, unnamed: &[(Labels, Labels)]) -> Result<()> {
        self.charge.grow(unnamed.len() * size_of::<u128>())?;
        unnamed.iter().try_for_each(|(before, after)| self.check_one(before, after))
    }

    fn check_one(&mut self, before: &Labels, after: &Labels) -> Result<()> {
        let hash = xxh3_128(after.as_packed().as_bytes());
        let removed = self.removed.get_or_insert_with(|| before.filter(is_name_label));
        let of_names = before.iter().filter(|(name, _)| is_name_label(name));
        if !self.mixed && removed.iter().eq(of_names) {
            // Fast path: series that differ before differ after; what was made is kept in case another name comes.
            self.waiting.push(hash);
            return Ok(());
        }
        if !self.mixed {
            self.charge.grow(self.waiting.len() * 2 * size_of::<u128>())?;
        }
        self.mixed = true;
        self.made.extend(self.waiting.drain(..));
        self.charge.grow(size_of::<u128>())?;
        if self.made.insert(hash) { Ok(()) } else { Err(Error::same_labels()) }
    }
}
