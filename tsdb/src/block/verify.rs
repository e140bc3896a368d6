//! Verification of a whole block: every checksum, every encoding, and all redundant information.

use super::footer::HEADER_SIZE;
use super::reader::Block;
use super::scan::{LoadedGroup, RecentTimestampColumns};
use super::timestamps::columns::TimestampColumns;
use crate::context::QueryContext;
use crate::error::Result;
use crate::sample::{SampleColumns, TimeRange};

impl Block {
    /// Reads and verifies the block without the cache.
    ///
    /// # Errors
    /// The first problem: [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io),
    /// [`Error::Version`](crate::Error::Version); [`Error::Interrupted`](crate::Error::Interrupted) under `ctx`.
    pub(crate) fn verify(&self, ctx: &QueryContext) -> Result<()> {
        self.verify_checksums(ctx)?;
        self.verify_timestamp_columns(ctx)?;
        self.verify_groups(ctx)?;
        self.verify_index(ctx)
    }

    /// Verifies that the pages are consecutive from header to footer and have correct checksums.
    fn verify_checksums(&self, ctx: &QueryContext) -> Result<()> {
        let mut offset = HEADER_SIZE as u64;
        while offset < self.footer.offset {
            ctx.check()?;
            offset += u64::from(self.pages.check(offset, self.footer.offset)?.size);
        }
        Ok(())
    }

    fn verify_timestamp_columns(&self, ctx: &QueryContext) -> Result<()> {
        let mut times_ms = Vec::new();
        for idx in self.timestamp_columns.indexes() {
            ctx.check()?;
            let at = self.timestamp_columns.get(idx);
            let payload = self.pages.read(at.page)?;
            let unreadable = |why| self.pages.unreadable(at.page, why);
            let timestamp_columns = TimestampColumns::parse(&payload, at.n).map_err(unreadable)?;
            timestamp_columns.check_sizes().map_err(|damaged| unreadable(damaged.into()))?;
            for i in 0..at.n {
                times_ms.clear();
                timestamp_columns.decode(i, &mut times_ms).map_err(unreadable)?;
                if !times_ms.is_sorted_by(|a, b| a < b) {
                    return Err(self.pages.corrupt(at.page.offset, "the timestamps of a series do not ascend"));
                }
            }
        }
        Ok(())
    }

    fn verify_groups(&self, ctx: &QueryContext) -> Result<()> {
        let mut read_cache = RecentTimestampColumns::new(self);
        let (mut oldest_ms, mut newest_ms) = (i64::MAX, i64::MIN);
        for idx in 0..self.groups.len() {
            ctx.check()?;
            let group = self.groups.get(idx);
            let mut loaded = LoadedGroup::load(self, group, Vec::new())?;
            for (i, rows) in group.pages_in(TimeRange::ALL) {
                let found = page_figures(&mut loaded, i, group.n_series, &mut read_cache)?;
                if found != Some((rows.range, u64::from(rows.n_samples))) {
                    return Err(self
                        .pages
                        .corrupt(rows.page.offset, "the directory contradicts the samples of a page"));
                }
                oldest_ms = oldest_ms.min(rows.range.start_ms);
                newest_ms = newest_ms.max(rows.range.end_ms);
            }
        }
        if self.meta.range != (TimeRange { start_ms: oldest_ms, end_ms: newest_ms }) {
            return Err(self.pages.corrupt(self.footer.offset, "the footer has another time range than the samples"));
        }
        Ok(())
    }

    fn verify_index(&self, ctx: &QueryContext) -> Result<()> {
        self.index.verify(ctx)
    }
}

/// Decodes a page of rows and returns the time range and the number of its samples.
fn page_figures<'a>(
    loaded: &mut LoadedGroup<'a>,
    i: usize,
    n_series: usize,
    read_cache: &mut RecentTimestampColumns<'a>,
) -> Result<Option<(TimeRange, u64)>> {
    let mut samples = SampleColumns::default();
    let mut figures: Option<(TimeRange, u64)> = None;
    for series_idx in 0..n_series {
        samples.clear();
        loaded.read_page(i, series_idx, read_cache, &mut samples)?;
        if let (Some(&start_ms), Some(&end_ms)) = (samples.timestamps_ms.first(), samples.timestamps_ms.last()) {
            let (range, n) = figures.get_or_insert((TimeRange { start_ms, end_ms }, 0));
            *range = TimeRange { start_ms: range.start_ms.min(start_ms), end_ms: range.end_ms.max(end_ms) };
            *n += samples.len() as u64;
        }
    }
    Ok(figures)
}
