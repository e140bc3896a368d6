//! Verification of a whole block: every checksum, every encoding, and all redundant information.

use std::thread;

use varve_context::QueryContext;
use varve_model::{SampleColumns, TimeRange};

use super::footer::HEADER_SIZE;
use super::meta::EMPTY_RANGE;
use super::reader::Block;
use super::scan::{LoadedGroup, RecentTimestampColumns};
use super::timestamps::TimestampColumns;
use crate::error::Result;

impl Block {
    /// Reads and verifies the block without the cache.
    ///
    /// # Errors
    /// - The first problem: [`Error::Corrupt`](crate::Error::Corrupt),
    ///   [`Error::Io`](crate::Error::Io) or [`Error::Version`](crate::Error::Version).
    /// - [`Error::Interrupted`](crate::Error::Interrupted) if the request is interrupted.
    pub(crate) fn verify(&self, ctx: &QueryContext) -> Result<()> {
        self.verify_checksums(ctx)?;
        self.verify_samples(ctx)?;
        self.index.verify(ctx)
    }

    /// Verifies everything except for the checksums of pages that nothing refers to, on two
    /// threads.
    ///
    /// # Errors
    /// The errors of [`Block::verify`].
    pub(super) fn verify_contents(&self, ctx: &QueryContext) -> Result<()> {
        thread::scope(|scope| {
            let index = scope.spawn(|| self.index.verify(ctx));
            let samples = self.verify_samples(ctx);
            let index = index.join().expect("a verification does not panic");
            samples.and(index)
        })
    }

    fn verify_samples(&self, ctx: &QueryContext) -> Result<()> {
        self.verify_timestamp_columns(ctx)?;
        self.verify_groups(ctx)
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
            let columns_ref = self.timestamp_columns.get(idx);
            let payload = self.pages.read_page(columns_ref.page)?;
            let unreadable = |why| self.pages.unreadable(columns_ref.page, why);
            let timestamp_columns =
                TimestampColumns::parse(&payload, columns_ref.n).map_err(unreadable)?;
            timestamp_columns
                .check_sizes()
                .map_err(|damaged| self.pages.unreadable(columns_ref.page, damaged))?;
            for i in 0..columns_ref.n {
                times_ms.clear();
                timestamp_columns
                    .decode(i, &mut times_ms)
                    .map_err(unreadable)?;
                if !times_ms.is_sorted_by(|a, b| a < b) {
                    return Err(self.pages.corrupt(
                        columns_ref.page.offset,
                        "the timestamps of a series do not ascend",
                    ));
                }
            }
        }
        Ok(())
    }

    fn verify_groups(&self, ctx: &QueryContext) -> Result<()> {
        let mut timestamp_columns = RecentTimestampColumns::new(self);
        let mut samples = SampleColumns::default();
        let mut range = EMPTY_RANGE;
        for idx in 0..self.groups.len() {
            ctx.check()?;
            let group = self.groups.get(idx);
            let mut loaded = LoadedGroup::load(self, idx)?;
            for (i, rows) in group.pages_in(TimeRange::ALL) {
                let mut page_range = EMPTY_RANGE;
                let mut n_samples = 0;
                for series_idx in 0..group.n_series {
                    samples.clear();
                    loaded.read_series(i, series_idx, &mut timestamp_columns, &mut samples)?;
                    page_range = page_range.hull(samples.range().unwrap_or(EMPTY_RANGE));
                    n_samples += samples.len();
                }
                if (page_range, n_samples) != (rows.range(), rows.n_samples as usize) {
                    let reason = "the directory contradicts the samples of a page";
                    return Err(self.pages.corrupt(rows.page().offset, reason));
                }
                range = range.hull(page_range);
            }
        }
        if self.meta.range != range {
            return Err(self.pages.corrupt(
                self.footer.offset,
                "the footer contradicts the time range of the samples",
            ));
        }
        Ok(())
    }
}
