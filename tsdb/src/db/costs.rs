//! The cost of labels: series and bytes in memory, samples and bytes on disk, by pair of label name
//! and value.
//!
//! The size of a head is divided among its series: the bytes of labels and index equally, the bytes
//! of samples by their number. A block stores groups of up to 256 neighboring series, and its
//! directory, which is in memory, has the size of their values. This size is divided equally among
//! the series of the group, the rest of the file among all series of the block. So no samples are
//! read, and the costs of all series add up to the sizes of heads and files.
//!
//! Counts are added up by symbol. Strings are resolved once per symbol and block, or once per step
//! of a walk over a head, under the same lock.

use std::collections::HashMap;
use std::ops::AddAssign;

use roaring::RoaringBitmap;
use varve_context::{Charge, QueryContext};
use varve_model::{Matcher, TimeRange};

use super::Db;
use crate::block::{Access, Block, Symbol};
use crate::error::Result;
use crate::head::Head;
use crate::index::Pair;
use crate::read_context::ReadContext;
use crate::shard::Shard;

/// Approximate memory of a pair in [`Costs`] besides its string.
const PAIR_SIZE: usize = 2 * (size_of::<String>() + size_of::<Cost>());
/// Approximate memory of a symbol of a block in a map of costs.
const SYMBOL_SIZE: usize = 2 * size_of::<(Symbol, Cost)>();
/// Number of series after which a walk over a block checks the request.
const SERIES_PER_CHECK: usize = 4_096;

/// The cost of some series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Series in memory.
    pub n_series: u64,
    /// Their approximate size in memory.
    pub memory_bytes: u64,
    /// Samples in blocks. A sample in several blocks counts for each.
    pub n_samples: u64,
    /// Size in block files.
    pub disk_bytes: u64,
}

/// The costs of selected series.
#[derive(Debug)]
pub struct Costs {
    /// The cost of all selected series.
    pub total: Cost,
    /// Costs by label value, by label name.
    pub by_label: HashMap<String, HashMap<String, Cost>>,
    charge: Charge,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.n_series += other.n_series;
        self.memory_bytes += other.memory_bytes;
        self.n_samples += other.n_samples;
        self.disk_bytes += other.disk_bytes;
    }
}

impl Db {
    /// Computes the cost of the series that pass all matchers of one of the `selectors`, or of all
    /// series if there are none. Includes deleted samples that are still on disk. Waits for the
    /// replay of the WAL.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn costs(&self, ctx: &ReadContext, selectors: &[Vec<Matcher>]) -> Result<Costs> {
        let selectors: Vec<Vec<Matcher>> = match (selectors, ctx.restriction()) {
            ([], []) => Vec::new(),
            ([], restriction) => vec![restriction.to_vec()],
            _ => selectors
                .iter()
                .map(|matchers| ctx.restrict(matchers).into_owned())
                .collect(),
        };
        self.prepare(ctx, selectors.iter().flatten(), TimeRange::ALL)?;
        let mut costs = Costs {
            total: Cost::default(),
            by_label: HashMap::new(),
            charge: ctx.charge(),
        };
        for shard in &self.store.shards {
            costs.add_shard(ctx, shard, &selectors)?;
        }
        for stored in self.store.blocks.list().iter() {
            costs.add_block(ctx, &stored.block, &selectors)?;
        }
        Ok(costs)
    }
}

impl Costs {
    fn add_shard(
        &mut self,
        ctx: &QueryContext,
        shard: &Shard,
        selectors: &[Vec<Matcher>],
    ) -> Result<()> {
        let selected = union(selectors, |matchers| shard.head().select(ctx, matchers))?;
        let n_samples = sum_samples(ctx, shard)?;
        for step in 0.. {
            ctx.check()?;
            let head = shard.head();
            let Some(slots) = head.slots_of_step(step) else {
                break;
            };
            let size = SizePerPart::of(&head, n_samples);
            let mut found: HashMap<Pair, Cost> = HashMap::new();
            for slot in slots {
                let is_selected = selected
                    .as_ref()
                    .is_none_or(|selected| selected.contains(slot));
                if !is_selected || head.series_ref(slot).is_none() {
                    continue;
                }
                let memory_bytes = size.per_series + size.per_sample * head.n_samples(slot) as f64;
                let cost = Cost {
                    n_series: 1,
                    memory_bytes: memory_bytes as u64,
                    ..Cost::default()
                };
                self.total += cost;
                for pair in head.pairs(slot) {
                    *found.entry(pair).or_default() += cost;
                }
            }
            for ((name, value), cost) in found {
                self.add(head.symbol(name), head.symbol(value), cost)?;
            }
        }
        Ok(())
    }

    fn add_block(
        &mut self,
        ctx: &QueryContext,
        block: &Block,
        selectors: &[Vec<Matcher>],
    ) -> Result<()> {
        let selected = union(selectors, |matchers| block.index.select(ctx, matchers))?;
        let values_bytes: u64 = (0..block.groups.len())
            .map(|i| GroupSize::of(block, i).bytes)
            .sum();
        let others_bytes = block.meta.size.saturating_sub(values_bytes);
        let mut labels = block.index.series_cursor(Access::Scan);
        let mut charge = ctx.charge();
        let mut found: HashMap<Symbol, Cost> = HashMap::new();
        let ordinals: Box<dyn Iterator<Item = u32>> = match &selected {
            Some(selected) => Box::new(selected.iter()),
            None => Box::new(0..block.index.n_series),
        };
        let mut group = GroupSize::default();
        for (i, ordinal) in ordinals.enumerate() {
            ctx.check_every(SERIES_PER_CHECK, i)?;
            if !group.has(ordinal) {
                group = GroupSize::of(block, block.groups.idx_of(ordinal));
            }
            labels.seek(ordinal)?;
            let others = share(others_bytes, ordinal, block.index.n_series);
            let cost = Cost {
                n_samples: share(group.n_samples, ordinal - group.first, group.n_series),
                disk_bytes: share(group.bytes, ordinal - group.first, group.n_series) + others,
                ..Cost::default()
            };
            self.total += cost;
            let n_known = found.len();
            for &symbol in labels.symbols() {
                *found.entry(symbol).or_default() += cost;
            }
            charge.grow((found.len() - n_known) * SYMBOL_SIZE)?;
        }
        let mut symbols = block.index.symbol_cursor();
        while let Some(symbol) = symbols.next()? {
            if let Some(cost) = found.get(&symbol) {
                let (name, value) = symbols.name_and_value()?;
                self.add(name, value, *cost)?;
            }
        }
        Ok(())
    }

    /// Adds a cost to a pair. The caller may hold the lock of a head.
    fn add(&mut self, name: &str, value: &str, cost: Cost) -> Result<()> {
        if !self.by_label.contains_key(name) {
            self.charge.grow_without_waiting(name.len() + PAIR_SIZE)?;
            self.by_label.insert(name.to_owned(), HashMap::new());
        }
        let values = self.by_label.get_mut(name).expect("inserted above");
        if let Some(sum) = values.get_mut(value) {
            *sum += cost;
            return Ok(());
        }
        self.charge.grow_without_waiting(value.len() + PAIR_SIZE)?;
        values.insert(value.to_owned(), cost);
        Ok(())
    }
}

/// The sizes of a head per series and per sample.
struct SizePerPart {
    per_series: f64,
    per_sample: f64,
}

impl SizePerPart {
    fn of(head: &Head, n_samples: u64) -> Self {
        let all = head.size();
        let samples = head.all_samples_size();
        let per = |size: usize, n: u64| size as f64 / n.max(1) as f64;
        Self {
            per_series: per(all.saturating_sub(samples), head.len() as u64),
            per_sample: per(samples, n_samples),
        }
    }
}

/// The size of the values of a group of neighboring series in a block.
#[derive(Debug, Clone, Copy, Default)]
struct GroupSize {
    first: u32,
    n_series: u32,
    bytes: u64,
    n_samples: u64,
}

impl GroupSize {
    fn of(block: &Block, idx: usize) -> Self {
        let group = block.groups.get(idx);
        let mut found = Self {
            first: group.first,
            n_series: group.n_series as u32,
            ..Self::default()
        };
        for (_, rows) in group.pages_in(TimeRange::ALL) {
            found.bytes += u64::from(rows.page().size);
            found.n_samples += u64::from(rows.n_samples);
        }
        found
    }

    fn has(&self, ordinal: u32) -> bool {
        (self.first..self.first + self.n_series).contains(&ordinal)
    }
}

/// Returns the `idx`-th of `n` almost equal parts of a size. All parts add up to it.
fn share(size: u64, idx: u32, n: u32) -> u64 {
    let end = |idx: u32| (u128::from(size) * u128::from(idx) / u128::from(n.max(1))) as u64;
    end(idx + 1) - end(idx)
}

/// Returns the union of the selections, or `None` if there are no selectors.
fn union(
    selectors: &[Vec<Matcher>],
    select: impl Fn(&[Matcher]) -> Result<RoaringBitmap>,
) -> Result<Option<RoaringBitmap>> {
    let mut union = None;
    for matchers in selectors {
        *union.get_or_insert_with(RoaringBitmap::new) |= select(matchers)?;
    }
    Ok(union)
}

/// Returns the number of samples in the head of a shard.
fn sum_samples(ctx: &QueryContext, shard: &Shard) -> Result<u64> {
    let mut sum = 0;
    for step in 0.. {
        ctx.check()?;
        let head = shard.head();
        let Some(slots) = head.slots_of_step(step) else {
            break;
        };
        sum += slots.map(|slot| head.n_samples(slot)).sum::<u64>();
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::batch::WriteBatch;
    use crate::error::Error;
    use crate::options::Options;
    use varve_context::{Limit, MemoryBudget};
    use varve_model::{Labels, Sample};

    /// Writes 300 series of `a` with a sample each, and one series of `b` with 300 samples.
    fn store(dir: &std::path::Path) -> Db {
        let db = Db::open(
            dir,
            Options {
                background: false,
                ..Options::default()
            },
        )
        .unwrap();
        let mut batch = WriteBatch::default();
        let sample = |i: i64| Sample {
            timestamp_ms: 1_000_000 + i * 1000,
            value: (i * i) as f64 * 1.1,
        };
        for i in 0..300 {
            let labels = [("__name__", "a"), ("id", &*i.to_string())];
            batch.push(
                db.series(&Labels::from_pairs(labels).unwrap()).unwrap(),
                sample(i),
                0,
            );
        }
        let b = db
            .series(&Labels::from_pairs([("__name__", "b"), ("job", "x")]).unwrap())
            .unwrap();
        (0..300).for_each(|i| batch.push(b, sample(i), 0));
        db.append(&mut batch).unwrap();
        db
    }

    #[test]
    fn costs_add_up_to_the_sizes_of_heads_and_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path());
        let ctx = ReadContext::unbounded();
        let in_memory = db.costs(&ctx, &[]).unwrap();
        let size = db.stats().head_size_bytes;
        assert!(
            in_memory.total.memory_bytes.abs_diff(size) < 400,
            "{:?} of {size}",
            in_memory.total
        );
        assert_eq!(
            (in_memory.total.n_series, in_memory.total.disk_bytes),
            (301, 0)
        );

        db.flush().unwrap();
        let costs = db.costs(&ctx, &[]).unwrap();
        let stats = db.stats();
        assert_eq!(
            (costs.total.disk_bytes, costs.total.n_samples),
            (stats.blocks_size_bytes, 600)
        );
        let metrics = &costs.by_label["__name__"];
        assert_eq!(
            metrics.values().map(|cost| cost.disk_bytes).sum::<u64>(),
            stats.blocks_size_bytes
        );
        assert_eq!((metrics["a"].n_series, metrics["b"].n_series), (300, 1));
        assert_eq!(costs.by_label["id"].len(), 300);
        assert_eq!(costs.by_label["job"]["x"], metrics["b"]);
    }

    #[test]
    fn selectors_form_a_union() {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path());
        db.flush().unwrap();
        let ctx = ReadContext::unbounded();
        let one = |value: &str| vec![Matcher::equal("id", value)];
        let costs = db.costs(&ctx, &[one("7"), one("299"), one("7")]).unwrap();
        assert_eq!((costs.total.n_series, costs.by_label["id"].len()), (2, 2));
        assert!(
            costs.total.disk_bytes > 0
                && costs.total.disk_bytes < db.stats().blocks_size_bytes / 10
        );
        assert_eq!(
            db.costs(&ctx, &[one("none")]).unwrap().total,
            Cost::default()
        );
        let ctx = ReadContext::restricted(QueryContext::unbounded(), one("7").into());
        for selectors in [vec![], vec![one("7"), one("299")]] {
            assert_eq!(
                db.costs(&ctx, &selectors).unwrap().total.n_series,
                1,
                "{selectors:?}"
            );
        }
    }

    #[test]
    fn pairs_are_charged_to_the_request() {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path());
        let memory = MemoryBudget::new(Limit::Other("memory"), 10_000);
        let ctx = ReadContext::unrestricted(QueryContext::new(Duration::from_secs(60), memory));
        assert!(matches!(db.costs(&ctx, &[]), Err(Error::Limit { .. })));
    }

    #[test]
    fn parts_of_a_size_add_up_to_it() {
        for (size, n) in [(0, 3), (10, 3), (u64::MAX, 7)] {
            assert_eq!((0..n).map(|idx| share(size, idx, n)).sum::<u64>(), size);
        }
    }
}
