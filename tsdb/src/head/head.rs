//! The type [`Head`]: its parts, and access to its series.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashSet;
use roaring::RoaringBitmap;
use varve_context::QueryContext;
use varve_model::{Labels, Matcher, StringSet, TimeRange};

use super::created_series::CreatedSeries;
use super::evicted::EvictedSeries;
use super::frozen::Frozen;
use super::groups::{BudgetGroup, GroupCounts};
use super::label_names::LabelNames;
use super::samples::Samples;
use super::table::{NewSeries, SlotRef, Table};
use crate::batch::SeriesRef;
use crate::error::Result;
use crate::index::{Candidates, LabelCounts, Pair, SymbolId, passes};

/// Number of slots that a walk over all series visits per acquisition of the lock.
pub(super) const STEP: usize = 512;
/// Number of strings that a walk over all strings visits per acquisition of the lock.
const SYMBOLS_STEP: usize = 4096;

/// What the heads of a store count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadTotals {
    /// Number of series per group.
    pub(crate) groups: GroupCounts,
    pub(crate) label_names: LabelNames,
}

/// All series of a shard.
#[derive(Debug)]
pub(crate) struct Head {
    pub(super) table: Table,
    pub(super) live: Samples,
    pub(super) frozen: Option<Arc<Frozen>>,
    /// `true` if every reader sees all frozen samples.
    pub(super) frozen_is_visible: bool,
    /// Appends below this id are visible to every present and future reader.
    pub(super) horizon: u32,
    /// Slots of series in memory that have had a sample with a start timestamp.
    pub(super) with_start_timestamps: HashSet<u32>,
    pub(super) evicted: EvictedSeries,
    pub(super) created: CreatedSeries,
}

impl Head {
    /// Creates an empty head. `seed` seeds the hashes of strings.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            table: Table::new(seed),
            live: Samples::new(0),
            frozen: None,
            frozen_is_visible: false,
            horizon: 0,
            with_start_timestamps: HashSet::new(),
            evicted: EvictedSeries::default(),
            created: CreatedSeries::default(),
        }
    }

    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of values of all labels.
    pub(crate) fn n_label_values(&self) -> usize {
        self.table.index.n_values()
    }

    /// Returns the number of series with a value of a label.
    pub(crate) fn n_series_with(&self, name: &str, value: &str) -> u64 {
        self.table
            .index
            .n_series_with(&self.table.symbols, name, value)
    }

    /// Returns the approximate size of series and samples in bytes.
    pub(crate) fn size(&self) -> usize {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.size());
        self.table.size()
            + self.live.size()
            + frozen
            + self.with_start_timestamps.allocation_size()
            + self.evicted.size()
            + self.created.size()
    }

    /// Returns the approximate size in bytes of the samples that are not frozen.
    pub(crate) fn samples_size(&self) -> usize {
        self.live.size()
    }

    /// Returns the approximate size in bytes of all samples.
    pub(crate) fn all_samples_size(&self) -> usize {
        self.live.size() + self.frozen.as_ref().map_or(0, |frozen| frozen.size())
    }

    /// Returns the number of samples of a series in memory.
    pub(crate) fn n_samples(&self, slot: u32) -> u64 {
        let frozen = self
            .frozen
            .as_ref()
            .map_or(0, |frozen| frozen.n_samples(slot));
        (self.live.n_samples(slot) + frozen) as u64
    }

    /// Returns the newest in-order timestamp of the series in the head, including samples that are
    /// no longer in memory. Visits all series.
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        self.table.newest_ms()
    }

    /// Returns the slot of a series. Returns `None` if it is not in the head.
    pub(crate) fn find(&self, labels: &Labels) -> Option<u32> {
        self.table.find(labels)
    }

    /// Returns the slot of a series. Creates the series with the ref `new_ref` if it is not in the
    /// head. An evicted series continues from its newest sample.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the shard has no slots or symbols left.
    pub(crate) fn find_or_create(
        &mut self,
        labels: &Labels,
        new_ref: SeriesRef,
    ) -> Result<(u32, NewSeries)> {
        let (slot, new) = self.table.find_or_create(labels, new_ref)?;
        if new == NewSeries::No {
            return Ok((slot, new));
        }
        self.created.push(self.slot_ref(slot));
        if let Some((last_ms, had_starts)) = self.evicted.take(labels) {
            self.set_last(slot, last_ms);
            if had_starts {
                self.with_start_timestamps.insert(slot);
            }
        }
        Ok((slot, new))
    }

    /// Returns the range from the oldest to the newest sample in memory, or `None` if there are no
    /// samples.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range());
        frozen
            .into_iter()
            .chain(self.live.range())
            .reduce(TimeRange::hull)
    }

    /// Returns the labels of a series.
    pub(crate) fn labels(&self, slot: u32) -> Labels {
        self.table.labels(slot)
    }

    /// Returns the labels of a series as symbols, in order of names.
    pub(crate) fn pairs(&self, slot: u32) -> impl Iterator<Item = Pair> + '_ {
        self.table.pairs(slot)
    }

    /// Returns the string of a symbol.
    pub(crate) fn symbol(&self, id: SymbolId) -> &str {
        self.table.symbol(id)
    }

    /// Compares the labels of a series with the labels of a series in another head, in the order of
    /// [`Labels`]. `order` compares a symbol of this head with a symbol of the other head.
    pub(crate) fn compare(
        &self,
        slot: u32,
        other: &Self,
        other_slot: u32,
        mut order: impl FnMut(SymbolId, SymbolId) -> Ordering,
    ) -> Ordering {
        let mut other_pairs = other.pairs(other_slot);
        for (name, value) in self.pairs(slot) {
            let Some((other_name, other_value)) = other_pairs.next() else {
                return Ordering::Greater;
            };
            let differs = order(name, other_name).then_with(|| order(value, other_value));
            if differs != Ordering::Equal {
                return differs;
            }
        }
        other_pairs
            .next()
            .map_or(Ordering::Equal, |_| Ordering::Less)
    }

    /// Returns the generation of a slot.
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.table.generation(slot)
    }

    /// Returns a slot with its generation, for use after the lock is released.
    pub(crate) fn slot_ref(&self, slot: u32) -> SlotRef {
        SlotRef {
            slot,
            generation: self.generation(slot),
        }
    }

    /// Returns `true` if the slot still names the series that it named when the reference was
    /// created.
    pub(crate) fn is_current(&self, slot_ref: SlotRef) -> bool {
        self.table.is_current(slot_ref)
    }

    /// Counts the series and label names of this head in `totals`. Must be called before the first
    /// series is created.
    pub(crate) fn count_in(&mut self, totals: HeadTotals) {
        debug_assert_eq!(self.len(), 0, "the counts of existing series would be lost");
        self.table.groups.count_in(totals.groups);
        self.table.label_names = totals.label_names;
    }

    /// Returns the number of series created so far.
    pub(crate) fn n_created(&self) -> u64 {
        self.created.n()
    }

    /// Returns the series created after the first `n_before`. Some may have been evicted. Returns
    /// `None` if there are too many.
    pub(crate) fn created_since(
        &self,
        n_before: u64,
    ) -> Option<impl Iterator<Item = SlotRef> + '_> {
        self.created.since(n_before)
    }

    /// Returns the number of references whose series was evicted.
    pub(crate) fn n_outdated(&self, slots: &[SlotRef]) -> usize {
        let outdated = slots.iter().filter(|slot_ref| !self.is_current(**slot_ref));
        outdated.count()
    }

    /// Returns the group of a series.
    pub(crate) fn group(&self, slot: u32) -> BudgetGroup {
        self.table.groups.of(slot)
    }

    /// Assigns a series to a group if it has no group.
    pub(crate) fn assign_group(&mut self, slot: u32, group: BudgetGroup) {
        if self.group(slot) == BudgetGroup::NONE {
            self.table.groups.set(slot, group);
        }
    }

    /// Removes a series from its group.
    pub(crate) fn ungroup(&mut self, slot: u32) {
        self.table.groups.set(slot, BudgetGroup::NONE);
    }

    /// Assigns each series to the group that `group_of` returns for its value of `label`. Series
    /// without the label have no group. If `label` is `None`, no series has a group.
    pub(crate) fn set_group_label(
        &mut self,
        label: Option<&str>,
        group_of: &mut dyn FnMut(&str) -> BudgetGroup,
    ) {
        let table = &mut self.table;
        // Slots are less than 2^31.
        for slot in 0..table.end() as u32 {
            table.groups.set(slot, BudgetGroup::NONE);
        }
        let Some(label) = label else { return };
        table
            .index
            .for_each_value(&table.symbols, label, |value, slots: RoaringBitmap| {
                let group = group_of(value);
                for slot in slots {
                    table.groups.set(slot, group);
                }
            });
    }

    /// Returns one more than the highest slot in use.
    pub(crate) fn end(&self) -> u32 {
        // Slots are less than 2^31.
        self.table.end() as u32
    }

    /// Returns the slots of one step of a walk over all series, or `None` after the last step. The
    /// caller may release the lock between steps.
    pub(crate) fn slots_of_step(&self, step: usize) -> Option<Range<u32>> {
        // Slots are less than 2^31.
        let end = self.table.end() as u32;
        let start = u32::try_from(step * STEP)
            .ok()
            .filter(|&start| start < end)?;
        Some(start..end.min(start + STEP as u32))
    }

    /// Returns the strings of one step of a walk over all strings, or `None` after the last step.
    /// The caller may release the lock between steps.
    pub(crate) fn symbols_of_step(
        &self,
        step: usize,
    ) -> Option<impl Iterator<Item = (SymbolId, &str)>> {
        self.table
            .symbols_of(step * SYMBOLS_STEP..(step + 1) * SYMBOLS_STEP)
    }

    /// Returns the ref of a series, or `None` if the slot has no series.
    pub(crate) fn series_ref(&self, slot: u32) -> Option<SeriesRef> {
        self.table
            .row(slot)
            .filter(|row| row.is_used())
            .map(|row| row.series)
    }

    /// Returns the ref of a series and a timestamp at or before which all its samples have been
    /// flushed (`i64::MIN` if it has none), for a checkpoint. Returns `None` if the slot has no
    /// series.
    ///
    /// The timestamp is the newest in-order timestamp, or 1 ms before the oldest float appended in
    /// order since the freeze. Samples since the freeze are in the log after the checkpoint, and
    /// must be in order when the log is replayed.
    pub(crate) fn checkpoint_entry(&self, slot: u32) -> Option<(SeriesRef, i64)> {
        let row = self.table.row(slot).filter(|row| row.is_used())?;
        let last_flushed_ms = self
            .live
            .first_in_order_ms(slot)
            .map(|first_ms| first_ms.saturating_sub(1));
        Some((
            row.series,
            last_flushed_ms.map_or(row.last_ms, |last_flushed_ms| {
                last_flushed_ms.min(row.last_ms)
            }),
        ))
    }

    /// Returns the slots of the series that pass all matchers.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn select(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<RoaringBitmap> {
        self.table
            .index
            .select(ctx, &self.table.symbols, &self.table, matchers)
    }

    /// Returns the slots of the series that may pass all matchers, and the matchers that more than
    /// `n_many` series pass, for [`Head::passes`].
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn candidates<'a>(
        &self,
        ctx: &QueryContext,
        matchers: &'a [Matcher],
        n_many: u64,
    ) -> Result<Candidates<'a>> {
        self.table
            .index
            .candidates(ctx, &self.table.symbols, &self.table, matchers, n_many)
    }

    /// Returns `true` if a series passes all matchers.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn passes(
        &self,
        ctx: &QueryContext,
        slot: u32,
        matchers: &[&Matcher],
    ) -> Result<bool> {
        passes(ctx, &self.table.symbols, &self.table, slot, matchers)
    }

    /// Returns an upper bound for the series that pass all matchers, without looking at them.
    pub(crate) fn series_max(&self, matchers: &[Matcher]) -> u64 {
        self.table.index.series_max(&self.table.symbols, matchers)
    }

    /// Returns an upper bound for the strings and series that [`Head::label_names`] visits, or
    /// [`Head::label_values`] if there is a `name`.
    pub(crate) fn label_strings_max(&self, name: Option<&str>, matchers: &[Matcher]) -> u64 {
        self.table
            .index
            .label_strings_max(&self.table.symbols, name, matchers)
    }

    /// Adds the label names of matching series (or all) to `names`.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn label_names(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        names: &mut StringSet,
    ) -> Result<()> {
        let table = &self.table;
        table
            .index
            .label_names(ctx, &table.symbols, table, matchers, names)
    }

    /// Adds the values of a label of matching series (or all) to `values`.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        matchers: &[Matcher],
        values: &mut StringSet,
    ) -> Result<()> {
        let table = &self.table;
        table
            .index
            .label_values(ctx, &table.symbols, table, name, matchers, values)
    }

    /// Counts the series of each value of a label.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn count_label(
        &self,
        ctx: &QueryContext,
        name: &str,
        counts: &mut LabelCounts,
    ) -> Result<()> {
        self.table
            .index
            .count_label(ctx, &self.table.symbols, name, counts)
    }

    /// Returns `true` if any series has a label of this name.
    pub(crate) fn has_label(&self, name: &str) -> bool {
        self.table.index.has_label(&self.table.symbols, name)
    }

    /// Returns the names of high-cardinality labels whose values are not sorted, or not sorted any
    /// more.
    pub(crate) fn unordered_labels(&self) -> Vec<SymbolId> {
        self.table.index.unordered()
    }

    /// Begins to sort the values of a label.
    pub(crate) fn begin_order(&mut self, name: SymbolId) {
        self.table.index.begin_order(name);
    }

    /// Returns the values of a label in one piece of its table, and the number of pieces. That
    /// number may grow once.
    pub(crate) fn values_of(&self, name: SymbolId, piece: usize) -> (Vec<SymbolId>, usize) {
        self.table.index.values_of(name, piece)
    }

    /// Sets the order of the values that existed at [`Head::begin_order`], and possibly later ones,
    /// sorted as strings.
    pub(crate) fn set_order(&mut self, name: SymbolId, ordered: Vec<SymbolId>) {
        self.table.index.set_order(name, ordered);
    }
}
