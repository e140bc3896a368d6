//! A block of a store, with its deleted samples.

use std::sync::Arc;

use parking_lot::Mutex;
use roaring::RoaringBitmap;
use varve_context::QueryContext;
use varve_model::{Matcher, SampleColumns, StringSet, TimeRange};

use crate::block::meta::BlockMeta;
use crate::block::reader::{Block, ReadCache};
use crate::block::tombstones::{Tombstone, Tombstones};
use crate::error::Result;

/// A block of the store, and its deleted samples.
#[derive(Debug)]
pub(crate) struct StoredBlock {
    pub(crate) block: Arc<Block>,
    pub(super) deleted: Vec<Deleted>,
    /// Series whose samples are all deleted. Found when labels are listed.
    fully_deleted: Mutex<FullyDeleted>,
}

/// What is known about the series whose samples are all deleted.
#[derive(Debug, Clone, Default, PartialEq)]
struct FullyDeleted {
    series: RoaringBitmap,
    /// Series that have lost samples since they were last examined.
    unexamined: RoaringBitmap,
}

/// Number of series that are examined before what was found is kept.
const EXAMINED_AT_ONCE: usize = 1_024;

/// The effect of a tombstone on a block.
#[derive(Debug, Clone)]
pub(super) struct Deleted {
    /// The id of the tombstone; 0 for the series that a retention rule removes.
    pub(super) number: u64,
    pub(super) range: TimeRange,
    pub(super) series: RoaringBitmap,
}

impl StoredBlock {
    pub(super) fn new(block: Arc<Block>, tombstones: &Tombstones) -> Result<Self> {
        let mut deleted = Vec::new();
        for &Tombstone {
            number,
            ref matchers,
            range,
            ..
        } in tombstones.affecting(block.meta())
        {
            let series = block.index.select(&QueryContext::unbounded(), matchers)?;
            if !series.is_empty() {
                add_deleted(
                    &mut deleted,
                    Deleted {
                        number,
                        range,
                        series,
                    },
                    block.meta().range,
                );
            }
        }
        let mut fully_deleted = FullyDeleted::default();
        for deleted in &deleted {
            fully_deleted.add_deletion(&deleted.series);
        }
        Ok(Self {
            block,
            deleted,
            fully_deleted: Mutex::new(fully_deleted),
        })
    }

    /// Returns the block with another tombstone, or the block itself if the tombstone affects none
    /// of its series. `number` is the id of a tombstone, or 0 for a retention rule.
    pub(crate) fn without(
        self: &Arc<Self>,
        number: u64,
        range: TimeRange,
        series: RoaringBitmap,
    ) -> Arc<Self> {
        if series.is_empty() {
            return Arc::clone(self);
        }
        // A deletion restores nothing, so only its own series must be examined again.
        let mut fully_deleted = self.fully_deleted.lock().clone();
        fully_deleted.add_deletion(&series);
        let mut deleted = self.deleted.clone();
        add_deleted(
            &mut deleted,
            Deleted {
                number,
                range,
                series,
            },
            self.meta().range,
        );
        Arc::new(Self {
            block: Arc::clone(&self.block),
            deleted,
            fully_deleted: Mutex::new(fully_deleted),
        })
    }

    /// Returns the deleted ranges of a series.
    pub(crate) fn deleted(&self, ordinal: u32) -> impl Iterator<Item = TimeRange> + '_ {
        self.deleted
            .iter()
            .filter(move |deleted| deleted.series.contains(ordinal))
            .map(|deleted| deleted.range)
    }

    /// Appends the samples of a series in `range`, except deleted samples, to `out`.
    ///
    /// # Errors
    /// The errors of [`Block::read`].
    pub(crate) fn read(
        &self,
        read_cache: &mut ReadCache,
        ordinal: u32,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<()> {
        // Fast path: none of its samples were deleted.
        if self.deleted(ordinal).next().is_none() {
            return self.block.read(read_cache, ordinal, range, out);
        }
        let mut samples = SampleColumns::default();
        self.block.read(read_cache, ordinal, range, &mut samples)?;
        for deleted in self.deleted(ordinal) {
            samples.remove(deleted);
        }
        out.append(&mut samples);
        Ok(())
    }

    /// Adds the label names of the series that all matchers select and that have samples left to
    /// `names`.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds a limit; errors of reading the block.
    pub(crate) fn label_names(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        names: &mut StringSet,
    ) -> Result<()> {
        self.block.index.label_names(
            ctx,
            self.select_with_samples(ctx, matchers)?.as_ref(),
            names,
        )
    }

    /// Adds the values of a label in the series that all matchers select and that have samples left
    /// to `values`.
    ///
    /// # Errors
    /// The errors of [`StoredBlock::label_names`].
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        matchers: &[Matcher],
        values: &mut StringSet,
    ) -> Result<()> {
        self.block.index.label_values(
            ctx,
            name,
            self.select_with_samples(ctx, matchers)?.as_ref(),
            values,
        )
    }

    /// Returns the series that all matchers select and that have samples left, or `None` if these
    /// are all series.
    fn select_with_samples(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
    ) -> Result<Option<RoaringBitmap>> {
        let selected = self.select_some(ctx, matchers)?;
        self.examine_deletions(ctx)?;
        let fully_deleted = &self.fully_deleted.lock().series;
        if fully_deleted.is_empty() {
            return Ok(selected);
        }
        let mut with_samples = selected.unwrap_or_else(|| self.block.index.all());
        with_samples -= fully_deleted;
        Ok(Some(with_samples))
    }

    /// Finds the series whose samples are all deleted. An interrupted request keeps what it has
    /// found.
    fn examine_deletions(&self, ctx: &QueryContext) -> Result<()> {
        let mut read_cache = ReadCache::new(ctx.charge(), true);
        loop {
            // No lock is held while the block is read. Requests that come together examine the same
            // series.
            let series = self.fully_deleted.lock().next_unexamined();
            if series.is_empty() {
                return Ok(());
            }
            let mut examined = RoaringBitmap::new();
            let mut fully_deleted = RoaringBitmap::new();
            let outcome = self.examine(
                ctx,
                &mut read_cache,
                &series,
                &mut examined,
                &mut fully_deleted,
            );
            let mut state = self.fully_deleted.lock();
            state.unexamined -= examined;
            state.series |= fully_deleted;
            outcome?;
        }
    }

    /// Adds the series of a list, until an error, to `examined`, and those without samples to
    /// `fully_deleted`.
    fn examine(
        &self,
        ctx: &QueryContext,
        read_cache: &mut ReadCache,
        series: &RoaringBitmap,
        examined: &mut RoaringBitmap,
        fully_deleted: &mut RoaringBitmap,
    ) -> Result<()> {
        for ordinal in series {
            if read_cache.is_check_due() {
                ctx.check()?;
            }
            if !self.has_samples_left(read_cache, ordinal)? {
                fully_deleted.insert(ordinal);
            }
            examined.insert(ordinal);
        }
        Ok(())
    }

    fn has_samples_left(&self, read_cache: &mut ReadCache, ordinal: u32) -> Result<bool> {
        let mut left = vec![self.meta().range];
        for deleted in self.deleted(ordinal) {
            left = remove(left, deleted);
        }
        // Fast path: the whole block was deleted, so nothing is read.
        for range in left {
            if self.block.overlaps(read_cache, ordinal, range)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the series that all matchers select, or `None` if there are no matchers.
    fn select_some(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
    ) -> Result<Option<RoaringBitmap>> {
        if matchers.is_empty() {
            return Ok(None);
        }
        let ordinals = self.block.index.select(ctx, matchers)?;
        ctx.count_series(ordinals.len())?;
        Ok(Some(ordinals))
    }

    /// Returns `true` if a tombstone affects the block.
    pub(crate) fn has_deleted(&self) -> bool {
        !self.deleted.is_empty()
    }

    /// Returns the metadata of the block.
    pub(crate) fn meta(&self) -> &BlockMeta {
        self.block.meta()
    }
}

impl FullyDeleted {
    /// Notes that series have lost samples.
    fn add_deletion(&mut self, series: &RoaringBitmap) {
        self.unexamined |= series - &self.series;
    }

    /// Returns series to examine, none if all are.
    fn next_unexamined(&self) -> RoaringBitmap {
        self.unexamined.iter().take(EXAMINED_AT_ONCE).collect()
    }
}

/// Returns the parts of ranges outside of another range.
fn remove(ranges: Vec<TimeRange>, removed: TimeRange) -> Vec<TimeRange> {
    let mut left = Vec::with_capacity(ranges.len() + 1);
    for range in ranges {
        if !range.overlaps(removed) {
            left.push(range);
            continue;
        }
        if range.start_ms < removed.start_ms {
            left.push(TimeRange {
                end_ms: removed.start_ms - 1,
                ..range
            });
        }
        if removed.end_ms < range.end_ms {
            left.push(TimeRange {
                start_ms: removed.end_ms + 1,
                ..range
            });
        }
    }
    left
}

/// Adds a deletion to those of a block with samples in the range `block`. It replaces those that it
/// covers in this block.
fn add_deleted(deleted: &mut Vec<Deleted>, newer: Deleted, block: TimeRange) {
    deleted.retain(|older| {
        let start_ms = older.range.start_ms.max(block.start_ms);
        let end_ms = older.range.end_ms.min(block.end_ms);
        let is_covered = newer.range.covers(TimeRange { start_ms, end_ms })
            && older.series.is_subset(&newer.series);
        !is_covered
    });
    deleted.push(newer);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every deletion examined the series of all deletions again.
    #[test]
    fn a_deletion_examines_only_its_own_series_again() {
        let bitmap = |ordinals: &[u32]| ordinals.iter().copied().collect::<RoaringBitmap>();
        let mut fully_deleted = FullyDeleted {
            series: bitmap(&[1, 2]),
            unexamined: bitmap(&[7]),
        };
        fully_deleted.add_deletion(&bitmap(&[2, 3]));
        let expect = FullyDeleted {
            series: bitmap(&[1, 2]),
            unexamined: bitmap(&[3, 7]),
        };
        assert_eq!(fully_deleted, expect);
    }
}
