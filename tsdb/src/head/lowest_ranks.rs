//! Picking the first series of a head in label order out of many, without sorting them.
//!
//! Ranks are an array, and most of them are compared many at a time, so that millions of series take
//! milliseconds. The series are picked in rounds: the next ones in label order in each. A series
//! without a rank is picked in the order of slots.

use std::ops::Range;

use super::head::Head;
use super::table::UNRANKED;

/// Number of ranks that are compared at a time. A few hundred would be as fast, but one that can be
/// picked is among them more often.
const RANKS_AT_ONCE: usize = 64;

/// The series of a round.
#[derive(Debug, Default)]
pub(crate) struct Picked {
    /// The slots of the series with the lowest ranks, in label order.
    pub(crate) ranked: Vec<u32>,
    /// Slots of series without a rank, ascending.
    pub(crate) unranked: Vec<u32>,
    /// `true` if further series have a rank.
    pub(crate) has_more_ranked: bool,
    /// `true` if further series have no rank.
    pub(crate) has_more_unranked: bool,
}

/// The state of a round, while all series are offered to it.
#[derive(Debug)]
pub(crate) struct LowestRanks {
    /// Maximum number of series of either kind that are picked.
    n_max: usize,
    /// The ranks that can still be picked.
    ranks: Range<u32>,
    /// Ranks and slots, up to twice the maximum.
    lowest: Vec<(u32, u32)>,
    /// Slots without a rank from here on can be picked.
    unranked_from: u32,
    picked: Picked,
}

impl LowestRanks {
    /// Begins the first round, which picks up to `n_max` series with a rank, and as many without.
    pub(crate) fn new(n_max: usize) -> Self {
        Self {
            n_max,
            ranks: 0..UNRANKED,
            lowest: Vec::new(),
            unranked_from: 0,
            picked: Picked::default(),
        }
    }

    /// Returns the maximum size of a round of `n_max` series in bytes.
    pub(crate) fn size_max(n_max: usize) -> usize {
        n_max * (2 * size_of::<(u32, u32)>() + 2 * size_of::<u32>())
    }

    /// Offers the series of some slots, which come after those offered before. Slots that do not
    /// exist are skipped.
    pub(crate) fn offer(&mut self, head: &Head, slots: Range<u32>) {
        let mut slot = slots.start;
        let slots = slots.start as usize..slots.end as usize;
        for ranks in head.table.ranks.slices(slots) {
            for ranks in ranks.chunks(RANKS_AT_ONCE) {
                // Fast path: none of them can be picked.
                if self.may_pick_any(ranks) {
                    self.offer_each(slot, ranks);
                }
                // Slots are less than 2^31.
                slot += ranks.len() as u32;
            }
        }
    }

    /// Returns `false` if no series with one of these ranks can be picked.
    fn may_pick_any(&self, ranks: &[u32]) -> bool {
        let first = self.ranks.start;
        let n_ranks = self.ranks.end - first;
        let needs_unranked =
            self.picked.unranked.len() < self.n_max || !self.picked.has_more_unranked;
        // Without a branch per rank, so that it is compiled to vector instructions.
        let mut any = false;
        for &rank in ranks {
            any |= rank.wrapping_sub(first) < n_ranks;
            any |= rank == UNRANKED && needs_unranked;
        }
        any
    }

    /// Offers the series of consecutive slots.
    fn offer_each(&mut self, first_slot: u32, ranks: &[u32]) {
        for (slot, &rank) in (first_slot..).zip(ranks) {
            if self.ranks.contains(&rank) {
                self.lowest.push((rank, slot));
                if self.lowest.len() >= 2 * self.n_max {
                    self.drop_highest();
                }
            } else if rank == UNRANKED && slot >= self.unranked_from {
                if self.picked.unranked.len() < self.n_max {
                    self.picked.unranked.push(slot);
                } else {
                    self.picked.has_more_unranked = true;
                }
            }
        }
    }

    /// Keeps the maximum number of series. From now on, only lower ranks are picked.
    fn drop_highest(&mut self) {
        if self.lowest.len() <= self.n_max {
            return;
        }
        let (_, &mut (end, _), _) = self.lowest.select_nth_unstable(self.n_max);
        self.lowest.truncate(self.n_max);
        self.ranks.end = end;
        self.picked.has_more_ranked = true;
    }

    /// Ends a round after all series were offered. Returns its series, and begins the next round,
    /// which picks up to `n_max` series after them.
    pub(crate) fn next_round(&mut self, n_max: usize) -> Picked {
        self.drop_highest();
        self.lowest.sort_unstable();
        let mut picked = std::mem::take(&mut self.picked);
        picked.ranked = self.lowest.drain(..).map(|(_, slot)| slot).collect();
        self.ranks = self.ranks.end..UNRANKED;
        if let Some(last) = picked.unranked.last() {
            self.unranked_from = last + 1;
        }
        self.n_max = n_max;
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::super::label_order::{Ranks, SeriesOrder};
    use super::*;
    use crate::batch::SeriesRef;
    use proptest::prelude::*;
    use varve_context::QueryContext;
    use varve_model::Labels;

    /// Creates a head whose series have these ranks, or none.
    fn head_with(ranks: &[Option<u32>]) -> Head {
        let mut head = Head::new(0);
        for i in 0..ranks.len() as u64 {
            let labels = Labels::from_pairs([("i", &*i.to_string())]).unwrap();
            head.find_or_create(&labels, SeriesRef(i)).unwrap();
        }
        let all = head.slot_refs(0..ranks.len() as u32).collect();
        let order = SeriesOrder::new(all, 0, QueryContext::unbounded().charge());
        let mut of_slots = Ranks::new(&order);
        for (slot, rank) in (0..).zip(ranks) {
            if let Some(rank) = rank {
                of_slots.set(slot, *rank);
            }
        }
        head.set_ranks(of_slots, 1);
        head
    }

    proptest! {
        #[test]
        fn rounds_are_in_label_order_and_have_each_series_once(
            keys in proptest::collection::vec(any::<(u32, bool)>(), 1..400), n_first in 1..20_usize, n_later in 1..20_usize,
            ends in proptest::collection::vec(0..400_u32, 0..10),
        ) {
            let mut by_key: Vec<usize> = (0..keys.len()).collect();
            by_key.sort_by_key(|&slot| keys[slot].0);
            let mut ranks = vec![None; keys.len()];
            for (rank, &slot) in by_key.iter().enumerate() {
                if keys[slot].1 {
                    ranks[slot] = Some(rank as u32);
                }
            }
            let head = head_with(&ranks);
            // The offered ranges, one after the other.
            let mut ends: Vec<u32> = ends.into_iter().filter(|&end| end <= keys.len() as u32).collect();
            ends.extend([0, keys.len() as u32]);
            ends.sort_unstable();

            let mut lowest = LowestRanks::new(n_first);
            let mut n_max = n_first;
            let mut ranked = Vec::new();
            let mut unranked = Vec::new();
            loop {
                for range in ends.windows(2) {
                    lowest.offer(&head, range[0]..range[1]);
                }
                let round = lowest.next_round(n_later);
                prop_assert!(round.ranked.len() <= n_max && round.unranked.len() <= n_max);
                prop_assert!(!round.has_more_ranked || round.ranked.len() == n_max);
                prop_assert!(!round.has_more_unranked || round.unranked.len() == n_max);
                ranked.extend(round.ranked);
                unranked.extend(round.unranked);
                if !round.has_more_ranked && !round.has_more_unranked {
                    break;
                }
                n_max = n_later;
            }
            let in_order: Vec<_> = by_key.iter().map(|&slot| slot as u32).filter(|&slot| ranks[slot as usize].is_some()).collect();
            let others: Vec<_> = (0..keys.len() as u32).filter(|&slot| ranks[slot as usize].is_none()).collect();
            prop_assert_eq!((ranked, unranked), (in_order, others));
        }
    }
}
