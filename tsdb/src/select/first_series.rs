//! The first series of a selection in the head of one shard, for requests with a limit.
//!
//! A selection without a limit visits every series to learn whether it has samples in the range.
//! With a limit, the work does not grow with the series that match, except for comparing ranks:
//!
//! 1. The index returns the candidates. It does not unite the series of matchers that many series
//!    pass: these matchers are tested on each candidate that is visited.
//! 2. The candidates with the lowest ranks are picked and visited in label order, until enough of
//!    them have samples. If too few have, the next ones are picked, many more at a time.
//! 3. Series without a rank are visited in the order of slots. If there are more than are picked in
//!    the first round, others may come before them in label order.
//!
//! If a postponed matcher drops most candidates, or ranks change meanwhile, the selection begins
//! again with the exact series.

use roaring::RoaringBitmap;
use varve_context::{Charge, scheduler};

use super::selection::{BATCH_SERIES, Selection};
use crate::error::Result;
use crate::head::{HeadCopies, LowestRanks, SlotRef};
use crate::index::{Candidates, SlotRanges};
use crate::shard::Shard;

/// Matchers that more than this number of series pass are tested on the candidates.
const MANY_SERIES: u64 = if cfg!(test) { 16 } else { 1 << 14 };
/// Minimum number of series picked in the first round.
const PICKED_MIN: usize = if cfg!(test) { 8 } else { 1 << 10 };
/// A round picks this many times the series of the round before it.
const ROUND_GROWTH: usize = 16;
/// Number of slots whose ranks are compared per acquisition of the lock.
const BATCH_SLOTS: usize = 1 << 14;
/// Maximum number of candidates that fail a postponed matcher, besides those below.
const FAILED_MIN: usize = if cfg!(test) { 16 } else { 1 << 12 };
/// Further candidates that may fail for each series of the limit.
const FAILED_SHARE: usize = 8;
/// One more candidate may fail for this many: visiting them takes a small part of the time in which
/// the exact series are found.
const CANDIDATES_PER_FAILURE: usize = 512;

/// The candidates of a shard and what was found of them.
struct Search<'a> {
    selection: &'a Selection<'a>,
    shard: &'a Shard,
    candidates: Candidates<'a>,
    /// The number of the ranking whose ranks are compared.
    ranking: u64,
    n_max: usize,
    /// Number of candidates that may fail a postponed matcher.
    n_failures_left: usize,
    /// All candidates so far that pass have samples in the range.
    all_have_samples: bool,
    scratch: HeadCopies,
    found: Found,
}

/// The series that have samples, of those visited.
#[derive(Debug, Default)]
struct Found {
    ranked: Vec<SlotRef>,
    unranked: Vec<SlotRef>,
    /// Number of candidates that were visited, and of rounds.
    n_visited: usize,
    n_rounds: usize,
}

/// Why a search cannot go on.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Too many candidates failed a postponed matcher, or the ranks changed.
    BeginAgain,
}

/// Returns up to `n_max` series that pass all matchers and have samples in the range, in label
/// order.
///
/// # Errors
/// If the request is interrupted or exceeds its memory limit.
pub(super) fn first_series(
    selection: &Selection<'_>,
    shard: &Shard,
    n_max: usize,
    charge: &mut Charge,
) -> Result<Vec<SlotRef>> {
    let Found {
        ranked: mut slots,
        unranked,
        ..
    } = find(selection, shard, n_max)?;
    slots.extend(unranked);
    charge.grow(size_of_val(&*slots))?;
    let mut sorted = selection.sort(shard, &slots, charge)?;
    sorted.truncate(n_max);
    Ok(sorted)
}

/// Finds up to `n_max` series with a rank, the first ones in label order, and some without.
fn find(selection: &Selection<'_>, shard: &Shard, n_max: usize) -> Result<Found> {
    let Selection { ctx, matchers, .. } = *selection;
    let mut candidates = shard.head().candidates(ctx, matchers, MANY_SERIES)?;
    let mut n_visited = 0;
    loop {
        let mut search = Search {
            selection,
            shard,
            candidates,
            ranking: shard.head().ranking(),
            n_max,
            n_failures_left: 0,
            all_have_samples: true,
            scratch: HeadCopies::of_newest(),
            found: Found {
                n_visited,
                ..Found::default()
            },
        };
        search.n_failures_left =
            FAILED_MIN + FAILED_SHARE * n_max + search.n_candidates() / CANDIDATES_PER_FAILURE;
        if search.run()? == Outcome::Done {
            return Ok(search.found);
        }
        n_visited = search.found.n_visited;
        candidates = Candidates {
            series: Some(shard.head().select(ctx, matchers)?),
            postponed: Vec::new(),
        };
    }
}

impl Search<'_> {
    fn run(&mut self) -> Result<Outcome> {
        let ctx = self.selection.ctx;
        let mut charge = ctx.charge();
        let series = self.candidates.series.as_ref();
        charge.grow(series.map_or(0, RoaringBitmap::serialized_size))?;
        let mut n_picked = PICKED_MIN.max(2 * self.n_max);
        let mut lowest = LowestRanks::new(n_picked);
        let mut is_first_round = true;
        loop {
            self.found.n_rounds += 1;
            let mut picking = ctx.charge();
            picking.grow(LowestRanks::size_max(n_picked.min(self.n_candidates())))?;
            if self.offer_all(&mut lowest)? == Outcome::BeginAgain {
                return Ok(Outcome::BeginAgain);
            }
            n_picked = n_picked.saturating_mul(ROUND_GROWTH);
            if !self.candidates.postponed.is_empty() && self.all_have_samples {
                // No more are visited: they are found, or one failure too many ends the search.
                n_picked = n_picked.min(self.n_max + self.n_failures_left + 1);
            }
            let round = lowest.next_round(n_picked);
            if self.visit(&round.ranked, IsRanked::Yes)? == Outcome::BeginAgain {
                return Ok(Outcome::BeginAgain);
            }
            // In the first round all are visited: any may come first in label order.
            if (is_first_round || self.needs_more())
                && self.visit(&round.unranked, IsRanked::No)? == Outcome::BeginAgain
            {
                return Ok(Outcome::BeginAgain);
            }
            is_first_round = false;
            let needs_ranked = round.has_more_ranked && self.found.ranked.len() < self.n_max;
            let needs_unranked = round.has_more_unranked && self.needs_more();
            if !needs_ranked && !needs_unranked {
                return Ok(Outcome::Done);
            }
        }
    }

    /// Returns `true` if too few series were found.
    fn needs_more(&self) -> bool {
        self.found.ranked.len() + self.found.unranked.len() < self.n_max
    }

    /// Returns an upper bound for the number of candidates.
    fn n_candidates(&self) -> usize {
        match &self.candidates.series {
            Some(series) => series.len() as usize,
            None => self.shard.head().len(),
        }
    }

    /// Offers all candidates to a round.
    fn offer_all(&self, lowest: &mut LowestRanks) -> Result<Outcome> {
        let mut candidates = match &self.candidates.series {
            Some(series) => SlotRanges::of(series),
            None => SlotRanges::one(0..self.shard.head().end()),
        };
        while let Some(first) = candidates.next(BATCH_SLOTS) {
            self.selection.ctx.check()?;
            scheduler::pause();
            let head = self.shard.head();
            if head.ranking() != self.ranking {
                return Ok(Outcome::BeginAgain);
            }
            let mut n_left = BATCH_SLOTS - first.len();
            lowest.offer(&head, first);
            while n_left > 0
                && let Some(slots) = candidates.next(n_left)
            {
                n_left -= slots.len();
                lowest.offer(&head, slots);
            }
        }
        Ok(Outcome::Done)
    }

    /// Visits candidates, and adds those that match and have samples to the found ones. A series
    /// that reuses the slot of an evicted one has none: the view is older than its first sample.
    fn visit(&mut self, slots: &[u32], is_ranked: IsRanked) -> Result<Outcome> {
        let Selection {
            ctx, range, view, ..
        } = *self.selection;
        for slots in slots.chunks(BATCH_SERIES) {
            ctx.check()?;
            scheduler::pause();
            let head = self.shard.head();
            for slot_ref in head.slot_refs(slots.iter().copied()) {
                let found = match is_ranked {
                    IsRanked::Yes => &mut self.found.ranked,
                    IsRanked::No => &mut self.found.unranked,
                };
                if found.len() >= self.n_max && is_ranked == IsRanked::Yes {
                    return Ok(Outcome::Done);
                }
                self.found.n_visited += 1;
                if !head.passes(ctx, slot_ref.slot, &self.candidates.postponed)? {
                    if self.n_failures_left == 0 {
                        return Ok(Outcome::BeginAgain);
                    }
                    self.n_failures_left -= 1;
                } else if head.has_sample(slot_ref, range, view, &mut self.scratch) {
                    found.push(slot_ref);
                } else {
                    self.all_have_samples = false;
                }
            }
        }
        Ok(Outcome::Done)
    }
}

/// Whether the visited series have a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsRanked {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::super::selection::Need;
    use super::*;
    use crate::batch::WriteBatch;
    use crate::options::{Options, WalSync};
    use crate::{Db, ReadContext};
    use varve_model::{Labels, MatchOp, Matcher, Sample, TimeRange};

    const N_SERIES: usize = 3000;

    /// Opens a store with ranked series in one shard.
    fn ranked_store(dir: &std::path::Path) -> Db {
        let options = Options {
            shards: 1,
            wal_sync: WalSync::Never,
            background: false,
            ..Options::default()
        };
        let db = Db::open(dir, options).unwrap();
        let mut batch = WriteBatch::default();
        // Created in an order that is not that of labels.
        for (i, tag) in (0..N_SERIES).map(|i| i * 7 % N_SERIES).zip(0..) {
            let number = format!("{i:04}");
            let half = if i < N_SERIES / 2 { "first" } else { "last" };
            let pairs = [("half", half), ("i", &*number)];
            let series = db.series(&Labels::from_pairs(pairs).unwrap()).unwrap();
            let sample = Sample {
                timestamp_ms: 1000,
                value: 1.0,
            };
            batch.push(series, sample, tag);
        }
        db.append(&mut batch).unwrap();
        let mut flushing = db.store().flushing.lock();
        db.store().rank_series(&mut flushing).unwrap();
        drop(flushing);
        db
    }

    /// Checks the number of series that are visited and found.
    #[track_caller]
    fn check(db: &Db, matchers: &[Matcher], n_max: usize, expect: (usize, usize)) {
        let ctx = ReadContext::unbounded();
        let open_read = db.store().isolation.begin_read(&ctx).unwrap();
        let selection = Selection {
            ctx: &ctx,
            store: db.store(),
            matchers,
            range: TimeRange::ALL,
            need: Need::FirstLabels(n_max),
            view: &open_read.view,
            any_order: false,
        };
        let found = find(&selection, &db.store().shards[0], n_max).unwrap();
        assert_eq!(
            (found.n_visited, found.ranked.len()),
            expect,
            "{matchers:?}"
        );
    }

    #[test]
    fn series_without_samples_in_the_range_are_visited_in_few_rounds() {
        let dir = tempfile::tempdir().unwrap();
        let db = ranked_store(dir.path());
        let ctx = ReadContext::unbounded();
        let open_read = db.store().isolation.begin_read(&ctx).unwrap();
        let matchers = [Matcher::new(MatchOp::Regexp, "i", ".+").unwrap()];
        let selection = Selection {
            ctx: &ctx,
            store: db.store(),
            matchers: &matchers,
            range: TimeRange {
                start_ms: 0,
                end_ms: 1,
            },
            need: Need::FirstLabels(10),
            view: &open_read.view,
            any_order: false,
        };
        let found = find(&selection, &db.store().shards[0], 10).unwrap();
        assert_eq!((found.n_visited, found.ranked.len()), (N_SERIES, 0));
        assert!(found.n_rounds <= 4, "{} rounds", found.n_rounds);
    }

    #[test]
    fn a_limit_bounds_the_visited_series() {
        let dir = tempfile::tempdir().unwrap();
        let db = ranked_store(dir.path());
        let regexp = |name, value| Matcher::new(MatchOp::Regexp, name, value).unwrap();
        // Every visited series is found.
        check(&db, &[], 1, (1, 1));
        check(&db, &[], 100, (100, 100));
        check(&db, &[regexp("i", ".+")], 100, (100, 100));
        check(&db, &[Matcher::equal("half", "last")], 100, (100, 100));
        // Of ten series in label order, five pass.
        check(&db, &[regexp("i", ".*[02468]")], 10, (19, 10));
        // Too many fail first: those that pass are visited from the beginning.
        check(
            &db,
            &[regexp("half", "la.*")],
            10,
            (16 + 80 + 3000 / 512 + 1 + 10, 10),
        );
        check(&db, &[regexp("i", "2999")], 10, (1, 1));
        check(&db, &[regexp("i", "x.*")], 10, (0, 0));
    }
}
