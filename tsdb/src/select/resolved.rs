//! The series that matchers select in the heads, in label order and with the requested labels, for
//! any range of time.
//!
//! Resolved series outlive the selection that found them ([`KeptSelections`](super::kept_selections)).
//! A later selection with the same matchers learns from the heads which series were created since,
//! and tests only these. Evicted series are skipped.
//!
//! Invariants
//! 1. Of the series that are still in the heads, a list has exactly those that pass the matchers and
//!    were created before its numbers of created series were read.
//! 2. A list does not change. Adding series makes another list.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLockReadGuard;
use varve_context::{Charge, scheduler};
use varve_model::{Labels, Matcher, Sample};

use super::merged_heads::{MergedSeries, SeriesMerge};
use super::selection::{BATCH_SERIES, MatchingSeries, Place, Selection};
use crate::error::Result;
use crate::head::{Head, HeadCopies, Projection, SlotRef};
use crate::label_hint::LabelHint;

/// Maximum number of series that are added to a list. With more, the list is made again.
const ADDED_MAX: usize = if cfg!(test) { 4 } else { 256 };
/// Series in the list for each evicted one among them: with more evicted ones, the list is made
/// again.
const SERIES_PER_EVICTED: usize = 8;
/// Estimated size of the labels of a series in bytes, if all labels or all but some are requested.
const LABELS_SIZE: usize = 400;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ResolvedSeries {
    /// The series of each shard, in label order; in any order if no labels are requested.
    slots: Vec<Vec<SlotRef>>,
    /// The shard of each series, in label order. Its series are those of `slots`, in turn. Empty if
    /// no labels are requested.
    shards: Vec<u16>,
    /// The requested labels of each series in `shards`.
    labels: Vec<Labels>,
    /// Number of series that each shard had created when all of them were tested.
    n_created: Vec<AtomicU64>,
    /// Number of evicted series that the last selection found in the list.
    n_evicted: AtomicUsize,
    size: usize,
}

/// What became of a list since it was made.
pub(super) enum Updated {
    /// It has all series.
    Current,
    /// Another list has all series.
    Grown(ResolvedSeries),
    /// It must be made again.
    Outdated,
}

/// The series of a [`ResolvedSeries`] that have samples.
pub(super) struct ResolvedStream {
    resolved: Arc<ResolvedSeries>,
    copies: Arc<[HeadCopies]>,
    /// The index of the next series in `ResolvedSeries::shards`; without labels, of the next shard.
    next: usize,
    /// The index of the next series of each shard.
    next_of_shard: Vec<usize>,
    n_left: u64,
}

/// A series that is added to a list.
struct AddedSeries {
    shard: usize,
    slot_ref: SlotRef,
    labels: Labels,
    /// The number of series of each shard up to the last one before it.
    n_before: Vec<usize>,
}

impl ResolvedSeries {
    /// Resolves the series that pass all matchers: sorts them by labels and looks up the
    /// `requested` ones.
    pub(super) fn new(
        selection: &Selection<'_>,
        requested: &LabelHint,
        matching: Vec<MatchingSeries>,
        charge: &mut Charge,
    ) -> Result<Self> {
        let n_shards = selection.store.shards.len();
        let mut resolved = Self {
            slots: vec![Vec::new(); n_shards],
            n_created: (0..n_shards).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        };
        let mut merge = SeriesMerge::new(selection);
        let mut shards_of_heads = Vec::new();
        for matching in matching {
            let shard = matching.shard;
            resolved.n_created[shard] = AtomicU64::new(matching.n_created);
            let slots = slot_refs(selection, matching, charge)?;
            if matches!(requested, LabelHint::None) {
                resolved.slots[shard] = slots;
            } else if !slots.is_empty() {
                let sorted = selection.sort(&selection.store.shards[shard], &slots, charge)?;
                merge.add_sorted(shard, sorted);
                shards_of_heads.push(shard);
                charge.shrink(size_of_val(&*slots));
            }
        }
        let mut found = Vec::new();
        let mut buffers = selection.ctx.charge();
        while !merge.is_empty() {
            selection.ctx.check()?;
            scheduler::pause();
            merge.look_up(requested, &mut found);
            buffers.resize(merge.size())?;
            charge.grow(resolved.push(&shards_of_heads, found.drain(..)))?;
        }
        resolved.shrink();
        Ok(resolved)
    }

    /// Appends series. Returns by how much the list has grown.
    fn push(
        &mut self,
        shards_of_heads: &[usize],
        found: impl Iterator<Item = MergedSeries>,
    ) -> usize {
        let mut size = 0;
        for series in found {
            let labels = series.labels;
            let shard = shards_of_heads[series.head as usize];
            let is_shared = self
                .labels
                .last()
                .is_some_and(|last| last.is_shared_with(&labels));
            size += size_per_series() + if is_shared { 0 } else { labels.size() };
            self.slots[shard].push(series.slot_ref);
            // There are at most 256 shards.
            self.shards.push(shard as u16);
            self.labels.push(labels);
        }
        size
    }

    /// Frees unused memory, and computes the size. Labels that neighbors share count once.
    fn shrink(&mut self) {
        let mut size = size_of::<Self>();
        for slots in &mut self.slots {
            slots.shrink_to_fit();
            size += size_of_val(&**slots) + size_of::<Vec<SlotRef>>();
        }
        self.shards.shrink_to_fit();
        self.labels.shrink_to_fit();
        size += size_of_val(&*self.shards) + size_of_val(&*self.n_created);
        let mut before: Option<&Labels> = None;
        for labels in &self.labels {
            size += size_of::<Labels>();
            if before.is_none_or(|before| !before.is_shared_with(labels)) {
                size += labels.size();
            }
            before = Some(labels);
        }
        self.size = size;
    }

    /// Returns the size of the list in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Estimates the size of a list of `n` series in bytes.
    pub(super) fn estimated_size(n: u64, requested: &LabelHint) -> u64 {
        let labels_size = match requested {
            LabelHint::All | LabelHint::Without(_) => LABELS_SIZE,
            LabelHint::With(_) | LabelHint::None => 0,
        };
        n.saturating_mul((size_per_series() + labels_size) as u64)
    }

    pub(super) fn n_shards(&self) -> usize {
        self.slots.len()
    }

    /// Returns the series of a shard.
    pub(super) fn slots_of(&self, shard: usize) -> &[SlotRef] {
        &self.slots[shard]
    }

    /// Notes how many of the series were evicted.
    pub(super) fn note_evicted(&self, n: usize) {
        self.n_evicted.store(n, Relaxed);
    }

    fn n_series(&self) -> usize {
        self.slots.iter().map(Vec::len).sum()
    }

    /// Tests the series that were created since the list was made.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(super) fn update(
        &self,
        selection: &Selection<'_>,
        requested: &LabelHint,
        charge: &mut Charge,
    ) -> Result<Updated> {
        if self.n_evicted.load(Relaxed) > self.n_series() / SERIES_PER_EVICTED {
            return Ok(Updated::Outdated);
        }
        let matchers: Vec<_> = selection.matchers.iter().collect();
        let mut added = Vec::new();
        let mut n_created = Vec::with_capacity(self.n_shards());
        for (shard, store_shard) in selection.store.shards.iter().enumerate() {
            let head = store_shard.head();
            let n_tested = self.n_created[shard].load(Relaxed);
            n_created.push(head.n_created());
            // Fast path: no series was created.
            if head.n_created() == n_tested {
                continue;
            }
            let Some(created) = head.created_since(n_tested) else {
                return Ok(Updated::Outdated);
            };
            for slot_ref in created {
                if passes(selection, &head, slot_ref, &matchers)? {
                    added.push((shard, slot_ref));
                }
                if added.len() > ADDED_MAX {
                    return Ok(Updated::Outdated);
                }
            }
        }
        if added.is_empty() {
            for (n_tested, n_created) in self.n_created.iter().zip(n_created) {
                n_tested.fetch_max(n_created, Relaxed);
            }
            return Ok(Updated::Current);
        }
        charge.grow(self.size)?;
        let n_created = n_created.into_iter().map(AtomicU64::new).collect();
        let grown = self.grown_by(selection, requested, &added, n_created, charge)?;
        Ok(Updated::Grown(grown))
    }

    /// Returns a copy of the list with more series.
    fn grown_by(
        &self,
        selection: &Selection<'_>,
        requested: &LabelHint,
        added: &[(usize, SlotRef)],
        n_created: Vec<AtomicU64>,
        charge: &mut Charge,
    ) -> Result<Self> {
        let mut grown = Self {
            slots: self.slots.clone(),
            n_created,
            ..Self::default()
        };
        if matches!(requested, LabelHint::None) {
            for &(shard, slot_ref) in added {
                grown.slots[shard].push(slot_ref);
            }
        } else {
            grown.insert(self, &self.look_up(selection, requested, added, charge)?);
        }
        grown.shrink();
        Ok(grown)
    }

    /// Looks up the labels of new series and their places in the list. Returns them in label order.
    fn look_up(
        &self,
        selection: &Selection<'_>,
        requested: &LabelHint,
        added: &[(usize, SlotRef)],
        charge: &mut Charge,
    ) -> Result<Vec<AddedSeries>> {
        let shards = &selection.store.shards;
        let heads: Vec<_> = shards.iter().map(|shard| shard.head()).collect();
        let mut projections: Vec<_> = heads.iter().map(|_| Projection::default()).collect();
        let mut found = Vec::with_capacity(added.len());
        for &(shard, slot_ref) in added {
            let head = &heads[shard];
            // It may have been evicted since it was tested.
            if head.is_current(slot_ref) {
                let labels = projections[shard].labels(head, slot_ref.slot, requested);
                // The heads are locked.
                charge.grow_without_waiting(labels.size())?;
                found.push(AddedSeries {
                    shard,
                    slot_ref,
                    labels,
                    n_before: self.n_before(&heads, shard, slot_ref),
                });
            }
        }
        found.sort_by(|a, b| compare((&heads[a.shard], a.slot_ref), (&heads[b.shard], b.slot_ref)));
        Ok(found)
    }

    /// Returns the number of series of each shard up to the last one before a new series in label
    /// order.
    fn n_before(
        &self,
        heads: &[RwLockReadGuard<'_, Head>],
        shard: usize,
        slot_ref: SlotRef,
    ) -> Vec<usize> {
        let new = (&*heads[shard], slot_ref);
        let slots = self.slots.iter().enumerate();
        slots
            .map(|(other, slots)| {
                let head = &heads[other];
                count_before(slots, |slot_ref| {
                    head.is_current(slot_ref)
                        .then(|| compare((head, slot_ref), new) == Ordering::Less)
                })
            })
            .collect()
    }

    /// Fills the list with the series of `old` and others, in label order.
    fn insert(&mut self, old: &Self, added: &[AddedSeries]) {
        let n_series = old.shards.len() + added.len();
        self.shards.reserve_exact(n_series);
        self.labels.reserve_exact(n_series);
        let mut n_copied = vec![0; old.n_shards()];
        let mut next = 0;
        let mut slot_idxs = Vec::with_capacity(added.len());
        for series in added {
            // Copies until all series before the new one are copied, whatever evicted series are
            // between them.
            let first = next;
            let missing = series.n_before.iter().zip(&n_copied);
            let mut n_missing: usize = missing
                .map(|(n_before, n_copied)| n_before.saturating_sub(*n_copied))
                .sum();
            while n_missing > 0 {
                let shard = usize::from(old.shards[next]);
                if n_copied[shard] < series.n_before[shard] {
                    n_missing -= 1;
                }
                n_copied[shard] += 1;
                next += 1;
            }
            self.shards.extend_from_slice(&old.shards[first..next]);
            self.labels.extend_from_slice(&old.labels[first..next]);
            // There are at most 256 shards.
            self.shards.push(series.shard as u16);
            self.labels.push(series.labels.clone());
            slot_idxs.push(n_copied[series.shard]);
        }
        self.shards.extend_from_slice(&old.shards[next..]);
        self.labels.extend_from_slice(&old.labels[next..]);
        // From the last to the first, so that indexes remain valid.
        for (series, slot_idx) in added.iter().zip(slot_idxs).rev() {
            self.slots[series.shard].insert(slot_idx, series.slot_ref);
        }
    }
}

impl ResolvedStream {
    /// Creates a stream of the series that have samples in `copies`, which has the copies of each
    /// shard.
    pub(super) fn new(resolved: Arc<ResolvedSeries>, copies: Arc<[HeadCopies]>) -> Self {
        Self {
            n_left: resolved.n_series() as u64,
            next_of_shard: vec![0; resolved.n_shards()],
            next: 0,
            resolved,
            copies,
        }
    }

    /// Returns an upper bound for the number of remaining series.
    pub(super) fn len(&self) -> u64 {
        self.n_left
    }

    /// Returns the next series.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(Labels, Place)> {
        let place = self.advance()?;
        let labels = self.current_labels().cloned().unwrap_or_default();
        Some((labels, place))
    }

    /// Returns the labels of the series that [`ResolvedStream::advance`] returned; `None` if no
    /// labels are requested.
    fn current_labels(&self) -> Option<&Labels> {
        // Without labels, the list of labels is empty.
        self.resolved.labels.get(self.next.wrapping_sub(1))
    }

    /// Returns the place of the next series.
    #[inline]
    fn advance(&mut self) -> Option<Place> {
        let resolved = &*self.resolved;
        while self.n_left > 0 {
            let shard = if resolved.shards.is_empty() {
                // Without labels: shard by shard.
                if self.next_of_shard[self.next] == resolved.slots[self.next].len() {
                    self.next += 1;
                    continue;
                }
                self.next
            } else {
                self.next += 1;
                usize::from(resolved.shards[self.next - 1])
            };
            let at = self.next_of_shard[shard];
            self.next_of_shard[shard] += 1;
            self.n_left -= 1;
            if self.copies[shard].has(at) {
                // A head has fewer than 2^32 series, and there are at most 256 shards.
                return Some(Place {
                    head: shard as u32,
                    at: at as u32,
                });
            }
        }
        None
    }

    /// Returns a stream of all series again, if the newest samples of all of them are floats that
    /// were decoded when they were copied.
    pub(super) fn newest_floats(&self) -> Option<Self> {
        let has_only_newest_floats = self.copies.iter().all(HeadCopies::has_only_newest_floats);
        has_only_newest_floats
            .then(|| Self::new(Arc::clone(&self.resolved), Arc::clone(&self.copies)))
    }

    /// Calls `visit` with the labels and the newest sample of each series that
    /// [`ResolvedStream::newest_floats`] has.
    pub(super) fn each_newest_float<E>(
        mut self,
        mut visit: impl FnMut(&Labels, Sample) -> Result<(), E>,
    ) -> Result<(), E> {
        let none = Labels::empty();
        while let Some(Place { head, at }) = self.advance() {
            if let Some(newest) = self.copies[head as usize].newest_float(at as usize) {
                visit(self.current_labels().unwrap_or(&none), newest)?;
            }
        }
        Ok(())
    }
}

/// Returns references to the matching series of a shard.
fn slot_refs(
    selection: &Selection<'_>,
    matching: MatchingSeries,
    charge: &mut Charge,
) -> Result<Vec<SlotRef>> {
    let n_series = matching.slots.len() as usize;
    charge.grow(n_series * size_of::<SlotRef>())?;
    let mut found = Vec::with_capacity(n_series);
    let mut slots = matching.slots.into_iter();
    while slots.len() > 0 {
        selection.ctx.check()?;
        scheduler::pause();
        let head = selection.store.shards[matching.shard].head();
        found.extend(head.slot_refs(slots.by_ref().take(BATCH_SERIES)));
    }
    Ok(found)
}

/// Returns `true` if a new series still exists and passes all matchers.
fn passes(
    selection: &Selection<'_>,
    head: &Head,
    slot_ref: SlotRef,
    matchers: &[&Matcher],
) -> Result<bool> {
    Ok(head.is_current(slot_ref) && head.passes(selection.ctx, slot_ref.slot, matchers)?)
}

/// Compares the labels of series of two heads.
fn compare(a: (&Head, SlotRef), b: (&Head, SlotRef)) -> Ordering {
    a.0.compare(a.1.slot, b.0, b.1.slot, |text_a, text_b| {
        a.0.symbol(text_a).cmp(b.0.symbol(text_b))
    })
}

/// Returns the number of the sorted `slots` up to the last one before some series. `is_before`
/// returns `None` for an evicted series, whose place does not matter.
fn count_before(slots: &[SlotRef], is_before: impl Fn(SlotRef) -> Option<bool>) -> usize {
    let mut start = 0;
    let mut end = slots.len();
    while start < end {
        let middle = start + (end - start) / 2;
        // The first series from the middle on that is still there.
        let known = (middle..end).find_map(|at| Some((at, is_before(slots[at])?)));
        match known {
            Some((at, true)) => start = at + 1,
            Some((_, false)) | None => end = middle,
        }
    }
    start
}

const fn size_per_series() -> usize {
    size_of::<SlotRef>() + size_of::<u16>() + size_of::<Labels>()
}
