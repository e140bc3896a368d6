//! Selects the blocks to merge next: a pure function of their metadata.
//!
//! Time is cut into *windows* of 2 h and *days* of 24 h, both aligned to the epoch (and so to UTC).
//! A flush writes a part per window. A window or day is *open* while samples inside the
//! out-of-order window can arrive; then *closed*; and *settled* once it is also older than the
//! in-order age, when only an import can add to it. Merges, newest first:
//!
//! 1. in open and closed windows: [`FAN_IN`] parts, or as many blocks of a higher level,
//!    consecutive in the order of flushes: so few files are open, and each sample is rewritten
//!    once per level;
//! 2. in closed windows: everything, if the new data is at least an eighth of the largest block;
//! 3. in settled windows: everything, even a single part;
//! 4. in settled days: everything, including windows that have not been merged. So a settled day
//!    has one block.
//!
//! Write amplification. With a flush every 30 min a sample is written by its flush, once in its
//! window and once for its day: 2.9 times on average, and 3.8 to 4.6 times if out-of-order samples
//! keep arriving for three hours (measured by the test `samples_are_written_few_times`). In general
//! the bound is 1 for the flush, log8 of the flushes in a window, 9 for a closed window (each
//! rewrite makes its largest block grow by an eighth), 1 when the window settles, 1 for the day,
//! and 1 for each import into a settled day. Days of more than [`SOURCES_MAX`] blocks take one more
//! for each factor of [`SOURCES_MAX`] / 2.
//!
//! Invariants
//! 1. *The earlier flush wins.* Of two samples with one timestamp, the sample of the block with the
//!    smaller [`precedence`] wins. A merge has the precedence of its first source. It is planned
//!    only if every other block that overlaps a source in time stays on the same side of it, so
//!    that no query result changes.
//! 2. No merge crosses a day. A block that does (imported) is left alone, and parts before and
//!    after it in the order of flushes are not merged with each other if it overlaps them.
//! 3. Each merge reduces the number of blocks or the number of parts. So planning terminates.
//! 4. At most [`SOURCES_MAX`] blocks are merged at once.

use std::collections::{BTreeMap, BTreeSet};

use varve_model::TimeRange;

use crate::block::{BlockId, BlockMeta, BlockOrigin, precedence};

/// Length of the windows into which a flush divides its samples.
pub(crate) const WINDOW_MS: i64 = 2 * 3_600_000;
/// Length of the time range of the largest blocks.
pub(crate) const DAY_MS: i64 = 24 * 3_600_000;
/// Number of parts, or blocks of one level, that are merged while more may arrive.
pub(crate) const FAN_IN: usize = 8;
/// Maximum number of blocks merged at once: each is an open file with buffers.
pub(crate) const SOURCES_MAX: usize = 64;
/// Maximum number of sources listed in a block; the newest ones are listed, as the others have long
/// been removed.
pub(crate) const SOURCES_LISTED_MAX: usize = 4096;

/// A closed window is merged if the new data is at least one part in `OUT_OF_ORDER_SHARE` of its
/// largest block.
const OUT_OF_ORDER_SHARE: u64 = 8;

/// The current time of the store according to its samples, and the age limits of new samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataTime {
    /// The newest timestamp.
    pub(crate) newest_ms: i64,
    /// Maximum age of an out-of-order sample, relative to `newest_ms`.
    pub(crate) out_of_order_window_ms: i64,
    /// Maximum age of an in-order sample, relative to `newest_ms`.
    pub(crate) in_order_max_age_ms: i64,
}

/// A planned merge of blocks into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merge {
    /// In order of precedence: of two samples with one timestamp, the sample of the earlier source
    /// wins.
    pub(crate) sources: Vec<BlockId>,
    /// The window or day of the result.
    pub(crate) window: TimeRange,
    /// The level of the result.
    pub(crate) level: u8,
    /// The flushes of the result.
    pub(crate) flushes: (u64, u64),
    /// The blocks that the result replaces, and lists as [`BlockOrigin::sources`]: `sources`, and
    /// the blocks that these list, ascending. A source of a source may still be on disk if a power
    /// cut undid its removal.
    pub(crate) replaces: Vec<BlockId>,
}

impl Merge {
    /// Returns the origin of the result. `deletions` is the newest tombstone when the merge starts.
    /// The merge applies to each source the tombstones that
    /// [`Tombstones::affecting`](crate::block::tombstones::Tombstones::affecting) returns at that
    /// time.
    pub(crate) fn origin(&self, id: BlockId, deletions: u64) -> BlockOrigin {
        BlockOrigin {
            id,
            window: self.window,
            level: self.level,
            flushes: self.flushes,
            sources: self.replaces.clone(),
            deletions,
        }
    }

    fn of(mut blocks: Vec<&BlockMeta>) -> Self {
        blocks.sort_unstable_by_key(|block| precedence(block));
        let origins = || blocks.iter().map(|block| &block.origin);
        let mut replaces: BTreeSet<BlockId> = origins()
            .flat_map(|origin| origin.sources.iter().copied())
            .collect();
        while replaces.len() + blocks.len() > SOURCES_LISTED_MAX && replaces.pop_first().is_some() {
        }
        replaces.extend(origins().map(|origin| origin.id));
        Self {
            sources: origins().map(|origin| origin.id).collect(),
            window: span_of(&blocks),
            level: origins()
                .map(|origin| origin.level)
                .max()
                .unwrap_or(0)
                .saturating_add(1),
            flushes: (
                origins().map(|origin| origin.flushes.0).min().unwrap_or(0),
                origins().map(|origin| origin.flushes.1).max().unwrap_or(0),
            ),
            replaces: replaces.into_iter().collect(),
        }
    }
}

/// Returns the most useful next merge, or `None` if there is nothing to merge.
pub(crate) fn plan(blocks: &[BlockMeta], data_time: DataTime) -> Option<Merge> {
    let windows = spans(blocks, WINDOW_MS);
    let days = spans(blocks, DAY_MS);
    let is_settled = |start_ms: i64| data_time.age(aligned(start_ms, DAY_MS)) == Age::Settled;

    // The windows of days that are not settled come before settled days, the newest first.
    for (&start_ms, inside) in windows.iter().rev() {
        let age = data_time.age(aligned(start_ms, WINDOW_MS));
        if !is_settled(start_ms)
            && let Some(ripe) = ripe(blocks, inside, age)
        {
            return Some(Merge::of(ripe));
        }
    }
    for (&start_ms, inside) in days.iter().rev() {
        if is_settled(start_ms)
            && let Some(ripe) = ripe(blocks, inside, Age::Settled)
        {
            return Some(Merge::of(ripe));
        }
    }
    None
}

/// Returns the next merge towards the smallest size: everything of a day into one block, even if
/// samples may still arrive; those form parts again, and the day is rewritten when it settles.
pub(crate) fn full(blocks: &[BlockMeta]) -> Option<Merge> {
    let days = spans(blocks, DAY_MS);
    days.values()
        .rev()
        .find_map(|inside| ripe(blocks, inside, Age::Settled))
        .map(Merge::of)
}

/// Returns the merge that rewrites one block without its deleted samples.
pub(crate) fn rewrite(block: &BlockMeta) -> Merge {
    Merge {
        window: block.origin.window,
        ..Merge::of(vec![block])
    }
}

/// Returns the window into which a sample of this timestamp is flushed.
pub(crate) fn window_of(timestamp_ms: i64) -> TimeRange {
    aligned(timestamp_ms, WINDOW_MS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Open,
    Closed,
    Settled,
}

impl DataTime {
    fn age(self, span: TimeRange) -> Age {
        let ended = |ago_ms: i64| span.end_ms < self.newest_ms.saturating_sub(ago_ms);
        match (
            ended(self.out_of_order_window_ms),
            ended(self.in_order_max_age_ms),
        ) {
            (false, _) => Age::Open,
            (true, false) => Age::Closed,
            (true, true) => Age::Settled,
        }
    }
}

/// Returns the time range of a length, aligned to the epoch, that contains a timestamp.
fn aligned(timestamp_ms: i64, length_ms: i64) -> TimeRange {
    let number = timestamp_ms.div_euclid(length_ms);
    TimeRange {
        start_ms: number.saturating_mul(length_ms),
        end_ms: (number + 1)
            .checked_mul(length_ms)
            .map_or(i64::MAX, |next| next - 1),
    }
}

/// Returns the window or day that contains all of some blocks of one day.
fn span_of(blocks: &[&BlockMeta]) -> TimeRange {
    let start_ms = blocks
        .iter()
        .map(|block| block.origin.window.start_ms)
        .min()
        .unwrap_or(0);
    let window = aligned(start_ms, WINDOW_MS);
    let is_inside = blocks
        .iter()
        .all(|block| block.origin.window.end_ms <= window.end_ms);
    if is_inside {
        window
    } else {
        aligned(start_ms, DAY_MS)
    }
}

/// Groups blocks by the start of the aligned range that contains them entirely; other blocks are
/// skipped.
fn spans(blocks: &[BlockMeta], length_ms: i64) -> BTreeMap<i64, Vec<&BlockMeta>> {
    let mut spans: BTreeMap<i64, Vec<&BlockMeta>> = BTreeMap::new();
    for block in blocks {
        let window = block.origin.window;
        let span = aligned(window.start_ms, length_ms);
        if window.end_ms <= span.end_ms {
            spans.entry(span.start_ms).or_default().push(block);
        }
    }
    spans
}

/// Returns the blocks to merge among those `inside` a range of this age.
fn ripe<'a>(
    blocks: &'a [BlockMeta],
    inside: &[&'a BlockMeta],
    age: Age,
) -> Option<Vec<&'a BlockMeta>> {
    runs(blocks, inside).iter().find_map(|run| match age {
        Age::Open => crowd(run),
        Age::Closed => Some(run)
            .filter(|run| is_worth_it(run))
            .and_then(whole)
            .or_else(|| crowd(run)),
        Age::Settled => whole(run),
    })
}

/// Blocks with the same first flush. They stay together.
type Unit<'a> = Vec<&'a BlockMeta>;

/// Units that may be merged: any consecutive ones, without changing which samples win.
type MergeableRun<'a> = [Unit<'a>];

/// Divides blocks into runs, as long as possible. Blocks that cannot be merged are omitted.
fn runs<'a>(blocks: &'a [BlockMeta], inside: &[&'a BlockMeta]) -> Vec<Vec<Unit<'a>>> {
    let is_inside: BTreeSet<BlockId> = inside.iter().map(|block| block.origin.id).collect();
    let strangers: Vec<_> = blocks
        .iter()
        .filter(|block| !is_inside.contains(&block.origin.id))
        .collect();
    let mut units: BTreeMap<u64, Unit<'a>> = BTreeMap::new();
    for &block in inside {
        units.entry(block.origin.flushes.0).or_default().push(block);
    }
    let mut runs: Vec<Vec<Unit<'a>>> = vec![Vec::new()];
    // The first flush of the last run, or `None` if no unit may join it.
    let mut first_flush = None;
    for (flush, unit) in units {
        let is_mergeable = unit.len() <= SOURCES_MAX && keeps_order(&unit, flush, &strangers);
        let joins_run =
            is_mergeable && first_flush.is_some_and(|first| keeps_order(&unit, first, &strangers));
        if !joins_run {
            runs.push(Vec::new());
            first_flush = is_mergeable.then_some(flush);
        }
        if is_mergeable {
            runs.last_mut()
                .expect("runs starts with one element and only grows")
                .push(unit);
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Returns `true` if a unit may join a merge that begins with `first_flush`: every other block that
/// overlaps one of its blocks in time must have the same order relative to the merge as to that
/// block.
fn keeps_order(unit: &[&BlockMeta], first_flush: u64, strangers: &[&BlockMeta]) -> bool {
    // The id of the result is larger than all present ones.
    let merged = (first_flush, BlockId(u64::MAX));
    unit.iter().all(|block| {
        let mut overlapping = strangers
            .iter()
            .filter(|stranger| stranger.range.overlaps(block.range));
        overlapping.all(|stranger| {
            let stranger = precedence(stranger);
            (stranger < precedence(block)) == (stranger < merged)
        })
    })
}

/// Returns neighbors of the lowest level with enough blocks, and blocks of lower levels between
/// them.
fn crowd<'a>(run: &MergeableRun<'a>) -> Option<Vec<&'a BlockMeta>> {
    let level_of = |unit: &Unit<'_>| {
        unit.iter()
            .map(|block| block.origin.level)
            .max()
            .unwrap_or(0)
    };
    let levels: BTreeSet<u8> = run.iter().map(level_of).collect();
    for level in levels {
        for neighbors in run.split(|unit| level_of(unit) > level) {
            let of_level = neighbors.iter().filter(|unit| level_of(unit) == level);
            if of_level.count() >= FAN_IN {
                return Some(neighbors[..first_units(neighbors)].concat());
            }
        }
    }
    None
}

/// Returns the number of first units that can be merged at once.
fn first_units(units: &MergeableRun<'_>) -> usize {
    let mut n_blocks = 0;
    units
        .iter()
        .take_while(|unit| {
            n_blocks += unit.len();
            n_blocks <= SOURCES_MAX
        })
        .count()
}

/// Returns `true` if the other blocks of a run are large enough compared with the largest.
fn is_worth_it(run: &MergeableRun<'_>) -> bool {
    let sizes = || run.iter().flatten().map(|block| block.size);
    let largest = sizes().max().unwrap_or(0);
    let rest = sizes()
        .fold(0_u64, u64::saturating_add)
        .saturating_sub(largest);
    rest > 0 && rest >= largest / OUT_OF_ORDER_SHARE
}

/// Returns all blocks of a run, or the smallest neighbors if there are too many, or `None` if there
/// is a single block that is not a part.
fn whole<'a>(run: impl AsRef<MergeableRun<'a>>) -> Option<Vec<&'a BlockMeta>> {
    let run = run.as_ref();
    let blocks = run.concat();
    match blocks.len() {
        0 => None,
        1 => (blocks[0].origin.level == 0).then_some(blocks),
        2..=SOURCES_MAX => Some(blocks),
        _ => smallest(run),
    }
}

/// Returns the neighbors with the smallest total size, at least half as many as can be merged at
/// once. They exist if there are more blocks than that: either the first neighbors are enough, or
/// the unit after them is.
fn smallest<'a>(run: &MergeableRun<'a>) -> Option<Vec<&'a BlockMeta>> {
    let neighbors =
        (0..run.len()).map(|start| run[start..start + first_units(&run[start..])].concat());
    neighbors
        .filter(|blocks| blocks.len() >= SOURCES_MAX / 2)
        .min_by_key(|blocks| {
            blocks
                .iter()
                .fold(0_u64, |sum, block| sum.saturating_add(block.size))
        })
}

#[cfg(test)]
mod tests;
