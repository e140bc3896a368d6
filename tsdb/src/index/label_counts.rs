//! Counts of one label's values, over all shards.

use std::collections::HashMap;

use varve_context::{Charge, QueryContext};

use crate::error::Result;

/// Memory of an entry of [`LabelCounts`] besides its string: the `String`, the count and their
/// share of the table.
const ENTRY_SIZE: usize = 2 * (size_of::<String>() + size_of::<u64>());

/// The values of one label, counted over shards.
#[derive(Debug)]
pub(crate) struct LabelCounts {
    pub(crate) series_by_value: HashMap<String, u64>,
    pub(crate) size: u64,
    charge: Charge,
}

impl LabelCounts {
    /// Creates empty counts.
    pub(crate) fn new(ctx: &QueryContext) -> Self {
        Self {
            series_by_value: HashMap::new(),
            size: 0,
            charge: ctx.charge(),
        }
    }

    /// Counts `n` more series of a value.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if the request exceeds its memory limit.
    pub(crate) fn add(&mut self, value: &str, n: u64) -> Result<()> {
        self.size += value.len() as u64;
        if let Some(count) = self.series_by_value.get_mut(value) {
            *count += n;
            return Ok(());
        }
        self.charge.grow_without_waiting(value.len() + ENTRY_SIZE)?;
        self.series_by_value.insert(value.to_owned(), n);
        Ok(())
    }

    /// Adds the size of an index in bytes.
    pub(crate) fn add_size(&mut self, size: usize) {
        self.size += size as u64;
    }
}
