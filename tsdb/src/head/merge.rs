//! The series of several heads as one sequence in label order.
//!
//! A k-way merge, used by `select::heads`, which reads the series of all shards, and by
//! `store::ranking`. Each input is an iterator over series of one head in label order. Inputs are
//! compared by ranks if both heads have ranks of the same ranking, and otherwise label by label.
//!
//! [`HeadMerge::take_unmerged`] takes the series head by head instead, for selections in any order.
//!
//! Threads: the heads are locked during [`HeadMerge::take`] only, so the caller decides how long.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Deref;

use varve_collections::prefetch;

use super::head::Head;
use super::table::SlotRef;
use crate::index::SymbolId;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct HeadMerge<S> {
    inputs: Vec<Input<S>>,
    /// The inputs that have a next series, in descending label order of that series. Valid during a
    /// call only.
    waiting: Vec<usize>,
    equal_symbols: EqualSymbols,
}

/// Series of a head in label order.
#[derive(Debug)]
struct Input<S> {
    head: usize,
    next: Option<SlotRef>,
    /// The rank of `next`, if it can be compared with the ranks of the other inputs.
    rank: Option<u32>,
    /// The series after `next` that were prefetched.
    upcoming: VecDeque<SlotRef>,
    rest: S,
}

impl<S: Iterator<Item = SlotRef>> Input<S> {
    /// Extends the upcoming series to `n`, and prefetches their ranks.
    fn prefetch(&mut self, head: &Head, n: usize) {
        let n_known = self.upcoming.len();
        self.upcoming
            .extend(self.rest.by_ref().take(n.saturating_sub(n_known)));
        prefetch(
            self.upcoming
                .range(n_known..)
                .map(|slot_ref| head.order_word(slot_ref.slot)),
        );
    }

    /// Returns the next series and advances to the one after it.
    fn advance(&mut self) -> Option<SlotRef> {
        let after = self.upcoming.pop_front().or_else(|| self.rest.next());
        std::mem::replace(&mut self.next, after)
    }
}

impl<S> Default for HeadMerge<S> {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            waiting: Vec::new(),
            equal_symbols: EqualSymbols::default(),
        }
    }
}

impl<S: Iterator<Item = SlotRef>> HeadMerge<S> {
    /// Adds series of the head with index `head`, in label order.
    pub(crate) fn push(&mut self, head: usize, mut rest: S) {
        self.inputs.push(Input {
            head,
            next: rest.next(),
            rank: None,
            upcoming: VecDeque::new(),
            rest,
        });
    }

    /// Returns `true` if there are no more series.
    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.iter().all(|input| input.next.is_none())
    }

    /// Takes up to `n_max` series, and calls `visit` with the index of the head and each series
    /// that was not evicted. Returns the number of series taken.
    pub(crate) fn take<H: Deref<Target = Head>>(
        &mut self,
        heads: &[H],
        n_max: usize,
        mut visit: impl FnMut(usize, SlotRef),
    ) -> usize {
        let Self {
            inputs,
            waiting,
            equal_symbols,
        } = self;
        let has_common_ranks = heads
            .windows(2)
            .all(|pair| pair[0].ranking() == pair[1].ranking());
        let rank = |input: &Input<S>| {
            let next = input.next?;
            if has_common_ranks && heads[input.head].is_current(next) {
                heads[input.head].rank(next.slot)
            } else {
                None
            }
        };
        let n_each = n_max / inputs.len().max(1) + 1;
        for input in &mut *inputs {
            input.prefetch(&heads[input.head], n_each);
        }
        // Since the last call, series may have been evicted and ranked.
        for input in &mut *inputs {
            input.rank = rank(input);
        }
        equal_symbols.clear();
        waiting.clear();
        waiting.extend((0..inputs.len()).filter(|&input| inputs[input].next.is_some()));
        waiting.sort_unstable_by(|&a, &b| compare(heads, &inputs[b], &inputs[a], equal_symbols));
        for n_taken in 0..n_max {
            let Some(first) = waiting.pop() else {
                return n_taken;
            };
            let input = &mut inputs[first];
            if let Some(slot_ref) = input.advance()
                && heads[input.head].is_current(slot_ref)
            {
                visit(input.head, slot_ref);
            }
            input.rank = rank(input);
            if input.next.is_some() {
                let idx = waiting.partition_point(|&other| {
                    compare(heads, &inputs[other], &inputs[first], equal_symbols)
                        == Ordering::Greater
                });
                waiting.insert(idx, first);
            }
        }
        n_max
    }

    /// Takes up to `n_max` series as [`HeadMerge::take`] does, but head by head, in the order of
    /// the inputs.
    pub(crate) fn take_unmerged<H: Deref<Target = Head>>(
        &mut self,
        heads: &[H],
        n_max: usize,
        mut visit: impl FnMut(usize, SlotRef),
    ) -> usize {
        let mut n_taken = 0;
        for input in &mut self.inputs {
            while n_taken < n_max
                && let Some(slot_ref) = input.advance()
            {
                n_taken += 1;
                if heads[input.head].is_current(slot_ref) {
                    visit(input.head, slot_ref);
                }
            }
        }
        n_taken
    }
}

/// Compares the labels of the next series of two inputs. An evicted series comes first, so that it
/// is skipped immediately.
fn compare<S, H: Deref<Target = Head>>(
    heads: &[H],
    a: &Input<S>,
    b: &Input<S>,
    equal_symbols: &mut EqualSymbols,
) -> Ordering {
    // Fast path: both are ranked, and so not evicted.
    if let (Some(rank_a), Some(rank_b)) = (a.rank, b.rank) {
        return rank_a.cmp(&rank_b);
    }
    let current = |input: &Input<S>| {
        let head = &heads[input.head];
        input.next.filter(|&next| head.is_current(next))
    };
    let (Some(next_a), Some(next_b)) = (current(a), current(b)) else {
        return current(a).is_some().cmp(&current(b).is_some());
    };
    let head_a = &heads[a.head];
    let head_b = &heads[b.head];
    head_a.compare(next_a.slot, head_b, next_b.slot, |text_a, text_b| {
        equal_symbols.order((a.head, text_a), (b.head, text_b), || {
            head_a.symbol(text_a).cmp(head_b.symbol(text_b))
        })
    })
}

/// A cache of pairs of symbols of two heads with equal strings. Most labels have few values, and
/// each head has its own symbol ids. The cache is valid while both heads are locked.
#[derive(Debug, Default)]
struct EqualSymbols {
    /// Pairs of equal symbols, by a hash of the first symbol. Empty, or of [`EQUAL_SYMBOLS_MAX`]
    /// places.
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
    fn order(
        &mut self,
        a: HeadSymbol,
        b: HeadSymbol,
        compare: impl FnOnce() -> Ordering,
    ) -> Ordering {
        self.known.resize(EQUAL_SYMBOLS_MAX, None);
        let idx = (a.1.0 as usize ^ a.0.rotate_right(8)) % EQUAL_SYMBOLS_MAX;
        if self.known[idx] == Some((a, b)) {
            return Ordering::Equal;
        }
        let order = compare();
        if order == Ordering::Equal {
            self.known[idx] = Some((a, b));
        }
        order
    }
}
