//! A Prometheus block of samples in memory.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use varve_env::{Fs, RealFs};
use varve_model::histogram::Histogram;
use varve_model::{Labels, Sample, TimeRange};
use varve_prometheus::block::{BlockMeta, BlockWriter, Description};
use varve_prometheus::chunk::{Chunk, Encoder, StartTimestamps};

/// The range of no times. Its hull with another range is that range.
const NO_TIMES: TimeRange = TimeRange {
    start_ms: i64::MAX,
    end_ms: i64::MIN,
};

/// Samples of a series, in any order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) floats: Vec<Sample>,
    pub(crate) histograms: Vec<(i64, Arc<Histogram>)>,
}

/// Writes a block of series into the directory `output`. `name` distinguishes blocks that are
/// written at the same time. Of several samples of a series with the same timestamp the first one
/// counts, and floats before histograms. Also returns the number of skipped samples with another
/// value.
///
/// # Errors
/// For I/O errors.
pub(crate) fn write_block(
    output: &Path,
    name: &str,
    mut series: HashMap<Labels, Samples>,
) -> Result<(BlockMeta, u64)> {
    let mut sorted: Vec<Labels> = series.keys().cloned().collect();
    sorted.sort_by(|a, b| a.iter().cmp(b.iter()));
    let texts: BTreeSet<&str> = sorted
        .iter()
        .flat_map(Labels::iter)
        .flat_map(|(name, value)| [name, value])
        .collect();
    let symbols: Vec<&str> = texts.into_iter().collect();
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let mut writer = BlockWriter::create(&fs, output, name, &symbols)?;
    let mut range = NO_TIMES;
    let mut n_repeated = 0;
    for labels in &sorted {
        let mut samples = series.remove(labels).unwrap_or_default();
        n_repeated += samples.sort();
        range = range.hull(samples.time_range());
        writer.add(labels.iter(), &samples.encode())?;
    }
    let description = Description {
        min_ms: range.start_ms,
        max_ms: range.end_ms.saturating_add(1),
        ..Description::default()
    };
    Ok((writer.finish(description)?, n_repeated))
}

impl Samples {
    /// Appends other samples of the series.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.floats.append(&mut other.floats);
        self.histograms.append(&mut other.histograms);
    }

    /// Sorts the samples and keeps one per timestamp. Returns the number of removed samples with
    /// another value than the one that is kept.
    fn sort(&mut self) -> u64 {
        let mut n_repeated = 0;
        // The sort is stable: the first sample with a timestamp stays the first one.
        self.floats.sort_by_key(|sample| sample.timestamp_ms);
        self.floats.dedup_by(|sample, first| {
            let is_repeated = sample.timestamp_ms == first.timestamp_ms;
            n_repeated += u64::from(is_repeated && sample.value.to_bits() != first.value.to_bits());
            is_repeated
        });

        self.histograms
            .sort_by_key(|(timestamp_ms, _)| *timestamp_ms);
        self.histograms.dedup_by(|sample, first| {
            let is_repeated = sample.0 == first.0;
            n_repeated += u64::from(is_repeated && !sample.1.is_same(&first.1));
            is_repeated
        });
        let floats = &self.floats;
        self.histograms.retain(|(timestamp_ms, _)| {
            let is_repeated = floats
                .binary_search_by_key(timestamp_ms, |sample| sample.timestamp_ms)
                .is_ok();
            n_repeated += u64::from(is_repeated);
            !is_repeated
        });
        n_repeated
    }

    /// Returns the range of the timestamps.
    fn time_range(&self) -> TimeRange {
        let floats = self.floats.iter().map(|sample| sample.timestamp_ms);
        let histograms = self.histograms.iter();
        let histograms = histograms.map(|(timestamp_ms, _)| *timestamp_ms);
        let times = floats.chain(histograms).map(TimeRange::at);
        times.fold(NO_TIMES, TimeRange::hull)
    }

    /// Encodes sorted samples.
    fn encode(self) -> Vec<Chunk> {
        let mut encoder = Encoder::new(StartTimestamps::Drop);
        let mut histograms = self.histograms.into_iter().peekable();
        for sample in self.floats {
            while let Some((timestamp_ms, histogram)) =
                histograms.next_if(|(timestamp_ms, _)| *timestamp_ms < sample.timestamp_ms)
            {
                encoder.push_histogram(timestamp_ms, histogram, 0);
            }
            encoder.push(sample, 0);
        }
        for (timestamp_ms, histogram) in histograms {
            encoder.push_histogram(timestamp_ms, histogram, 0);
        }
        encoder.finish()
    }
}
