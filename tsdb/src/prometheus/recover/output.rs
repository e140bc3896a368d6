//! Blocks of what was replayed, one per window of time, the oldest first.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rayon::ThreadPool;
use rayon::prelude::*;

use super::part::{Part, Place};
use super::replay::Replayed;
use super::report::{Phase, Progress, Report};
use super::series::{Order, SeriesIdx};
use super::{RecoverOptions, WINDOW_MS, WINDOWS_MAX};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::prometheus::block::{BlockWriter, Description, EncodedChunk, FROM_OUT_OF_ORDER};
use crate::prometheus::chunk::{self, Chunk, ChunkError, Encoder, Encoding, StartTimes};
use crate::prometheus::fault::{FaultKind, Faults};
use crate::sample::{SampleColumns, TimeRange};

/// Series that are prepared at once.
const GROUP_LEN: usize = 4096;

/// What a block gets of a series.
struct Prepared<'a> {
    series: SeriesIdx,
    chunks: Vec<PreparedChunk<'a>>,
}

struct PreparedChunk<'a> {
    encoding: Encoding,
    min_ms: i64,
    max_ms: i64,
    n_samples: u64,
    bytes: Cow<'a, [u8]>,
}

/// Writes the blocks.
pub(super) fn write(
    fs: &Arc<dyn Fs>,
    replayed: &Replayed,
    out: &Path,
    options: &RecoverOptions,
    pool: &ThreadPool,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<()> {
    let windows = windows(replayed)?;
    let order = pool.install(|| replayed.table.order());
    let newest_ms = parts(replayed).map(|part| part.max_ms).max().unwrap_or(i64::MIN);
    let total = (windows.len() * order.series.len()) as u64;
    for (done, window) in windows.iter().enumerate() {
        let range = window_range(*window);
        let output = Output { replayed, order: &order, range, starts: options.starts };
        let texts = output.texts();
        let (symbols, places) = &texts;
        let writer = BlockWriter::create(fs, out, &format!("window-{window}"), symbols)?;
        let done = (done * order.series.len()) as u64;
        let step = |n: u64| {
            let n_samples = report_samples(report);
            progress(Progress { phase: Phase::Write, done: done + n, total, n_samples });
        };
        let (writer, oldest_ms, faults) = pool.install(|| output.add_series(writer, places, &step))?;
        report.faults.append(faults);
        if writer.stats().n_series == 0 {
            writer.abandon()?;
            continue;
        }
        let mut description = output.description(oldest_ms, newest_ms);
        description.external_labels.clone_from(&options.external_labels);
        report.blocks.push(writer.finish(description)?);
    }
    Ok(())
}

fn report_samples(report: &Report) -> u64 {
    report.n_samples + report.n_late_samples
}

fn parts(replayed: &Replayed) -> impl Iterator<Item = &Part> {
    replayed.shards.iter().flat_map(|shard| &shard.states).flat_map(|state| &state.parts)
}

/// Returns the windows that there are samples in, by their number since the epoch.
fn windows(replayed: &Replayed) -> Result<BTreeSet<i64>> {
    let mut windows = BTreeSet::new();
    let too_many = |used: u64| {
        let what = "blocks of two hours that the times of the samples need";
        Err(Error::Limit { what, used, limit: WINDOWS_MAX as u64 })
    };
    for part in parts(replayed) {
        let (first, last) = (part.min_ms.div_euclid(WINDOW_MS), part.max_ms.div_euclid(WINDOW_MS));
        // Fast path: chunks of one window, mostly the same ones.
        if last - first >= WINDOWS_MAX as i64 {
            return too_many(last.abs_diff(first));
        }
        windows.extend(first..=last);
        if windows.len() > WINDOWS_MAX {
            return too_many(windows.len() as u64);
        }
    }
    Ok(windows)
}

/// Returns the times of a window, as far as there are such times.
fn window_range(window: i64) -> TimeRange {
    let start_ms = window.saturating_mul(WINDOW_MS);
    let end_ms = window.saturating_add(1).saturating_mul(WINDOW_MS);
    TimeRange { start_ms, end_ms: if end_ms == i64::MAX { end_ms } else { end_ms - 1 } }
}

/// One block.
struct Output<'a> {
    replayed: &'a Replayed,
    order: &'a Order<'a>,
    range: TimeRange,
    starts: StartTimes,
}

impl<'a> Output<'a> {
    fn has_samples(&self, series: SeriesIdx) -> bool {
        self.replayed.state(series).1.parts.iter().any(|part| self.overlaps(part))
    }

    fn overlaps(&self, part: &Part) -> bool {
        part.min_ms <= self.range.end_ms && self.range.start_ms <= part.max_ms
    }

    /// Returns the names and values of the series that may be in the block, and by place in all of them the place here.
    fn texts(&self) -> (Vec<&'a str>, Vec<u32>) {
        let mut places = vec![0; self.order.texts.len()];
        for &series in self.order.series.iter().filter(|&&series| self.has_samples(series)) {
            for (name, value) in self.order.labels(series) {
                (places[name as usize], places[value as usize]) = (1, 1);
            }
        }
        let mut texts = Vec::new();
        for (place, text) in places.iter_mut().zip(&self.order.texts) {
            if std::mem::replace(place, texts.len() as u32) == 1 {
                texts.push(*text);
            }
        }
        (texts, places)
    }

    fn description(&self, oldest_ms: i64, newest_ms: i64) -> Description {
        let valid_from_ms = self.replayed.valid_from_ms;
        // Only late samples lie before what blocks cover.
        let min_ms =
            if oldest_ms >= valid_from_ms { self.range.start_ms.max(valid_from_ms) } else { self.range.start_ms };
        let end_ms = self.range.end_ms.saturating_add(1);
        // Prometheus takes new samples from the end of the newest block on.
        let max_ms = if newest_ms <= self.range.end_ms { newest_ms.saturating_add(1) } else { end_ms };
        let hints = if end_ms <= valid_from_ms { vec![FROM_OUT_OF_ORDER.to_owned()] } else { Vec::new() };
        Description { min_ms, max_ms, hints, external_labels: Vec::new() }
    }

    /// Adds all series; returns the time of the oldest sample, too.
    fn add_series<'w>(
        &self,
        mut writer: BlockWriter<'w>,
        places: &[u32],
        step: &dyn Fn(u64),
    ) -> Result<(BlockWriter<'w>, i64, Faults)> {
        let (mut oldest_ms, mut faults, mut labels) = (i64::MAX, Faults::default(), Vec::new());
        for (i, group) in self.order.series.chunks(GROUP_LEN).enumerate() {
            let prepared: Vec<_> = group.par_iter().map(|&series| self.prepare(series)).collect();
            for prepared in prepared {
                let (prepared, series_faults) = prepared?;
                faults.append(series_faults);
                let Some(Prepared { series, chunks }) = prepared else { continue };
                labels.clear();
                let place = |text: u32| places[text as usize];
                labels.extend(self.order.labels(series).map(|(name, value)| (place(name), place(value))));
                let chunks: Vec<_> = chunks.iter().map(PreparedChunk::encoded).collect();
                oldest_ms = chunks.first().map_or(oldest_ms, |chunk| oldest_ms.min(chunk.min_ms));
                writer.add(&labels, &chunks)?;
            }
            step(((i + 1) * GROUP_LEN).min(self.order.series.len()) as u64);
        }
        Ok((writer, oldest_ms, faults))
    }

    /// Brings the chunks of a series in the block's range together.
    fn prepare(&self, series: SeriesIdx) -> Result<(Option<Prepared<'a>>, Faults)> {
        let mut faults = Faults::default();
        let (_, state) = self.replayed.state(series);
        let parts = || state.parts.iter().filter(|part| self.overlaps(part));
        // Fast path: nothing late, nothing deleted.
        let is_plain = !self.replayed.tombstones.contains_key(&series) && parts().all(|part| self.is_plain(part));
        let mut chunks = Vec::new();
        if is_plain {
            for part in parts() {
                chunks.push(self.copy(series, part)?);
            }
        } else {
            let columns = self.merge(series, parts(), &mut faults)?;
            let mut encoder = Encoder::new(self.starts);
            encoder.push_columns(&columns);
            chunks.extend(encoder.finish().into_iter().map(PreparedChunk::owned));
        }
        Ok(((!chunks.is_empty()).then_some(Prepared { series, chunks }), faults))
    }

    /// Tells whether a chunk can go into the block as it is. Head chunks may hold what does not decode.
    fn is_plain(&self, part: &Part) -> bool {
        let is_whole = self.range.start_ms <= part.min_ms && part.max_ms <= self.range.end_ms;
        is_whole && !part.is_late && !matches!(part.place, Place::Head(_))
    }

    fn copy(&self, series: SeriesIdx, part: &'a Part) -> Result<PreparedChunk<'a>> {
        let &Part { encoding, min_ms, max_ms, n_samples, .. } = part;
        let bytes = match &part.place {
            Place::Memory(bytes) => Cow::Borrowed(&**bytes),
            Place::Spilled { .. } | Place::Head(_) => {
                let mut bytes = Vec::new();
                self.read(series, part, &mut bytes)?;
                Cow::Owned(bytes)
            }
        };
        Ok(PreparedChunk { encoding, min_ms, max_ms, n_samples: u64::from(n_samples), bytes })
    }

    fn read<'b>(&'b self, series: SeriesIdx, part: &'b Part, scratch: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let (shard, _) = self.replayed.state(series);
        shard.file.read(part, (&self.replayed.head, &self.replayed.head_chunks), scratch)
    }

    /// Decodes chunks: those in order first, then late ones where there is no sample yet; then takes out what was deleted.
    fn merge(
        &self,
        series: SeriesIdx,
        parts: impl Iterator<Item = &'a Part> + Clone,
        faults: &mut Faults,
    ) -> Result<SampleColumns> {
        let (mut columns, mut decoded, mut bytes) = (SampleColumns::default(), SampleColumns::default(), Vec::new());
        for is_late in [false, true] {
            for part in parts.clone().filter(|part| part.is_late == is_late) {
                decoded.clear();
                let bytes = self.read(series, part, &mut bytes)?;
                if let Err(error) = chunk::decode(part.encoding, bytes, &mut decoded) {
                    self.report(part, error, faults);
                }
                columns.merge(&decoded);
            }
            if !is_late && self.replayed.valid_from_ms > i64::MIN {
                columns.remove(TimeRange { start_ms: i64::MIN, end_ms: self.replayed.valid_from_ms - 1 });
            }
        }
        for &range in self.replayed.tombstones.get(&series).into_iter().flatten() {
            columns.remove(range);
        }
        if self.range.start_ms > i64::MIN {
            columns.remove(TimeRange { start_ms: i64::MIN, end_ms: self.range.start_ms - 1 });
        }
        if self.range.end_ms < i64::MAX {
            columns.remove(TimeRange { start_ms: self.range.end_ms + 1, end_ms: i64::MAX });
        }
        Ok(columns)
    }

    fn report(&self, part: &Part, error: ChunkError, faults: &mut Faults) {
        if let Place::Head(place) = part.place {
            let chunk = &self.replayed.head_chunks[place as usize];
            let reason = format!("a chunk of series {}: {error}", chunk.series);
            faults.push(self.replayed.head.path(chunk), u64::from(chunk.offset), FaultKind::Damage, reason);
        }
    }
}

impl PreparedChunk<'_> {
    fn owned(chunk: Chunk) -> Self {
        let Chunk { encoding, min_ms, max_ms, n_samples, bytes } = chunk;
        Self { encoding, min_ms, max_ms, n_samples: n_samples as u64, bytes: Cow::Owned(bytes) }
    }

    fn encoded(&self) -> EncodedChunk<'_> {
        let &Self { encoding, min_ms, max_ms, n_samples, .. } = self;
        EncodedChunk { encoding, min_ms, max_ms, n_samples, bytes: &self.bytes }
    }
}
