//! Merges blocks into one stream of series in label order.
//!
//! Used by tools that print a whole data directory. Memory: the indexes of all blocks, and the
//! samples of one series.

use varve_env::damage::DamageReport;
use varve_env::sample_totals::SampleTotals;
use varve_model::{SampleColumns, TimeRange};

use super::reader::{BlockCursor, BlockReader, BlockSeries};

/// Blocks that are read in parallel, in label order.
#[derive(Debug)]
pub struct MergedBlocks<'a> {
    blocks: Vec<(BlockCursor<'a>, Option<BlockSeries<'a>>)>,
}

/// A series of one or more blocks.
#[derive(Debug)]
pub struct MergedSeries<'a> {
    /// At least one, in the order of the blocks.
    parts: Vec<BlockSeries<'a>>,
}

impl<'a> MergedBlocks<'a> {
    /// Creates a cursor before the first series. If two samples have the same timestamp, the sample
    /// of the earlier block wins.
    pub fn new(
        blocks: impl IntoIterator<Item = &'a BlockReader>,
        damage: &mut DamageReport,
    ) -> Self {
        let mut opened = Vec::new();
        for block in blocks {
            let mut cursor = block.cursor();
            let first = cursor.next(damage);
            opened.push((cursor, first));
        }
        Self { blocks: opened }
    }

    /// Returns the next series. Skips and reports damage.
    pub fn next(&mut self, damage: &mut DamageReport) -> Option<MergedSeries<'a>> {
        let heads = self.blocks.iter().filter_map(|(_, series)| series.as_ref());
        let labels = heads.map(BlockSeries::labels).min()?.to_vec();
        let mut parts = Vec::new();
        for (cursor, series) in &mut self.blocks {
            if series
                .as_ref()
                .is_some_and(|series| series.labels() == labels)
            {
                parts.extend(std::mem::replace(series, cursor.next(damage)));
            }
        }
        Some(MergedSeries { parts })
    }
}

impl<'a> MergedSeries<'a> {
    /// Returns names and values in ascending order of names.
    #[must_use]
    pub fn labels(&self) -> &[(&'a str, &'a str)] {
        self.parts[0].labels()
    }

    /// Appends the samples of a range to empty columns, with tombstones applied. Reports damage. Adds
    /// what the range has to `totals`, except for the samples that are kept.
    pub fn read(
        &self,
        range: TimeRange,
        dst: &mut SampleColumns,
        totals: &mut SampleTotals,
        damage: &mut DamageReport,
    ) {
        let mut columns = SampleColumns::default();
        let mut n_samples = 0;
        for part in &self.parts {
            columns.clear();
            part.read_range(range, &mut columns, totals, damage);
            n_samples += columns.len_within(range);
            dst.merge(&columns);
        }
        dst.retain(range);
        totals.n_duplicates += n_samples.saturating_sub(dst.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use varve_env::Fs;
    use varve_env::testing::MemFs;

    use super::super::{BlockWriter, Description};
    use super::*;
    use crate::testing::encoded;

    /// Writes a block with a series per name, with samples of one value.
    fn block(fs: &Arc<dyn Fs>, series: &[(&str, &[i64])], value: f64) -> BlockReader {
        let out = Path::new("blocks");
        fs.create_dir(out).unwrap();
        let mut symbols: Vec<_> = series.iter().map(|(name, _)| *name).chain(["a"]).collect();
        symbols.sort_unstable();
        let mut writer = BlockWriter::create(fs, out, "x", &symbols).unwrap();
        for (name, times_ms) in series {
            let samples = times_ms.iter().map(|&time| (time, value));
            writer
                .add([("a", *name)].into_iter(), &encoded(samples))
                .unwrap();
        }
        let meta = writer
            .finish(Description {
                max_ms: value as i64,
                ..Description::default()
            })
            .unwrap();
        BlockReader::open(
            &**fs,
            &out.join(meta.ulid.to_string()),
            &mut DamageReport::default(),
        )
        .unwrap()
    }

    #[test]
    fn merged_series_are_in_label_order_and_the_first_block_wins() {
        let fs: Arc<dyn Fs> = Arc::new(MemFs::default());
        let blocks = [
            block(&fs, &[("b", &[1, 3]), ("d", &[5])], 1.0),
            block(&fs, &[("b", &[2, 3, 9]), ("c", &[7])], 2.0),
        ];
        let mut damage = DamageReport::default();
        let mut merged = MergedBlocks::new(&blocks, &mut damage);
        let mut found = Vec::new();
        let mut totals = SampleTotals::default();
        let range = TimeRange {
            start_ms: 2,
            end_ms: 8,
        };
        while let Some(series) = merged.next(&mut damage) {
            let mut columns = SampleColumns::default();
            series.read(range, &mut columns, &mut totals, &mut damage);
            let samples: Vec<_> = columns
                .iter()
                .map(|sample| (sample.timestamp_ms, sample.value))
                .collect();
            found.push((series.labels()[0].1, samples));
        }
        let expect = [
            ("b", vec![(2, 2.0), (3, 1.0)]),
            ("c", vec![(7, 2.0)]),
            ("d", vec![(5, 1.0)]),
        ];
        assert_eq!(found, expect);
        assert_eq!(damage.n_damaged(), 0);
        // One sample of `b` is in both blocks.
        assert_eq!((totals.n_found, totals.n_duplicates), (5, 1));
    }
}
