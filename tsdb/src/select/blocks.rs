//! The series of a selection in one block, in label order.
//!
//! Where all labels are needed they are made as text, in which streams are merged; a label set is made of it only for a
//! series that is handed out. Samples are decoded when the caller asks for them.

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
    /// The labels that are asked for, if it is not all.
    asked: Option<Projection>,
    /// The label set that was handed out last: of few labels there are few.
    handed_out: Labels,
}

/// A block, and what a selection read of it last: one for each thread that has read at the same time as others.
#[derive(Debug)]
pub(super) struct BlockReads {
    stored: Arc<StoredBlock>,
    ctx: QueryContext,
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
        let reads = BlockReads { stored: Arc::clone(stored), ctx: ctx.clone(), idle: Mutex::default() };
        let (ordinals, handed_out) = (ordinals.into_iter(), Labels::empty());
        Self { reads: Arc::new(reads), cursor, ordinals, at: None, all, asked: None, handed_out }
    }

    /// Makes no other labels from here on than are asked for.
    pub(super) fn ask_for(&mut self, asked: &LabelHint) -> Result<()> {
        self.asked = self.reads.stored.block.projection(asked)?;
        Ok(())
    }

    /// Counts the series that are still to come.
    pub(super) fn len(&self) -> u64 {
        self.ordinals.len() as u64 + u64::from(self.at.is_some())
    }

    /// Goes to the next series that has samples in the range.
    pub(super) fn advance(&mut self, ctx: &QueryContext, range: TimeRange) -> Result<()> {
        self.at = None;
        while let Some(ordinal) = self.ordinals.next() {
            ctx.check()?;
            if self.has_samples(ordinal, range)? {
                self.cursor.seek(ordinal)?;
                self.cursor.make_labels(self.asked.as_ref())?;
                self.at = Some(ordinal);
                break;
            }
        }
        Ok(())
    }

    fn has_samples(&self, ordinal: u32, range: TimeRange) -> Result<bool> {
        let stored = &self.reads.stored;
        if stored.deleted(ordinal).next().is_some() {
            let mut samples = SampleColumns::default();
            self.reads.read(ordinal, range, &mut samples)?;
            return Ok(!samples.is_empty());
        }
        if self.all {
            return Ok(true);
        }
        self.reads.with_recent(|recent| stored.block.overlaps(recent, ordinal, range))
    }

    /// Returns the packed labels of the series that the stream is at; `None` behind the last.
    pub(super) fn packed(&self) -> Option<&str> {
        self.at.map(|_| self.cursor.packed_labels())
    }

    /// Returns the labels of the series that the stream is at.
    pub(super) fn labels(&mut self) -> Labels {
        if self.handed_out.as_packed() != self.cursor.packed_labels() {
            self.handed_out = Labels::from_packed(self.cursor.packed_labels());
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
        let mut recent = self.idle().pop().unwrap_or_else(|| Recent::new(self.ctx.charge()));
        let result = read(&mut recent);
        self.idle().push(recent);
        result
    }

    // A panic while one was in use has taken it along; those that are idle are sound.
    fn idle(&self) -> MutexGuard<'_, Vec<Recent>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the samples of a series in `range`.
    pub(super) fn read(&self, ordinal: u32, range: TimeRange, out: &mut SampleColumns) -> Result<()> {
        self.with_recent(|recent| self.stored.read(recent, ordinal, range, out))
    }
}
