//! The series of a selection in the heads of all shards, in label order as one stream.
//!
//! What is needed of the samples is copied first, shard by shard. Labels are looked up while the caller reads, some hundred
//! series under the locks at a time. A shard brings its own series in order by rank or symbols; series of two shards are
//! compared by their texts, up to the first label that differs.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, RwLockReadGuard};

use super::hints::LabelHint;
use super::{BATCH_SERIES, Need, Place, Selection};
use crate::chunk::Damaged;
use crate::context::QueryContext;
use crate::error::Result;
use crate::head::{Head, HeadCopies, Projection, SlotRef};
use crate::index::SymbolId;
use crate::labels::Labels;
use crate::memory::Charge;
use crate::sample::{SampleColumns, TimeRange};
use crate::shard::Shard;
use crate::store::Store;

/// Series of two shards that are compared while their heads are locked.
const MERGED_AT_ONCE: usize = 1024;

/// The selected series of all heads.
pub(super) struct HeadStream {
    store: Arc<Store>,
    /// Ascending by shard, which is the order in which they are locked.
    heads: Vec<OfHead>,
    /// In label order.
    series: std::vec::IntoIter<OneOf>,
    labels: VecDeque<(Labels, Place)>,
}

/// One of the heads, of which something is selected.
struct OfHead {
    shard: usize,
    projection: Projection,
}

/// The samples that were copied of one head.
#[derive(Debug)]
pub(super) struct HeadReads {
    copies: HeadCopies,
    /// The slots that were copied, ascending: the place of a slot here is that of its samples in `copies`. Empty if only
    /// labels are needed.
    copied: Vec<SlotRef>,
}

impl HeadReads {
    /// Appends the samples of a slot that was copied.
    ///
    /// # Errors
    /// [`Damaged`] if memory was overwritten.
    pub(super) fn read(&self, slot: u32, range: TimeRange, out: &mut SampleColumns) -> Result<(), Damaged> {
        self.copies.read(self.copied.partition_point(|of| of.slot < slot), range, out)
    }
}

/// A series of one of the heads, by its place among them.
#[derive(Debug, Clone, Copy)]
struct OneOf {
    head: u32,
    of: SlotRef,
}

impl HeadStream {
    /// Copies what a selection needs of all heads; `None` if that is nothing.
    pub(super) fn new(selection: &Selection<'_>, charge: &mut Charge) -> Result<Option<(Self, Vec<HeadReads>)>> {
        let (mut heads, mut reads, mut lists) = (Vec::new(), Vec::new(), VecDeque::new());
        for shard in 0..selection.store.shards.len() {
            let Some((of_head, sorted)) = HeadReads::new(selection, shard, charge)? else { continue };
            // There are less than 2^32 shards.
            let head = heads.len() as u32;
            charge.grow(sorted.len() * size_of::<OneOf>())?;
            lists.push_back(sorted.into_iter().map(|of| OneOf { head, of }).collect());
            heads.push(OfHead { shard, projection: Projection::default() });
            reads.push(of_head);
        }
        let store = Arc::clone(selection.store);
        let Some(series) = merge_all(selection.ctx, &store, &heads, lists, charge)? else { return Ok(None) };
        Ok(Some((Self { store, heads, series: series.into_iter(), labels: VecDeque::new() }, reads)))
    }

    /// Counts the series that are still to come.
    pub(super) fn len(&self) -> u64 {
        (self.series.len() + self.labels.len()) as u64
    }

    /// Returns the next series, with the labels that are asked for.
    pub(super) fn next(&mut self, ctx: &QueryContext, asked: &LabelHint) -> Result<Option<(Labels, Place)>> {
        if self.labels.is_empty() {
            ctx.check()?;
            let Self { store, heads, series, labels } = self;
            let locked = lock(store, heads);
            for OneOf { head, of } in series.by_ref().take(BATCH_SERIES) {
                let at = head as usize;
                if locked[at].is_current(of) {
                    let own = heads[at].projection.labels(&locked[at], of.slot, asked);
                    labels.push_back((own, Place { part: head, at: of.slot }));
                }
            }
        }
        Ok(self.labels.pop_front())
    }

    /// Tells whether the heads have labels of one of these names.
    pub(super) fn has_label(&self, names: &[&str]) -> bool {
        let locked = lock(&self.store, &self.heads);
        names.iter().any(|name| locked.iter().any(|head| head.has_label(name)))
    }
}

impl HeadReads {
    /// Copies what a selection needs of a shard's head, and returns it with its series in label order; `None` if that is
    /// nothing.
    fn new(selection: &Selection<'_>, shard: usize, charge: &mut Charge) -> Result<Option<(Self, Vec<SlotRef>)>> {
        let Selection { ctx, store, matchers, range, need, .. } = *selection;
        let of_store = &store.shards[shard];
        let slots: Vec<SlotRef> = {
            let head = of_store.head();
            if !head.range().is_some_and(|of_head| of_head.overlaps(range)) {
                return Ok(None);
            }
            let slots = head.select(ctx, matchers)?;
            charge.grow_at_once(slots.len() as usize * size_of::<SlotRef>() * 2)?;
            slots.into_iter().map(|slot| head.slot_ref(slot)).collect()
        };
        let (copies, mut copied) = copy(selection, of_store, slots, charge)?;
        if copied.is_empty() {
            return Ok(None);
        }
        // Runs and what they are merged into, besides the list itself.
        let sorting_size = copied.len() * size_of::<SlotRef>() * 3;
        charge.grow(sorting_size)?;
        let sorted = of_store.sort_slots(ctx, &copied)?;
        charge.shrink(sorting_size);
        if need == Need::Labels {
            // Only who reads samples asks for their places.
            copied = Vec::new();
        }
        Ok(Some((Self { copies, copied }, sorted)))
    }
}

/// Copies what is needed of `slots`, and returns it with those of them that have samples in the range.
fn copy(
    selection: &Selection<'_>,
    of_store: &Shard,
    mut slots: Vec<SlotRef>,
    charge: &mut Charge,
) -> Result<(HeadCopies, Vec<SlotRef>)> {
    let Selection { ctx, range, need, visible, .. } = *selection;
    let mut copies = if need == Need::Samples { HeadCopies::default() } else { HeadCopies::of_newest() };
    let mut scratch = HeadCopies::of_newest();
    let mut n_copied = 0;
    for first in (0..slots.len()).step_by(BATCH_SERIES) {
        ctx.check()?;
        let before = copies.size();
        let head = of_store.head();
        for at in first..slots.len().min(first + BATCH_SERIES) {
            let of = slots[at];
            let found = match need {
                Need::Samples | Need::Newest => head.copy_one(of, range, visible, &mut copies),
                Need::Labels => head.has_sample(of, range, visible, &mut scratch),
            };
            if found {
                // Those that are found move to the front, over those that are not: a second list would be as large.
                slots[n_copied] = of;
                n_copied += 1;
            }
        }
        drop(head);
        charge.grow(copies.size() - before)?;
    }
    slots.truncate(n_copied);
    Ok((copies, slots))
}

fn lock<'a>(store: &'a Store, heads: &[OfHead]) -> Vec<RwLockReadGuard<'a, Head>> {
    heads.iter().map(|of| store.shards[of.shard].head()).collect()
}

/// Merges the ordered series of each head into one list, two lists at a time; `None` if there are no series.
fn merge_all(
    ctx: &QueryContext,
    store: &Store,
    heads: &[OfHead],
    mut lists: VecDeque<Vec<OneOf>>,
    charge: &mut Charge,
) -> Result<Option<Vec<OneOf>>> {
    loop {
        let Some(a) = lists.pop_front() else { return Ok(None) };
        let Some(b) = lists.pop_front() else { return Ok(Some(a)) };
        let merging_size = (a.len() + b.len()) * size_of::<OneOf>();
        charge.grow(merging_size)?;
        lists.push_back(merge(ctx, store, heads, &a, &b)?);
        charge.shrink(merging_size);
    }
}

/// Merges two ordered lists, which have no series in common: a series is of one shard.
fn merge(ctx: &QueryContext, store: &Store, heads: &[OfHead], a: &[OneOf], b: &[OneOf]) -> Result<Vec<OneOf>> {
    let (mut a, mut b, mut merged) = (a, b, Vec::with_capacity(a.len() + b.len()));
    let mut twins = Twins::default();
    while !a.is_empty() && !b.is_empty() {
        ctx.check()?;
        let locked = lock(store, heads);
        twins.clear();
        for _ in 0..MERGED_AT_ONCE {
            let ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) = (a, b) else { break };
            if compare(&locked, *first_a, *first_b, &mut twins) == Ordering::Less {
                merged.push(*first_a);
                a = rest_a;
            } else {
                merged.push(*first_b);
                b = rest_b;
            }
        }
    }
    merged.extend_from_slice(a);
    merged.extend_from_slice(b);
    Ok(merged)
}

/// Compares the labels of two series. One that is gone, which is passed over later, may stand anywhere.
fn compare(locked: &[RwLockReadGuard<'_, Head>], a: OneOf, b: OneOf, twins: &mut Twins) -> Ordering {
    let (head_a, head_b) = (&locked[a.head as usize], &locked[b.head as usize]);
    if !head_a.is_current(a.of) || !head_b.is_current(b.of) {
        return Ordering::Less;
    }
    head_a.compare(a.of.slot, head_b, b.of.slot, |of_a, of_b| {
        twins.order((a.head, of_a), (b.head, of_b), || head_a.symbol(of_a).cmp(head_b.symbol(of_b)))
    })
}

/// Symbols of two heads that were found to be one text: of most labels there are few, and each head numbers texts by itself.
/// Holds for as long as both are locked.
#[derive(Default)]
struct Twins {
    /// By what the first symbol leads to.
    known: Vec<Option<(OfHeadSymbol, OfHeadSymbol)>>,
}

/// The place of a head, and a symbol of it.
type OfHeadSymbol = (u32, SymbolId);

/// Pairs that are known at a time.
const TWINS_MAX: usize = 512;

impl Twins {
    fn clear(&mut self) {
        self.known.clear();
        self.known.resize(TWINS_MAX, None);
    }

    /// Returns the order of two texts; `compare` tells it where it is not known that they are the same.
    #[inline]
    fn order(&mut self, a: OfHeadSymbol, b: OfHeadSymbol, compare: impl FnOnce() -> Ordering) -> Ordering {
        let place = (a.1.0 ^ a.0.rotate_right(8)) as usize % TWINS_MAX;
        if self.known[place] == Some((a, b)) {
            return Ordering::Equal;
        }
        let order = compare();
        if order == Ordering::Equal {
            self.known[place] = Some((a, b));
        }
        order
    }
}
