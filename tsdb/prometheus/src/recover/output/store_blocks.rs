//! Writes blocks of the store, for an import.
//!
//! The samples are those that the chunks of a block of Prometheus would have: they are prepared as
//! for one, and decoded.

use std::path::Path;

use varve_env::damage::{DamageKind, DamageReport};
use varve_model::SampleColumns;
use varve_tsdb::{ImportBatch, ImportWriter, Result};

use super::pipeline::produce_in_order;
use super::window::{Dropped, GROUP_LEN, PREPARED_LEN, Prepared, Window, for_each_window};
use crate::histogram_limits::remove_too_large;
use crate::recover::exemplars_and_metadata::ExemplarsAndMetadata;
use crate::recover::recovery::Recovery;
use crate::recover::replayed::Replayed;
use crate::recover::report::Report;
use crate::recover::series::label_order::Position;

/// The position of a label pair that no series of the block has, or that has no name.
const UNUSED: u32 = u32::MAX;

/// The blocks that were written, and what they do not store.
#[derive(Debug, Default)]
pub(crate) struct StoreBlocks {
    pub(crate) n_blocks: u64,
    pub(crate) n_samples: u64,
    pub(crate) exemplars_and_metadata: ExemplarsAndMetadata,
}

/// Encoded series, and the damage that was found in them.
struct EncodedBatch {
    batch: ImportBatch,
    n_series: u64,
    dropped: Dropped,
    damage: DamageReport,
}

/// Writes a block for each window with samples, in ascending order of time, numbered from 1.
/// `source` is the data directory, for reports of damage.
pub(crate) fn write_store_blocks(
    recovery: &Recovery<'_>,
    source: &Path,
    mut replayed: Replayed,
    report: &mut Report,
) -> Result<StoreBlocks> {
    let mut written = StoreBlocks {
        exemplars_and_metadata: std::mem::take(&mut replayed.exemplars_and_metadata),
        ..StoreBlocks::default()
    };
    let n_samples = report.n_samples + report.n_out_of_order;
    for_each_window(recovery, replayed, n_samples, |window, step| {
        let output = Output::new(window, source);
        let number = written.n_blocks + 1;
        let n_samples = output.write(recovery, number, report, step)?;
        written.n_samples += n_samples;
        written.n_blocks += u64::from(n_samples > 0);
        Ok(())
    })?;
    Ok(written)
}

/// The writer of one block.
struct Output<'a> {
    window: &'a Window<'a>,
    source: &'a Path,
    series: Vec<Position>,
    /// For each label pair its position among those of the block, or [`UNUSED`].
    positions: Vec<u32>,
}

impl<'a> Output<'a> {
    fn new(window: &'a Window<'a>, source: &'a Path) -> Self {
        let order = window.order;
        let series = window.series();
        let mut n_used = 0;
        let mut positions = vec![UNUSED; order.pairs.len()];
        for (idx, n_series) in order.count(&series).into_iter().enumerate() {
            // Series with a label without a name are left out.
            if n_series > 0 && !order.pair(idx).0.is_empty() {
                positions[idx] = n_used;
                n_used += 1;
            }
        }
        Self {
            window,
            source,
            series,
            positions,
        }
    }

    /// Writes the block, and returns the number of its samples. Writes none without samples.
    fn write(
        &self,
        recovery: &Recovery<'_>,
        number: u64,
        report: &mut Report,
        step: &(dyn Fn(u64) + Sync),
    ) -> Result<u64> {
        let order = self.window.order;
        let used = (0..order.pairs.len())
            .filter(|&idx| self.positions[idx] != UNUSED)
            .map(|idx| order.pair(idx));
        let start_ms = self.window.range.start_ms;
        let mut writer = ImportWriter::create(recovery.fs, recovery.out, number, start_ms, used)?;
        let batches: Vec<_> = self.series.chunks(ImportBatch::SERIES).collect();
        let mut n_written = 0;
        produce_in_order(
            batches.len(),
            PREPARED_LEN / ImportBatch::SERIES * rayon::current_num_threads(),
            |idx| self.encode(batches[idx]),
            |encoded| {
                writer.add_batch(encoded.batch)?;
                report.damage.append(encoded.damage);
                encoded.dropped.add_to(&mut report.totals);
                n_written += encoded.n_series;
                step(n_written);
                Ok(())
            },
        )?;
        let n_samples = writer.finish()?;
        report.totals.n_kept += n_samples;
        Ok(n_samples)
    }

    fn encode(&self, series: &[Position]) -> Result<EncodedBatch> {
        let mut encoded = EncodedBatch {
            batch: ImportBatch::new(self.window.range.start_ms),
            n_series: series.len() as u64,
            dropped: Dropped::default(),
            damage: DamageReport::default(),
        };
        let mut columns = SampleColumns::default();
        for some in series.chunks(GROUP_LEN) {
            let mut prepared = self.window.prepare(some)?;
            encoded.damage.append(std::mem::take(&mut prepared.damage));
            encoded.dropped.append(prepared.dropped);
            for idx in 0..prepared.series.len() {
                self.push(&prepared, idx, &mut columns, &mut encoded);
            }
        }
        Ok(encoded)
    }

    /// Adds a prepared series to a batch.
    fn push(
        &self,
        prepared: &Prepared,
        idx: usize,
        columns: &mut SampleColumns,
        encoded: &mut EncodedBatch,
    ) {
        columns.clear();
        prepared.group.decode(idx, columns);
        let n_samples = columns.len();
        let labels = self.window.order.labels(prepared.series[idx]);
        let positions = labels.iter().map(|&pair| self.positions[pair as usize]);
        if positions.clone().any(|position| position == UNUSED) {
            let reason = format!("a label without a name: {}", self.print(labels));
            encoded
                .damage
                .push(self.source, 0, DamageKind::Corrupt, reason);
            encoded.dropped.n_not_supported += n_samples as u64;
            return;
        }
        remove_too_large(
            columns,
            || self.print(labels),
            self.source,
            &mut encoded.damage,
        );
        encoded.dropped.n_not_supported += (n_samples - columns.len()) as u64;
        encoded.batch.push(positions, columns);
    }

    fn print(&self, labels: &[u32]) -> String {
        let order = self.window.order;
        let strings = labels.iter().map(|&pair| order.pair(pair as usize));
        format!("{:?}", strings.collect::<Vec<_>>())
    }
}
