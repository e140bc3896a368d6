//! The head: the series of a shard and their newest samples, in memory.
//!
//! Structures of arrays indexed by a dense slot. [`Table`] knows the series; [`Samples`] has what came since the last
//! freeze; [`Frozen`] is what came before and is being flushed. The shard's lock guards all of it; nothing here knows of
//! the log. Readers copy encoded bytes under the lock ([`HeadCopies`]) and decode them without it.
//!
//! Invariants
//! 1. A slot names the same series as long as its generation lasts; whoever kept a [`SlotRef`] finds out.
//! 2. In-order samples of a series ascend strictly in time, over freezes as well. Late ones lie beside them, and so do
//!    histograms, of whose times no float of the series is.
//! 3. No timestamp of a series is both in order and late within [`Samples`]; between frozen and newer samples it may be,
//!    and then the frozen one stands.
//! 4. A series with samples in memory is not evicted.
//! 5. `size` never falls behind what was allocated for series and samples by more than one growth of a buffer.

mod append;
mod copy;
mod departed;
mod evict;
mod freeze;
mod grouping;
mod histograms;
mod label_sets;
mod late;
mod load;
mod order;
mod pairs;
mod projection;
mod recent;
mod rows;
mod samples;
mod starts;
mod table;
mod visible;

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashSet;
use roaring::RoaringBitmap;

pub(crate) use append::{Appended, Bounds, Replayed, STRICT_MAX_AGE_MS};
pub(crate) use copy::HeadCopies;
pub(crate) use evict::{Ended, Garbage};
pub(crate) use freeze::Frozen;
pub(crate) use order::{Ranks, SeriesOrder, SlotSort};
pub(crate) use pairs::Pair;
pub(crate) use projection::Projection;
pub(crate) use samples::AnySample;
pub(crate) use starts::Order;
pub(crate) use table::{NewSeries, SeriesRef, SlotRef};
pub(crate) use visible::Visible;

use crate::cardinality::LabelCounts;
use crate::context::QueryContext;
use crate::error::Result;
use crate::index::{SymbolId, Texts};
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::sample::TimeRange;
use departed::Departed;
use samples::Samples;
use table::Table;

/// What a walk over all series looks at under one lock.
const STEP: usize = 512;

/// All series of a shard.
#[derive(Debug)]
pub(crate) struct Head {
    table: Table,
    live: Samples,
    frozen: Option<Arc<Frozen>>,
    /// Every reader sees all requests of the frozen samples.
    frozen_is_visible: bool,
    /// Every reader sees the requests before this one.
    horizon: u32,
    /// Series of which a sample had a start timestamp, since they are here.
    with_starts: HashSet<u32>,
    departed: Departed,
}

impl Head {
    /// Starts empty; `seed` goes into hashes of texts.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            table: Table::new(seed),
            live: Samples::new(0),
            frozen: None,
            frozen_is_visible: false,
            horizon: 0,
            with_starts: HashSet::new(),
            departed: Departed::default(),
        }
    }

    /// Counts the series.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns about how many bytes series and samples take.
    pub(crate) fn size(&self) -> usize {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.size());
        self.table.size() + self.live.size() + frozen + self.with_starts.allocation_size() + self.departed.size()
    }

    /// Returns about how many bytes the samples take that no flush has taken yet.
    pub(crate) fn samples_size(&self) -> usize {
        self.live.size()
    }

    /// Returns the newest time that a series here has ever had. Looks at all of them.
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        self.table.newest_ms()
    }

    /// Returns the slot of a series, if it is here.
    pub(crate) fn find(&self, labels: &Labels) -> Option<u32> {
        self.table.find(labels)
    }

    /// Returns the slot of a series and makes it under `new_ref` if it is not here. One that left goes on from its newest sample.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the shard's slots or symbols are used up.
    pub(crate) fn find_or_create(&mut self, labels: &Labels, new_ref: SeriesRef) -> Result<(u32, NewSeries)> {
        let (slot, new) = self.table.find_or_create(labels, new_ref)?;
        if new == NewSeries::Yes
            && let Some(last_ms) = self.departed.take(labels)
        {
            self.set_last(slot, last_ms);
        }
        Ok((slot, new))
    }

    /// Returns the range from the oldest to the newest sample in memory; `None` while there is none.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range());
        frozen
            .into_iter()
            .chain(self.live.range())
            .reduce(|a, b| TimeRange { start_ms: a.start_ms.min(b.start_ms), end_ms: a.end_ms.max(b.end_ms) })
    }

    /// Returns the labels of a series.
    pub(crate) fn labels(&self, slot: u32) -> Labels {
        self.table.labels(slot)
    }

    /// Compares the labels of a series with those of another head's, as [`Labels`] do; `order` compares a text of this head
    /// with one of the other.
    pub(crate) fn compare(
        &self,
        slot: u32,
        other: &Self,
        other_slot: u32,
        mut order: impl FnMut(SymbolId, SymbolId) -> Ordering,
    ) -> Ordering {
        let mut theirs = other.pairs(other_slot);
        for (name, value) in self.pairs(slot) {
            let Some((other_name, other_value)) = theirs.next() else { return Ordering::Greater };
            let differs = order(name, other_name).then_with(|| order(value, other_value));
            if differs != Ordering::Equal {
                return differs;
            }
        }
        theirs.next().map_or(Ordering::Equal, |_| Ordering::Less)
    }

    /// Returns how a slot was given.
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.table.generation(slot)
    }

    /// Returns a slot with its generation, to be kept past the lock.
    pub(crate) fn slot_ref(&self, slot: u32) -> SlotRef {
        SlotRef { slot, generation: self.generation(slot) }
    }

    /// Tells whether a slot names the series that it named when the reference was made.
    pub(crate) fn is_current(&self, of: SlotRef) -> bool {
        self.table.is_current(of)
    }

    /// Returns the slots of a step of a walk over all series, which takes the lock anew for each; `None` behind the last.
    pub(crate) fn slots_of_step(&self, step: usize) -> Option<Range<u32>> {
        // Slots are less than 2^31.
        let end = self.table.end() as u32;
        let start = u32::try_from(step * STEP).ok().filter(|&start| start < end)?;
        Some(start..end.min(start + STEP as u32))
    }

    /// Returns the number of a series on disk; `None` if no series has the slot.
    pub(crate) fn number(&self, slot: u32) -> Option<SeriesRef> {
        self.table.row(slot).filter(|row| row.is_used()).map(|row| row.series)
    }

    /// Returns what a checkpoint keeps of a series: its number, its labels, a time before which there is nothing new
    /// (`i64::MIN` if it has no samples); `None` if no series has the slot.
    ///
    /// That is the time of its newest in-order sample, or just before the oldest float that came in order since the freeze:
    /// what came since then is in the log behind the checkpoint, and is to be in order when it is replayed.
    pub(crate) fn describe(&self, slot: u32) -> Option<(SeriesRef, Labels, i64)> {
        let row = self.table.row(slot).filter(|row| row.is_used())?;
        let before_all = self.live.first_in_order_ms(slot).map(|first_ms| first_ms.saturating_sub(1));
        Some((row.series, self.labels(slot), before_all.map_or(row.last_ms, |before_all| before_all.min(row.last_ms))))
    }

    /// Returns the slots of the series that pass all matchers.
    ///
    /// # Errors
    /// When the request ends.
    pub(crate) fn select(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<RoaringBitmap> {
        self.table.index.select(ctx, &self.table.symbols, &self.table, matchers)
    }

    /// Adds the label names of matching series (or all) to `names`.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn label_names(&self, ctx: &QueryContext, matchers: &[Matcher], names: &mut Texts) -> Result<()> {
        let slots = self.select_some(ctx, matchers)?;
        let slots = slots.as_ref().map(|slots| (slots, &self.table));
        self.table.index.label_names(ctx, &self.table.symbols, slots, names)
    }

    /// Adds the values of a label of matching series (or all) to `values`.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        matchers: &[Matcher],
        values: &mut Texts,
    ) -> Result<()> {
        let slots = self.select_some(ctx, matchers)?;
        let slots = slots.as_ref().map(|slots| (slots, &self.table));
        self.table.index.label_values(ctx, &self.table.symbols, name, slots, values)
    }

    /// Counts the series of each value of a label.
    ///
    /// # Errors
    /// When the request ends or its memory is used up.
    pub(crate) fn count_label(&self, ctx: &QueryContext, name: &str, counts: &mut LabelCounts) -> Result<()> {
        self.table.index.count_label(ctx, &self.table.symbols, name, counts)
    }

    /// Tells whether any series has a label of this name.
    pub(crate) fn has_label(&self, name: &str) -> bool {
        self.table.index.has_label(&self.table.symbols, name)
    }

    /// Returns the labels with many values whose order is to be made.
    pub(crate) fn unordered_labels(&self) -> Vec<SymbolId> {
        self.table.index.unordered()
    }

    /// Begins to order the values of a label.
    pub(crate) fn begin_order(&mut self, name: SymbolId) {
        self.table.index.begin_order(name);
    }

    /// Returns the values of a label in a piece of its table, and the number of pieces, which may grow once.
    pub(crate) fn values_of(&self, name: SymbolId, piece: usize) -> (Vec<SymbolId>, usize) {
        self.table.index.values_of(name, piece)
    }

    /// Takes the values that there were at [`Head::begin_order`], and maybe later ones, in order of their texts.
    pub(crate) fn set_order(&mut self, name: SymbolId, ordered: Vec<SymbolId>) {
        self.table.index.set_order(name, ordered);
    }

    fn select_some(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<Option<RoaringBitmap>> {
        if matchers.is_empty() {
            return Ok(None);
        }
        let slots = self.select(ctx, matchers)?;
        ctx.count_series(slots.len())?;
        Ok(Some(slots))
    }
}

#[cfg(test)]
mod tests;
