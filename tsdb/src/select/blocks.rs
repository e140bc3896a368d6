//! The series of a selection in one block, in label order.
//!
//! If all labels are needed, they are built as a packed string, by which streams are merged. A
//! [`Labels`] is created only for a returned series. If no labels are needed, the index is not
//! read. Samples are decoded on demand.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roaring::RoaringBitmap;
use varve_context::{Charge, QueryContext};
use varve_model::{Labels, Matcher, SampleColumns, TimeRange};

use super::read_ahead::ReadAhead;
use crate::block::{Access, Projection, ReadCache, SeriesCursor, StoredBlock};
use crate::error::{Error, Result};
use crate::label_hint::LabelHint;

/// The selected series of one block.
pub(super) struct BlockStream {
    reads: Arc<BlockReads>,
    cursor: SeriesCursor,
    /// The series after those in `ahead`.
    ordinals: Ordinals,
    ahead: ReadAhead,
    /// The error to return after the series in `ahead`.
    failure: Option<Error>,
    /// `true` if every series of the block has samples in the range.
    is_block_in_range: bool,
    /// The requested labels.
    requested: RequestedLabels,
    /// The last returned label set. If few labels are requested, it often repeats.
    handed_out: Labels,
}

/// The requested labels of the series of a block.
enum RequestedLabels {
    All,
    Some(Projection),
    /// No series has a requested label.
    None,
}

/// The ordinals of the series that pass all matchers.
///
/// If only the first ones are needed, they are found in one window of the block after the other, as
/// they are read. Series of a block are in label order, so most of them are never looked at.
pub(super) struct Ordinals {
    found: roaring::bitmap::IntoIter,
    /// The windows that were not searched yet.
    rest: Range<u32>,
    /// The size of the next window.
    window: u32,
    /// For the other windows; empty if there are none.
    matchers: Vec<Matcher>,
    charge: Charge,
}

/// Minimum size of the first window.
const WINDOW_MIN: u32 = if cfg!(test) { 8 } else { 1 << 12 };
/// Each window is this many times as large as the one before it. Lists of series are decoded from
/// their beginning for each window.
const WINDOW_GROWTH: u32 = 64;

/// A block with read caches, one per concurrent reader.
#[derive(Debug)]
pub(super) struct BlockReads {
    stored: Arc<StoredBlock>,
    ctx: QueryContext,
    /// Values of floats are not needed.
    skip_values: bool,
    /// The cache of the first reader.
    first: Mutex<Option<ReadCache>>,
    /// Unused caches of further concurrent readers.
    idle: Mutex<Vec<ReadCache>>,
}

impl BlockStream {
    /// Creates a stream positioned before the first series.
    pub(super) fn new(reads: BlockReads, ordinals: Ordinals, range: TimeRange) -> Self {
        let stored = &reads.stored;
        let is_block_in_range = range.covers(stored.meta().range);
        let mut cursor = stored.block.index.series_cursor(Access::Cached);
        cursor.keep_more(reads.ctx.charge());
        let ahead = ReadAhead::new(reads.ctx.charge());
        let handed_out = Labels::empty();
        Self {
            reads: Arc::new(reads),
            cursor,
            ordinals,
            ahead,
            failure: None,
            is_block_in_range,
            requested: RequestedLabels::All,
            handed_out,
        }
    }

    /// Builds only the requested labels from now on.
    pub(super) fn request_labels(&mut self, requested: &LabelHint) -> Result<()> {
        self.requested = match self.reads.stored.block.index.projection(requested)? {
            None => RequestedLabels::All,
            Some(projection) if projection.is_empty() => RequestedLabels::None,
            Some(projection) => RequestedLabels::Some(projection),
        };
        Ok(())
    }

    /// Returns an upper bound for the number of remaining series.
    pub(super) fn len(&self) -> u64 {
        self.ordinals.len_max() + self.ahead.len() as u64
    }

    /// Advances to the next series with samples in the range. Checks the context of the selection
    /// while it searches for samples.
    pub(super) fn advance(&mut self, range: TimeRange) -> Result<()> {
        if self.ahead.advance() {
            return Ok(());
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match self.read_ahead(range) {
            // The series before the error come first.
            Err(error) if self.ahead.len() > 0 => self.failure = Some(error),
            read => read?,
        }
        Ok(())
    }

    fn read_ahead(&mut self, range: TimeRange) -> Result<()> {
        while !self.ahead.is_full()
            && let Some(ordinal) = self.ordinals.next(&self.reads)?
        {
            if self.has_samples(ordinal, range)? {
                self.make_labels(ordinal)?;
                self.ahead.push(ordinal, self.cursor.packed_labels());
            }
        }
        self.ahead.charge(self.cursor.labels_size())
    }

    fn has_samples(&self, ordinal: u32, range: TimeRange) -> Result<bool> {
        let stored = &self.reads.stored;
        let has_deleted = stored.deleted(ordinal).next().is_some();
        // Fast path: the block is unchanged.
        if self.is_block_in_range && !has_deleted {
            return Ok(true);
        }
        self.reads.ctx.check()?;
        if has_deleted {
            let mut samples = SampleColumns::default();
            self.reads.read(ordinal, range, &mut samples)?;
            return Ok(!samples.is_empty());
        }
        self.reads
            .with_read_cache(|read_cache| stored.block.overlaps(read_cache, ordinal, range))
    }

    fn make_labels(&mut self, ordinal: u32) -> Result<()> {
        let requested = match &self.requested {
            // Fast path: `sum(...)` and other queries without labels.
            RequestedLabels::None => return Ok(()),
            RequestedLabels::All => None,
            RequestedLabels::Some(projection) => Some(projection),
        };
        self.cursor.seek(ordinal)?;
        self.cursor.make_labels(requested)
    }

    /// Returns the packed labels of the current series, or `None` after the last series.
    pub(super) fn packed(&self) -> Option<&str> {
        self.ahead.packed()
    }

    /// Returns the labels of the current series.
    pub(super) fn labels(&mut self) -> Labels {
        let packed = self.ahead.packed().unwrap_or_default();
        match self.requested {
            // Fast path: no two series have the same labels.
            RequestedLabels::All => return Labels::from_packed(packed),
            RequestedLabels::Some(_) if self.handed_out.as_packed() != packed => {
                self.handed_out = Labels::from_packed(packed)
            }
            RequestedLabels::Some(_) | RequestedLabels::None => {}
        }
        self.handed_out.clone()
    }

    /// Returns the block for reading samples.
    pub(super) fn reads(&self) -> Arc<BlockReads> {
        Arc::clone(&self.reads)
    }

    /// Returns the ordinal of the current series, or `None` after the last series.
    pub(super) fn ordinal(&self) -> Option<u32> {
        self.ahead.ordinal()
    }

    /// Returns `true` if a series of the block may have a label of one of these names.
    pub(super) fn has_label(&self, names: &[&str]) -> Result<bool> {
        for name in names {
            if self.reads.stored.block.index.has_label(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Ordinals {
    /// Finds the series of a block that pass all matchers, or the first of them, if only `n_first`
    /// series are needed.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit, and errors of reading the block.
    pub(super) fn new(reads: &BlockReads, matchers: &[Matcher], n_first: usize) -> Result<Self> {
        let index = &reads.stored.block.index;
        let n_series = index.n_series;
        let window = u32::try_from(n_first).unwrap_or(u32::MAX).max(WINDOW_MIN);
        let mut ordinals = Self {
            found: RoaringBitmap::new().into_iter(),
            rest: 0..0,
            window,
            matchers: Vec::new(),
            charge: reads.ctx.charge(),
        };
        if window >= n_series || index.selects_few(matchers)? {
            let found = reads.select(matchers)?;
            ordinals.charge.grow(found.serialized_size())?;
            ordinals.found = found.into_iter();
        } else {
            ordinals.matchers = matchers.to_vec();
            ordinals.rest = 0..n_series;
        }
        Ok(ordinals)
    }

    /// Returns `true` if it is known that no series passes.
    pub(super) fn is_empty(&self) -> bool {
        self.found.len() == 0 && self.rest.is_empty()
    }

    /// Returns an upper bound for the number of remaining series.
    fn len_max(&self) -> u64 {
        (self.found.len() + self.rest.len()) as u64
    }

    /// Returns the next ordinal.
    fn next(&mut self, reads: &BlockReads) -> Result<Option<u32>> {
        loop {
            if let Some(ordinal) = self.found.next() {
                return Ok(Some(ordinal));
            }
            if self.rest.is_empty() {
                return Ok(None);
            }
            self.search_window(reads)?;
        }
    }

    fn search_window(&mut self, reads: &BlockReads) -> Result<()> {
        let start = self.rest.start;
        let end = self.rest.end.min(start.saturating_add(self.window));
        let index = &reads.stored.block.index;
        let found = index.select_in(&reads.ctx, &self.matchers, start..end)?;
        self.charge.shrink(self.charge.size());
        self.charge.grow(found.serialized_size())?;
        self.found = found.into_iter();
        self.rest.start = end;
        self.window = self.window.saturating_mul(WINDOW_GROWTH);
        Ok(())
    }
}

impl BlockReads {
    pub(super) fn new(ctx: &QueryContext, stored: &Arc<StoredBlock>, skip_values: bool) -> Self {
        Self {
            stored: Arc::clone(stored),
            ctx: ctx.clone(),
            skip_values,
            first: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// Returns the ordinals of the series that pass all matchers.
    pub(super) fn select(&self, matchers: &[Matcher]) -> Result<RoaringBitmap> {
        self.ctx.check()?;
        self.stored.block.index.select(&self.ctx, matchers)
    }

    /// Calls `read` with a cache that no other thread uses.
    fn with_read_cache<T>(&self, read: impl FnOnce(&mut ReadCache) -> T) -> T {
        let new = || ReadCache::new(self.ctx.charge(), self.skip_values);
        // Fast path: an uncontended lock. A cache is not used again after a panic.
        if let Ok(mut first) = self.first.try_lock() {
            return read(first.get_or_insert_with(new));
        }
        let mut read_cache = self.idle().pop().unwrap_or_else(new);
        let result = read(&mut read_cache);
        self.idle().push(read_cache);
        result
    }

    // A panic drops the cache in use. Idle caches are intact.
    fn idle(&self) -> MutexGuard<'_, Vec<ReadCache>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the samples of a series in `range`. Checks the context every few thousand samples
    /// and after reading a page.
    pub(super) fn read(
        &self,
        ordinal: u32,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<()> {
        self.with_read_cache(|read_cache| {
            if read_cache.is_check_due() {
                self.ctx.check()?;
            }
            self.stored.read(read_cache, ordinal, range, out)
        })
    }
}
