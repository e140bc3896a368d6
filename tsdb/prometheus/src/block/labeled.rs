//! The series of a block with external labels, in label order.
//!
//! Remote write adds external labels to each series that has no label of that name (Prometheus
//! `storage/remote/queue_manager.go`, `processExternalLabels`). With them, series may sort
//! differently, and two series may become one.
//!
//! Memory: with external labels, the labels and chunk references of all series with the same first
//! label, which is the name of the metric for most. If an external label sorts before it, as upper
//! case does, those of all series. Without external labels, one series.

use varve_env::damage::DamageReport;
use varve_env::sample_totals::SampleTotals;
use varve_model::{SampleColumns, TimeRange};

use super::reader::{BlockCursor, BlockReader, BlockSeries};

/// A position in the series of a block, with external labels.
#[derive(Debug)]
pub(crate) struct LabeledCursor<'a> {
    cursor: BlockCursor<'a>,
    external: &'a [(String, String)],
    /// The chunks of the series overlap this range.
    range: TimeRange,
    /// The first series of the next group.
    ahead: Option<BlockSeries<'a>>,
    /// Series with the same first label, the next one last.
    group: Vec<LabeledSeries<'a>>,
}

/// A series with external labels.
#[derive(Debug)]
pub(crate) struct LabeledSeries<'a> {
    labels: Vec<(&'a str, &'a str)>,
    /// The series of the block that have these labels with the external ones; at least one.
    parts: Vec<BlockSeries<'a>>,
}

impl<'a> LabeledCursor<'a> {
    /// Creates a cursor before the first series with chunks in `range`.
    pub(crate) fn new(
        block: &'a BlockReader,
        range: TimeRange,
        external: &'a [(String, String)],
        damage: &mut DamageReport,
    ) -> Self {
        let mut created = Self {
            cursor: block.cursor(),
            external,
            range,
            ahead: None,
            group: Vec::new(),
        };
        created.ahead = created.read(damage);
        created
    }

    /// Returns the next series. Skips and reports damage.
    pub(crate) fn next(&mut self, damage: &mut DamageReport) -> Option<LabeledSeries<'a>> {
        if self.group.is_empty() {
            self.read_group(damage);
        }
        self.group.pop()
    }

    fn read(&mut self, damage: &mut DamageReport) -> Option<BlockSeries<'a>> {
        loop {
            let series = self.cursor.next(damage)?;
            if series.overlaps(self.range) {
                return Some(series);
            }
        }
    }

    fn read_group(&mut self, damage: &mut DamageReport) {
        let mut group = Vec::new();
        while let Some(series) = self.ahead.take() {
            self.ahead = self.read(damage);
            let is_last = self
                .ahead
                .as_ref()
                .is_none_or(|next| self.sorts_apart(&series, next));
            group.push(LabeledSeries::new(series, self.external));
            if is_last {
                break;
            }
        }
        // Stable: of two samples with the same timestamp, the one of the first series wins.
        group.sort_by(|a, b| a.labels.cmp(&b.labels));
        group.dedup_by(|next, series| {
            let is_same = next.labels == series.labels;
            if is_same {
                series.parts.append(&mut next.parts);
            }
            is_same
        });
        group.reverse();
        self.group = group;
    }

    /// Returns `true` if two consecutive series of the block keep their order: their first labels
    /// differ, and an external label comes before neither.
    fn sorts_apart(&self, series: &BlockSeries<'_>, next: &BlockSeries<'_>) -> bool {
        let Some(first_external) = self.external.iter().map(|(name, _)| name.as_str()).min() else {
            return true;
        };
        let first = series.labels().first();
        first != next.labels().first() && first.is_some_and(|&(name, _)| name < first_external)
    }
}

impl<'a> LabeledSeries<'a> {
    fn new(series: BlockSeries<'a>, external: &'a [(String, String)]) -> Self {
        let mut labels = series.labels().to_vec();
        for (name, value) in external {
            if let Err(idx) = labels.binary_search_by_key(&name.as_str(), |&(name, _)| name) {
                labels.insert(idx, (name.as_str(), value.as_str()));
            }
        }
        let parts = vec![series];
        Self { labels, parts }
    }

    /// Returns names and values in ascending order of names.
    pub(crate) fn labels(&self) -> &[(&'a str, &'a str)] {
        &self.labels
    }

    /// Appends the samples of a window to empty columns, with tombstones applied. Adds what the
    /// window has to `totals`, except for the samples that are kept. Reports damaged chunks that
    /// start in the window.
    pub(crate) fn read_window(
        &self,
        window: TimeRange,
        dst: &mut SampleColumns,
        totals: &mut SampleTotals,
        damage: &mut DamageReport,
    ) {
        // Fast path: few series become one.
        if let [part] = &self.parts[..] {
            part.read_window(window, dst, totals, damage);
            dst.retain(window);
            return;
        }
        let mut columns = SampleColumns::default();
        let mut n_samples = 0;
        for part in &self.parts {
            columns.clear();
            part.read_window(window, &mut columns, totals, damage);
            columns.retain(window);
            n_samples += columns.len();
            dst.merge(&columns);
        }
        totals.n_duplicates += (n_samples - dst.len()) as u64;
    }
}
