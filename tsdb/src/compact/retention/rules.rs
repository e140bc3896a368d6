//! Retention rules: series whose samples are removed earlier than the other samples of their
//! blocks.
//!
//! The first rule that matches a series sets its retention. Rules apply to whole blocks, like the
//! general retention: the series of a rule leave a block once its newest sample is older than the
//! time of the rule. A block is immutable, so it is searched once for the rules that concern it.
//!
//! Invariants
//! 1. A rule concerns a block if it is the first rule that matches one of the series of the block,
//!    and has a time.
//! 2. Each rule holds blocks as the general retention does ([`Hold`]). Only blocks that the rule
//!    concerns count as too old. So after a restart, blocks that were rewritten earlier are not
//!    held.
//! 3. A confirmation ends when the rules have left all blocks that it was for. A later jump of the
//!    clock needs another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roaring::RoaringBitmap;
use varve_model::Matcher;

use super::hold::{Hold, ends_by};
use crate::block::{BlockId, BlockMeta};
use crate::error::Result;

/// A rewrite that failed costs as much as one that succeeds, so it is not repeated at once.
const RETRY_MS: i64 = 3_600_000;

/// How long to retain the series that pass all matchers, unless an earlier rule matches them.
#[derive(Debug, Clone, PartialEq)]
pub struct RetentionRule {
    /// The matchers.
    pub matchers: Vec<Matcher>,
    /// Maximum age of samples in milliseconds. `None`: the general retention, so that later rules
    /// do not apply.
    pub time_ms: Option<i64>,
}

/// The rules in force, and their progress.
#[derive(Debug, Default)]
pub(crate) struct RuleProgress {
    rules: Arc<[RetentionRule]>,
    /// The blocks that wait for a confirmation, for each rule.
    waiting: Vec<Waiting>,
    /// The rules that concern a block, by index, for each block that was searched.
    concerned: BTreeMap<BlockId, Vec<usize>>,
    /// When the search or the rewrite of a block failed last.
    failed_ms: BTreeMap<BlockId, i64>,
}

/// The newest samples of the blocks that a rule holds, and of the blocks whose rewrite was
/// confirmed.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    held_ms: Option<i64>,
    confirmed_ms: Option<i64>,
}

/// What to do for the rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// The block to rewrite next, and the rules whose series it loses.
    pub(crate) next: Option<(BlockId, Vec<usize>)>,
    /// Number of blocks that need a confirmation.
    pub(crate) n_held: usize,
}

impl RuleProgress {
    /// Replaces the rules. Other rules begin without progress.
    pub(crate) fn set_rules(&mut self, rules: &Arc<[RetentionRule]>) {
        if self.rules != *rules {
            *self = Self {
                rules: Arc::clone(rules),
                waiting: vec![Waiting::default(); rules.len()],
                ..Self::default()
            };
        }
    }

    /// Returns the rules.
    pub(crate) fn rules(&self) -> &Arc<[RetentionRule]> {
        &self.rules
    }

    /// Returns the blocks that are old enough for a rule and were not searched. Forgets the blocks
    /// that are gone.
    pub(crate) fn unsearched(&mut self, blocks: &[BlockMeta], now_ms: i64) -> Vec<BlockId> {
        let present: BTreeSet<BlockId> = blocks.iter().map(|block| block.origin.id).collect();
        self.concerned.retain(|id, _| present.contains(id));
        self.failed_ms.retain(|id, _| present.contains(id));
        let shortest_ms = self.rules.iter().filter_map(|rule| rule.time_ms).min();
        let too_old_ms = shortest_ms.map(|time_ms| now_ms.saturating_sub(time_ms));
        let old = blocks
            .iter()
            .filter(|block| ends_by(block, too_old_ms))
            .map(|block| block.origin.id);
        old.filter(|&id| !self.concerned.contains_key(&id) && !self.has_failed(id, now_ms))
            .collect()
    }

    /// Records the rules that concern a block.
    pub(crate) fn searched(&mut self, id: BlockId, rules: Vec<usize>) {
        self.concerned.insert(id, rules);
    }

    /// Records that the search or the rewrite of a block failed. It is tried again after
    /// [`RETRY_MS`].
    pub(crate) fn failed(&mut self, id: BlockId, now_ms: i64) {
        self.failed_ms.insert(id, now_ms);
    }

    fn has_failed(&self, id: BlockId, now_ms: i64) -> bool {
        self.failed_ms
            .get(&id)
            .is_some_and(|&at_ms| (at_ms..at_ms.saturating_add(RETRY_MS)).contains(&now_ms))
    }

    /// Returns the oldest block to rewrite. `is_confirmed` confirms the rewrite of all blocks that
    /// are too old now.
    pub(crate) fn due(&mut self, blocks: &[BlockMeta], now_ms: i64, is_confirmed: bool) -> Due {
        let mut due = BTreeMap::<BlockId, Vec<usize>>::new();
        let mut held = BTreeSet::new();
        for (rule, waiting) in self.waiting.iter_mut().enumerate() {
            let Some(time_ms) = self.rules[rule].time_ms else {
                continue;
            };
            let too_old_ms = Some(now_ms.saturating_sub(time_ms));
            let concerned: BTreeSet<BlockId> = self
                .concerned
                .iter()
                .filter(|(_, rules)| rules.contains(&rule))
                .map(|(id, _)| *id)
                .collect();
            waiting.update(blocks, too_old_ms, &concerned, is_confirmed);
            for block in blocks {
                let is_concerned = concerned.contains(&block.origin.id);
                if !is_concerned || !ends_by(block, too_old_ms) {
                    continue;
                }
                if waiting.holds(block) {
                    held.insert(block.origin.id);
                } else {
                    due.entry(block.origin.id).or_default().push(rule);
                }
            }
        }

        let candidates = blocks.iter().filter(|block| {
            let id = block.origin.id;
            due.contains_key(&id) && !self.has_failed(id, now_ms)
        });
        let next = candidates.min_by_key(|block| (block.range.end_ms, block.origin.id));
        Due {
            next: next.and_then(|block| due.remove_entry(&block.origin.id)),
            n_held: held.len(),
        }
    }
}

impl Waiting {
    fn update(
        &mut self,
        blocks: &[BlockMeta],
        too_old_ms: Option<i64>,
        concerned: &BTreeSet<BlockId>,
        is_confirmed: bool,
    ) {
        // The clock may have been corrected.
        let confirmed_ms = if is_confirmed {
            too_old_ms
        } else {
            self.confirmed_ms.min(too_old_ms)
        };
        let is_unconfirmed = |block: &BlockMeta| {
            concerned.contains(&block.origin.id) && !ends_by(block, confirmed_ms)
        };
        let hold = Hold::Unconfirmed {
            held_ms: self.held_ms,
        };
        let held_ms = hold.held_ms(blocks, too_old_ms, is_unconfirmed);

        // Both times are forgotten with the last block that they concern.
        let mut has_held = false;
        let mut has_confirmed = false;
        for block in blocks {
            has_held |= is_unconfirmed(block) && ends_by(block, held_ms);
            has_confirmed |= concerned.contains(&block.origin.id) && ends_by(block, confirmed_ms);
        }
        self.held_ms = if has_held { held_ms } else { None };
        self.confirmed_ms = if has_confirmed { confirmed_ms } else { None };
    }

    fn holds(self, block: &BlockMeta) -> bool {
        ends_by(block, self.held_ms) && !ends_by(block, self.confirmed_ms)
    }
}

/// Returns the rules with a time that are the first to match a series, by index, with these series.
///
/// # Errors
/// The errors of `select`, which returns the series that pass all matchers.
pub(crate) fn first_matches(
    rules: &[RetentionRule],
    mut select: impl FnMut(&[Matcher]) -> Result<RoaringBitmap>,
) -> Result<Vec<(usize, RoaringBitmap)>> {
    let mut found = Vec::new();
    let mut claimed = RoaringBitmap::new();
    for (idx, rule) in rules.iter().enumerate() {
        let series = select(&rule.matchers)? - &claimed;
        claimed |= &series;
        if rule.time_ms.is_some() && !series.is_empty() {
            found.push((idx, series));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::retention::tests::metas;

    /// Creates rules of these times.
    fn rules(times_ms: &[Option<i64>]) -> Arc<[RetentionRule]> {
        times_ms
            .iter()
            .map(|&time_ms| RetentionRule {
                matchers: Vec::new(),
                time_ms,
            })
            .collect()
    }

    /// Creates one block for each newest sample, numbered from 0, all of them concerned by some
    /// rules.
    fn concerned(
        times_ms: &[Option<i64>],
        ends_ms: &[i64],
        of_blocks: &[usize],
    ) -> (RuleProgress, Vec<BlockMeta>) {
        let blocks = metas(
            &ends_ms
                .iter()
                .map(|&end_ms| (end_ms - 9, end_ms, 1))
                .collect::<Vec<_>>(),
        );
        let mut progress = RuleProgress::default();
        progress.set_rules(&rules(times_ms));
        for block in blocks.iter() {
            progress.searched(block.origin.id, of_blocks.to_vec());
        }
        (progress, blocks)
    }

    fn next(id: u64, rules: &[usize]) -> Due {
        Due {
            next: Some((BlockId(id), rules.to_vec())),
            n_held: 0,
        }
    }

    fn held(n_held: usize) -> Due {
        Due { next: None, n_held }
    }

    #[test]
    fn the_first_rule_that_matches_a_series_applies() {
        // Rule 0 matches series 0 to 3, and so on.
        let series = [0..4, 2..6, 0..6, 5..8, 0..10];
        let mut matching = series.into_iter();
        let select = |_: &[Matcher]| Ok(matching.next().into_iter().flatten().collect());
        let found =
            first_matches(&rules(&[Some(1), None, Some(1), Some(2), Some(3)]), select).unwrap();
        let expect = [(0, 0..4), (3, 6..8), (4, 8..10)];
        assert_eq!(
            found,
            expect.map(|(rule, series)| (rule, RoaringBitmap::from_iter(series)))
        );
    }

    #[test]
    fn blocks_are_rewritten_one_by_one_once_all_of_their_samples_are_too_old() {
        let (mut progress, blocks) =
            concerned(&[Some(100), Some(50), None], &[19, 9, 29, 99], &[0, 1]);
        for (now_ms, expect) in [
            (58, Due::default()),
            (59, next(1, &[1])),
            (68, next(1, &[1])),
            (109, next(1, &[0, 1])),
            (-1, Due::default()),
            (i64::MIN, Due::default()),
        ] {
            assert_eq!(progress.due(&blocks, now_ms, true), expect, "{now_ms}");
        }
        // The result has another id, and no series of the rules.
        progress.searched(BlockId(1), Vec::new());
        assert_eq!(progress.due(&blocks, 69, false), next(0, &[1]));
    }

    #[test]
    fn a_block_is_searched_once_when_it_is_old_enough_for_the_shortest_rule() {
        let blocks = metas(&[(0, 9, 1), (10, 19, 1)]);
        let mut progress = RuleProgress::default();
        assert!(
            progress.unsearched(&blocks, 1000).is_empty(),
            "there are no rules"
        );
        progress.set_rules(&rules(&[None]));
        assert!(
            progress.unsearched(&blocks, 1000).is_empty(),
            "no rule has a time"
        );
        progress.set_rules(&rules(&[Some(100), None, Some(50)]));
        assert!(progress.unsearched(&blocks, 58).is_empty());
        assert_eq!(progress.unsearched(&blocks, 59), [BlockId(0)]);
        progress.searched(BlockId(0), vec![2]);
        progress.set_rules(&rules(&[Some(100), None, Some(50)]));
        assert_eq!(progress.unsearched(&blocks, 69), [BlockId(1)]);
        // Blocks that are gone are forgotten, and other rules need another search.
        progress.failed(BlockId(0), 69);
        assert_eq!(progress.unsearched(&blocks[1..], 69), [BlockId(1)]);
        assert_eq!((progress.concerned.len(), progress.failed_ms.len()), (0, 0));
        progress.searched(BlockId(1), vec![2]);
        progress.set_rules(&rules(&[Some(100), None, Some(51)]));
        assert_eq!(progress.unsearched(&blocks, 70), [BlockId(0), BlockId(1)]);
    }

    #[test]
    fn many_blocks_that_are_too_old_for_a_rule_at_once_need_a_confirmation() {
        let ends_ms: Vec<i64> = (0..15).map(|day| day * 10 + 9).collect();
        let rewrite = |progress: &mut RuleProgress, id| progress.searched(BlockId(id), Vec::new());
        let (mut progress, blocks) = concerned(&[Some(30)], &ends_ms, &[0]);
        assert_eq!(
            progress.due(&blocks, 49, false),
            next(0, &[0]),
            "two blocks"
        );
        assert_eq!(progress.due(&blocks, 149, false), held(12));
        // The clock jumped ahead, and is corrected.
        assert_eq!(progress.due(&blocks, 49, false), held(2));
        assert_eq!(progress.due(&blocks, 30, false), Due::default());
        assert_eq!(progress.due(&blocks, 39, false), next(0, &[0]));
        assert_eq!(progress.due(&blocks, 149, false), held(12));
        // Blocks that become too old later are not held.
        assert_eq!(
            progress.due(&blocks, 159, false),
            Due {
                n_held: 12,
                ..next(12, &[0])
            }
        );
        rewrite(&mut progress, 12);
        assert_eq!(progress.due(&blocks, 159, false), held(12));
        // The confirmation is for all blocks that are too old, until the last one is rewritten.
        assert_eq!(progress.due(&blocks, 159, true), next(0, &[0]));
        for id in 0..12 {
            assert_eq!(progress.due(&blocks, 159, false), next(id, &[0]));
            rewrite(&mut progress, id);
        }
        assert_eq!(progress.due(&blocks, 159, false), Due::default());
        // An import of old samples needs another confirmation.
        (0..6).for_each(|id| progress.searched(BlockId(id), vec![0]));
        assert_eq!(progress.due(&blocks, 159, false), held(6));
    }

    #[test]
    fn a_restart_does_not_hold_blocks_that_were_rewritten() {
        let ends_ms: Vec<i64> = (0..15).map(|day| day * 10 + 9).collect();
        let (mut progress, blocks) = concerned(&[Some(30)], &ends_ms, &[]);
        progress.searched(BlockId(11), vec![0]);
        assert_eq!(progress.due(&blocks, 149, false), next(11, &[0]));
    }

    #[test]
    fn a_confirmation_of_a_wrong_time_ends_with_the_correction_of_the_clock() {
        let ends_ms: Vec<i64> = (0..15).map(|day| day * 10 + 9).collect();
        let (mut progress, blocks) = concerned(&[Some(30)], &ends_ms, &[0]);
        assert_eq!(progress.due(&blocks, 149, true), next(0, &[0]));
        assert_eq!(progress.due(&blocks, 30, false), Due::default());
        assert_eq!(progress.due(&blocks, 149, false), held(12));
    }

    #[test]
    fn a_block_that_cannot_be_rewritten_does_not_delay_the_others() {
        let (mut progress, blocks) = concerned(&[Some(30)], &[9, 19, 29, 39, 49, 59, 69, 79], &[0]);
        for failing in [0, 1] {
            assert_eq!(progress.due(&blocks, 49, false), next(failing, &[0]));
            progress.failed(BlockId(failing), 49);
        }
        assert_eq!(progress.due(&blocks, 49, false), Due::default());
        assert!(
            progress.has_failed(BlockId(0), 48 + RETRY_MS)
                && !progress.has_failed(BlockId(0), 49 + RETRY_MS)
        );
        // The clock is corrected.
        assert_eq!(progress.due(&blocks, 48, false), next(0, &[0]));
    }
}
