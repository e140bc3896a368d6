//! What the store has of one series, for a caller that continues it.

use varve_model::{Labels, Matcher, SampleColumns, StoredSeries, TimeRange};

use super::Db;
use crate::error::{Error, Result};
use crate::read_context::ReadContext;
use crate::shard::shard_of;

impl Db {
    /// Returns the newest timestamp of a series in memory, and whether it has a sample at a time up
    /// to that. Waits for the replay of the WAL.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn stored_series(
        &self,
        ctx: &ReadContext,
        labels: &Labels,
        timestamp_ms: i64,
    ) -> Result<StoredSeries> {
        self.wait_replayed(ctx)?;
        let shards = &self.store.shards;
        let newest_ms = shards[shard_of(labels, shards.len())].last_ms(labels);
        let mut stored = StoredSeries {
            newest_ms,
            has_sample: false,
        };
        // Fast path: the time is new.
        if newest_ms.is_none_or(|newest_ms| timestamp_ms > newest_ms) {
            return Ok(stored);
        }
        stored.has_sample = match self.has_sample(ctx, labels, timestamp_ms) {
            // A damaged sample cannot be told from one that is missing.
            Err(Error::Corrupt { .. }) => false,
            found => found?,
        };
        Ok(stored)
    }

    fn has_sample(&self, ctx: &ReadContext, labels: &Labels, timestamp_ms: i64) -> Result<bool> {
        let matchers: Vec<_> = labels
            .iter()
            .map(|(name, value)| Matcher::equal(name, value))
            .collect();
        let mut columns = SampleColumns::default();
        for series in self.select(ctx, &matchers, TimeRange::at(timestamp_ms))? {
            let series = series?;
            // Others have further labels.
            if series.labels() == labels {
                series.read(&mut columns)?;
            }
        }
        Ok(!columns.is_empty())
    }
}
