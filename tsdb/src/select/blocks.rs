//! The series of a selection in one block, in label order.
//!
//! Where all labels are needed they are made as text, in which streams are merged; a label set is made of it only for a
//! series that is handed out. Where none is needed the index is not read at all. Samples are decoded when the caller asks for
//! them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roaring::RoaringBitmap;

use super::hints::LabelHint;
use crate::block::{Projection, Recent, SeriesCursor};
use crate::blocks::StoredBlock;
use crate::context::QueryContext;
use crate::error::Result;
use crate::labels::Labels;
use crate::sample::{SampleColumns, TimeRange};

/// The selected series of one block.
pub(super) struct BlockStream {
    reads: Arc<BlockReads>,
    cursor: SeriesCursor,
    /// Those behind the one that the cursor is on.
    ordinals: roaring::bitmap::IntoIter,
    /// The series that the cursor is on.
    at: Option<u32>,
    /// Whether every series of the block has samples in the range.
    all: bool,
    /// The labels that are asked for.
    asked: Asked,
    /// The label set that was handed out last: of few labels there are few.
    handed_out: Labels,
}

/// The labels that are asked for of the series of a block.
enum Asked {
    All,
    Some(Projection),
    /// No series has any of them.
    None,
}

/// A block, and what a selection read of it last: one for each thread that has read at the same time as others.
#[derive(Debug)]
pub(super) struct BlockReads {
    stored: Arc<StoredBlock>,
    ctx: QueryContext,
    /// Of the thread that comes while no other reads.
    first: Mutex<Option<Recent>>,
    /// Of the others, while they do not read.
    idle: Mutex<Vec<Recent>>,
}

impl BlockStream {
    /// Starts in front of the first series.
    pub(super) fn new(
        ctx: &QueryContext,
        stored: &Arc<StoredBlock>,
        ordinals: RoaringBitmap,
        range: TimeRange,
    ) -> Self {
        let all = range.covers(stored.meta().range);
        let mut cursor = stored.block.series_cursor();
        cursor.keep_more(ctx.charge());
        let (first, idle) = (Mutex::default(), Mutex::default());
        let reads = BlockReads { stored: Arc::clone(stored), ctx: ctx.clone(), first, idle };
        let (ordinals, handed_out) = (ordinals.into_iter(), Labels::empty());
        Self { reads: Arc::new(reads), cursor, ordinals, at: None, all, asked: Asked::All, handed_out }
    }

    /// Makes no other labels from here on than are asked for.
    pub(super) fn ask_for(&mut self, asked: &LabelHint) -> Result<()> {
        self.asked = match self.reads.stored.block.projection(asked)? {
            None => Asked::All,
            Some(projection) if projection.is_empty() => Asked::None,
            Some(projection) => Asked::Some(projection),
        };
        Ok(())
    }

    /// Counts the series that are still to come.
    pub(super) fn len(&self) -> u64 {
        self.ordinals.len() as u64 + u64::from(self.at.is_some())
    }

    /// Goes to the next series that has samples in the range. Looks at the context where it looks for samples.
    pub(super) fn advance(&mut self, ctx: &QueryContext, range: TimeRange) -> Result<()> {
        self.at = None;
        while let Some(ordinal) = self.ordinals.next() {
            if self.has_samples(ctx, ordinal, range)? {
                self.make_labels(ordinal)?;
                self.at = Some(ordinal);
                break;
            }
        }
        Ok(())
    }

    fn has_samples(&self, ctx: &QueryContext, ordinal: u32, range: TimeRange) -> Result<bool> {
        let stored = &self.reads.stored;
        let is_touched = stored.deleted(ordinal).next().is_some();
        // Fast path: as the block was written.
        if self.all && !is_touched {
            return Ok(true);
        }
        ctx.check()?;
        if is_touched {
            let mut samples = SampleColumns::default();
            self.reads.read(ordinal, range, &mut samples)?;
            return Ok(!samples.is_empty());
        }
        self.reads.with_recent(|recent| stored.block.overlaps(recent, ordinal, range))
    }

    fn make_labels(&mut self, ordinal: u32) -> Result<()> {
        let asked = match &self.asked {
            // Fast path: `sum(...)` and whoever else asks for numbers alone.
            Asked::None => return Ok(()),
            Asked::All => None,
            Asked::Some(projection) => Some(projection),
        };
        self.cursor.seek(ordinal)?;
        self.cursor.make_labels(asked)
    }

    /// Returns the packed labels of the series that the stream is at; `None` behind the last.
    pub(super) fn packed(&self) -> Option<&str> {
        self.at.map(|_| self.cursor.packed_labels())
    }

    /// Returns the labels of the series that the stream is at.
    pub(super) fn labels(&mut self) -> Labels {
        let packed = self.cursor.packed_labels();
        match self.asked {
            // Fast path: no two series have the same.
            Asked::All => return Labels::from_packed(packed),
            Asked::Some(_) if self.handed_out.as_packed() != packed => self.handed_out = Labels::from_packed(packed),
            Asked::Some(_) | Asked::None => {}
        }
        self.handed_out.clone()
    }

    /// Returns the block, for those who read its samples.
    pub(super) fn reads(&self) -> Arc<BlockReads> {
        Arc::clone(&self.reads)
    }

    /// Returns the series that the stream is at; `None` behind the last.
    pub(super) fn ordinal(&self) -> Option<u32> {
        self.at
    }

    /// Tells whether a series of the block may have a label of one of these names.
    pub(super) fn has_label(&self, names: &[&str]) -> Result<bool> {
        for name in names {
            if self.reads.stored.block.has_label(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl BlockReads {
    /// Calls `read` with what was read last, by a thread that does not read now.
    fn with_recent<T>(&self, read: impl FnOnce(&mut Recent) -> T) -> T {
        let new = || Recent::new(self.ctx.charge());
        // Fast path: one lock, for which nobody waits. After a panic it is never had again.
        if let Ok(mut first) = self.first.try_lock() {
            return read(first.get_or_insert_with(new));
        }
        let mut recent = self.idle().pop().unwrap_or_else(new);
        let result = read(&mut recent);
        self.idle().push(recent);
        result
    }

    // A panic while one was in use has taken it along; those that are idle are sound.
    fn idle(&self) -> MutexGuard<'_, Vec<Recent>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the samples of a series in `range`. Looks at the context every few thousand samples, and when a page was read.
    pub(super) fn read(&self, ordinal: u32, range: TimeRange, out: &mut SampleColumns) -> Result<()> {
        self.with_recent(|recent| {
            if recent.is_check_due() {
                self.ctx.check()?;
            }
            self.stored.read(recent, ordinal, range, out)
        })
    }
}
