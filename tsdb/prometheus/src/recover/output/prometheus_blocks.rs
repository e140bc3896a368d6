//! Writes blocks of Prometheus.

use varve_env::damage::DamageReport;
use varve_tsdb::Result;

use super::pipeline::produce_in_order;
use super::postings;
use super::window::{Dropped, GROUP_LEN, GROUPS_PER_WORKER, Prepared, Window, for_each_window};
use crate::block::{BlockMeta, BlockWriter, Description, FROM_OUT_OF_ORDER, IndexEntries};
use crate::recover::recovery::Recovery;
use crate::recover::replayed::Replayed;
use crate::recover::report::Report;
use crate::recover::series::label_order::{LabelOrder, Position};
use crate::recover::shard::Shard;

/// Writes a block for each window, in ascending order of time.
pub(crate) fn write_blocks(
    recovery: &Recovery<'_>,
    replayed: Replayed,
    report: &mut Report,
) -> Result<()> {
    let newest_ms = replayed
        .shards
        .iter()
        .map(Shard::newest_ms)
        .max()
        .unwrap_or(i64::MIN);
    let mut blocks = Vec::new();
    let mut damage = DamageReport::default();
    let mut dropped = Dropped::default();
    let n_samples = report.n_samples + report.n_out_of_order;
    for_each_window(recovery, replayed, n_samples, |window, step| {
        let output = Output { window, newest_ms };
        blocks.extend(output.write(recovery, &mut damage, &mut dropped, step)?);
        Ok(())
    })?;
    dropped.add_to(&mut report.totals);
    for block in &blocks {
        report.totals.n_kept += block.stats.n_samples;
    }
    report.blocks.append(&mut blocks);
    report.damage.append(damage);
    Ok(())
}

/// The writer of one block.
struct Output<'a> {
    window: &'a Window<'a>,
    /// Timestamp of the newest sample of all windows.
    newest_ms: i64,
}

impl Output<'_> {
    /// Writes the block, or none if all of its samples were deleted.
    fn write(
        &self,
        recovery: &Recovery<'_>,
        damage: &mut DamageReport,
        dropped: &mut Dropped,
        step: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<BlockMeta>> {
        let order = self.window.order;
        let series = self.window.series();
        let (strings, symbols) = self.strings(&series);
        let name = format!("window-{}", self.window.number);
        let mut writer = BlockWriter::create(recovery.fs, recovery.out, &name, &strings)?;
        let mut written = Vec::with_capacity(series.len());
        let mut oldest_ms = None::<i64>;
        let groups: Vec<_> = series.chunks(GROUP_LEN).collect();
        produce_in_order(
            groups.len(),
            GROUPS_PER_WORKER * rayon::current_num_threads(),
            |group| self.window.prepare(groups[group]),
            |mut prepared| {
                // The index needs the locations of the chunks, so write the chunks first.
                writer.write_chunks(&mut prepared.group)?;
                writer.add_entries(&entries(order, &prepared, &symbols))?;
                written.extend_from_slice(&prepared.series);
                oldest_ms = oldest_ms.into_iter().chain(prepared.oldest_ms).min();
                damage.append(prepared.damage);
                dropped.append(prepared.dropped);
                step(written.len() as u64);
                Ok(())
            },
        )?;
        let Some(oldest_ms) = oldest_ms else {
            return writer.abandon().map(|()| None);
        };
        let mut description = self.description(oldest_ms);
        description
            .external_labels
            .clone_from(&recovery.options.external_labels);
        let meta = writer.finish_with(description, |postings, numbers| {
            postings::write(order, &written, numbers, postings)
        })?;
        Ok(Some(meta))
    }

    /// Returns the symbols of some series, and for each label pair the symbols of its name and its
    /// value.
    fn strings(&self, series: &[Position]) -> (Vec<&str>, Vec<(u32, u32)>) {
        let LabelOrder {
            strings: all,
            pairs,
            ..
        } = self.window.order;
        let counts = self.window.order.count(series);
        let mut symbols = vec![u32::MAX; all.len()];
        for (&(name, value), &n_series) in pairs.iter().zip(&counts) {
            if n_series > 0 {
                symbols[name as usize] = 0;
                symbols[value as usize] = 0;
            }
        }
        let mut strings = Vec::new();
        for (symbol, &text) in symbols.iter_mut().zip(all) {
            if *symbol == 0 {
                *symbol = strings.len() as u32;
                strings.push(text);
            }
        }
        let symbols = pairs
            .iter()
            .map(|&(name, value)| (symbols[name as usize], symbols[value as usize]))
            .collect();
        (strings, symbols)
    }

    fn description(&self, oldest_ms: i64) -> Description {
        let range = self.window.range;
        let min_valid_ms = self.window.replayed.input.min_valid_ms;
        // Only out-of-order samples are older than existing blocks.
        let min_ms = if oldest_ms >= min_valid_ms {
            range.start_ms.max(min_valid_ms)
        } else {
            range.start_ms
        };
        let end_ms = range.end_ms.saturating_add(1);
        // Prometheus accepts new samples from the end of the newest block.
        let max_ms = if self.newest_ms <= range.end_ms {
            self.newest_ms.saturating_add(1)
        } else {
            end_ms
        };
        let hints = if end_ms <= min_valid_ms {
            vec![FROM_OUT_OF_ORDER.to_owned()]
        } else {
            Vec::new()
        };
        Description {
            min_ms,
            max_ms,
            hints,
            external_labels: Vec::new(),
        }
    }
}

fn entries(order: &LabelOrder<'_>, prepared: &Prepared, symbols: &[(u32, u32)]) -> IndexEntries {
    prepared.group.entries(|i| {
        order
            .labels(prepared.series[i])
            .iter()
            .map(|&pair| symbols[pair as usize])
    })
}
