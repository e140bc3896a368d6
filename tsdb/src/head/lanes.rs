//! The series of several heads as one sequence in label order.
//!
//! A k-way merge, used by `select::heads`, which reads the series of all shards, and by `store::ranking`. Each input, or
//! lane, is an iterator over series of one head in label order. Lanes are compared by ranks if both heads have ranks of
//! the same ranking, and otherwise label by label.
//!
//! Threads: the heads are locked during [`Lanes::take`] only, so the caller decides how long.

use std::cmp::Ordering;
use std::ops::Deref;

use super::{Head, SlotRef};
use crate::index::SymbolId;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Lanes<S> {
    lanes: Vec<Lane<S>>,
    /// The lanes that have a next series, in descending label order of that series. Valid during a
    /// call only.
    waiting: Vec<usize>,
    equal_symbols: EqualSymbols,
}

/// Series of a head in label order.
#[derive(Debug)]
struct Lane<S> {
    head: usize,
    next: Option<SlotRef>,
    /// The rank of `next`, if it can be compared with the ranks of the other lanes.
    rank: Option<u32>,
    rest: S,
}

impl<S> Default for Lanes<S> {
    fn default() -> Self {
        Self { lanes: Vec::new(), waiting: Vec::new(), equal_symbols: EqualSymbols::default() }
    }
}

impl<S: Iterator<Item = SlotRef>> Lanes<S> {
    /// Adds series of the head with index `head`, in label order.
    pub(crate) fn push(&mut self, head: usize, mut rest: S) {
        self.lanes.push(Lane { head, next: rest.next(), rank: None, rest });
    }

    /// Returns `true` if there are no more series.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.next.is_none())
    }

    /// Takes up to `n_max` series, and calls `visit` with the index of the head and each series that was not evicted.
    /// Returns the number of series taken.
    pub(crate) fn take<H: Deref<Target = Head>>(
        &mut self,
        heads: &[H],
        n_max: usize,
        mut visit: impl FnMut(usize, SlotRef),
    ) -> usize {
        let Self { lanes, waiting, equal_symbols } = self;
        let has_common_ranks = heads.windows(2).all(|pair| pair[0].ranking() == pair[1].ranking());
        let rank = |lane: &Lane<S>| {
            let of = lane.next.filter(|&of| has_common_ranks && heads[lane.head].is_current(of))?;
            heads[lane.head].rank(of.slot)
        };
        // Since the last call, series may have been evicted and ranked.
        lanes.iter_mut().for_each(|lane| lane.rank = rank(lane));
        equal_symbols.clear();
        waiting.clear();
        waiting.extend((0..lanes.len()).filter(|&lane| lanes[lane].next.is_some()));
        waiting.sort_unstable_by(|&a, &b| compare(heads, &lanes[b], &lanes[a], equal_symbols));
        for n_taken in 0..n_max {
            let Some(first) = waiting.pop() else { return n_taken };
            let lane = &mut lanes[first];
            if let Some(of) = std::mem::replace(&mut lane.next, lane.rest.next())
                && heads[lane.head].is_current(of)
            {
                visit(lane.head, of);
            }
            lane.rank = rank(lane);
            if lane.next.is_some() {
                let after =
                    |&lane: &usize| compare(heads, &lanes[lane], &lanes[first], equal_symbols) == Ordering::Greater;
                waiting.insert(waiting.partition_point(after), first);
            }
        }
        n_max
    }
}

/// Compares the labels of the next series of two lanes. An evicted series comes first, so that it is skipped
/// immediately.
fn compare<S, H: Deref<Target = Head>>(
    heads: &[H],
    a: &Lane<S>,
    b: &Lane<S>,
    equal_symbols: &mut EqualSymbols,
) -> Ordering {
    // Fast path: both are ranked, and so not evicted.
    if let (Some(rank_a), Some(rank_b)) = (a.rank, b.rank) {
        return rank_a.cmp(&rank_b);
    }
    let current = |lane: &Lane<S>| lane.next.filter(|&of| heads[lane.head].is_current(of));
    let (Some(of_a), Some(of_b)) = (current(a), current(b)) else {
        return current(a).is_some().cmp(&current(b).is_some());
    };
    let (head_a, head_b) = (&heads[a.head], &heads[b.head]);
    head_a.compare(of_a.slot, head_b, of_b.slot, |text_a, text_b| {
        equal_symbols.order((a.head, text_a), (b.head, text_b), || head_a.symbol(text_a).cmp(head_b.symbol(text_b)))
    })
}

/// A cache of pairs of symbols of two heads with equal strings. Most labels have few values, and each head has its own
/// symbol ids. The cache is valid while both heads are locked.
#[derive(Debug, Default)]
struct EqualSymbols {
    /// Pairs of equal symbols, by a hash of the first symbol. Empty, or of [`EQUAL_SYMBOLS_MAX`] places.
    known: Vec<Option<(HeadSymbol, HeadSymbol)>>,
}

/// The index of a head, and one of its symbols.
type HeadSymbol = (usize, SymbolId);

/// Number of pairs in the cache.
const EQUAL_SYMBOLS_MAX: usize = 512;

impl EqualSymbols {
    fn clear(&mut self) {
        self.known.clear();
    }

    /// Returns the order of two strings. Calls `compare` unless the cache has the pair.
    #[inline]
    fn order(&mut self, a: HeadSymbol, b: HeadSymbol, compare: impl FnOnce() -> Ordering) -> Ordering {
        self.known.resize(EQUAL_SYMBOLS_MAX, None);
        let place = (a.1.0 as usize ^ a.0.rotate_right(8)) % EQUAL_SYMBOLS_MAX;
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
