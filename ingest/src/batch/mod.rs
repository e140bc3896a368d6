//! A decoded write request: spans of label sets and flat columns of samples.
//!
//! Every protocol is decoded into a [`DecodedBatch`]. It holds no strings, only a [`Span`] of the
//! message for each, so that it has no lifetime and can be reused. `u32` is wide enough because a
//! message is at most `u32::MAX` bytes
//! ([`Limits::decompressed_size_max`](crate::Limits::decompressed_size_max)).

mod label_hash;

use std::sync::Arc;

use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;
use varve_model::{Sample, TimeRange};
use varve_protobuf::Span;

pub use label_hash::RouteHasher;
pub(crate) use label_hash::{KeyLanes, RouteKey};

/// A decoded write request. A decoder clears it and reuses its memory.
#[derive(Debug, Default)]
pub struct DecodedBatch {
    /// The encoding of labels and histograms.
    pub(crate) version: Version,
    /// The symbol table of version 2.0.
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) series: Vec<SeriesEntry>,
    pub(crate) samples: Vec<Sample>,
    /// Index and start timestamp of each sample with a start timestamp, ascending by index.
    pub(crate) start_timestamps: Vec<(u32, i64)>,
    pub(crate) families: Vec<FamilyEntry>,
    pub(crate) histograms: Vec<HistogramEntry>,
    pub(crate) exemplars: Vec<ExemplarEntry>,
    /// Size of the exemplars in the message, in bytes.
    pub(crate) exemplars_size: usize,
}

/// A version of remote write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    #[default]
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

/// An entry of the symbol table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    /// The string.
    pub(crate) text: Span,
    pub(crate) hash: RouteKey,
}

/// A series of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesEntry {
    /// The encoded labels. They may contain other fields if `key` is `None`.
    pub(crate) labels: Span,
    /// End of the samples of the series in [`DecodedBatch::samples`]. They start at the end of the
    /// previous series.
    samples_end: u32,
    /// End of the histograms of the series in [`DecodedBatch::histograms`].
    histograms_end: u32,
    /// Hash of the label bytes, in version 2.0 of the symbols. `None` if the bytes are not
    /// contiguous: such a series is not cached.
    pub(crate) key: Option<RouteKey>,
}

/// A float sample of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleEntry {
    pub(crate) sample: Sample,
    /// 0 if unknown.
    pub(crate) start_ms: i64,
    /// Its index among the samples of the request: floats first, then histograms.
    pub(crate) index: u32,
}

/// The float samples of a series of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesSamples<'a> {
    pub(crate) samples: &'a [Sample],
    first_idx: usize,
    start_timestamps: &'a [(u32, i64)],
}

impl<'a> SeriesSamples<'a> {
    /// Returns the only sample, if there is exactly one.
    #[inline]
    pub(crate) fn single(self) -> Option<SampleEntry> {
        let &[sample] = self.samples else { return None };
        Some(SampleEntry {
            sample,
            start_ms: self
                .start_timestamps
                .first()
                .map_or(0, |&(_, start_ms)| start_ms),
            index: self.first_idx as u32,
        })
    }

    /// Iterates over the samples.
    pub(crate) fn entries(self) -> impl Iterator<Item = SampleEntry> + 'a {
        let mut starts = self.start_timestamps.iter().peekable();
        (self.first_idx as u32..)
            .zip(self.samples)
            .map(move |(index, &sample)| {
                let start = starts.next_if(|(idx, _)| *idx == index);
                SampleEntry {
                    sample,
                    start_ms: start.map_or(0, |&(_, start_ms)| start_ms),
                    index,
                }
            })
    }

    /// Calls `each` with the samples in order of time. Samples of equal time keep their order.
    pub(crate) fn for_each_in_time_order(self, mut each: impl FnMut(SampleEntry)) {
        // Fast path: senders must sort the samples of a series.
        if self.samples.is_sorted_by_key(|sample| sample.timestamp_ms) {
            for entry in self.entries() {
                each(entry);
            }
            return;
        }
        let mut sorted: Vec<_> = self.entries().collect();
        sorted.sort_by_key(|entry| entry.sample.timestamp_ms);
        for entry in sorted {
            each(entry);
        }
    }
}

/// A native histogram of the request.
#[derive(Debug, Clone)]
pub(crate) enum HistogramEntry {
    /// The encoded message, checked but not decoded.
    Encoded(Span),
    /// A histogram of another protocol.
    Decoded {
        timestamp_ms: i64,
        /// 0 if unknown.
        start_ms: i64,
        histogram: Arc<Histogram>,
    },
}

/// An exemplar of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExemplarEntry {
    /// Index of the series.
    pub(crate) series_idx: u32,
    /// The encoded fields.
    pub(crate) fields: Span,
}

/// Metadata of a metric family.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FamilyEntry {
    pub(crate) name: Span,
    pub(crate) help: Span,
    pub(crate) unit: Span,
    pub(crate) kind: MetricType,
}

impl FamilyEntry {
    /// Returns `true` if both entries have the same strings and type.
    pub(crate) fn is_same(&self, other: &Self, message: &[u8]) -> bool {
        self.kind == other.kind
            && self.name.slice(message) == other.name.slice(message)
            && self.help.slice(message) == other.help.slice(message)
            && self.unit.slice(message) == other.unit.slice(message)
    }
}

impl SeriesEntry {
    fn ends(&self) -> (u32, u32) {
        (self.samples_end, self.histograms_end)
    }
}

impl DecodedBatch {
    /// Returns the number of series.
    #[must_use]
    pub fn n_series(&self) -> usize {
        self.series.len()
    }

    /// Iterates over the keys of the series that can be cached.
    pub(crate) fn keys(&self) -> impl Iterator<Item = RouteKey> {
        self.series.iter().filter_map(|series| series.key)
    }

    /// Returns the oldest and the newest timestamp of the floats whose timestamps are accepted.
    pub(crate) fn times(&self, is_accepted: impl Fn(i64) -> bool) -> Option<TimeRange> {
        let times = self
            .samples
            .iter()
            .map(|sample| sample.timestamp_ms)
            .filter(|&time_ms| is_accepted(time_ms));
        times.map(TimeRange::at).reduce(TimeRange::hull)
    }

    /// Returns the number of float samples.
    #[must_use]
    pub fn n_samples(&self) -> usize {
        self.samples.len()
    }

    /// Returns the number of samples, floats and histograms.
    pub(crate) fn n_all_samples(&self) -> usize {
        self.samples.len() + self.histograms.len()
    }

    /// Adds a sample of the series that is pushed next. `start_ms` is 0 if unknown.
    pub(crate) fn push_sample(&mut self, sample: Sample, start_ms: i64) {
        if start_ms != 0 {
            let idx = u32::try_from(self.samples.len())
                .expect("the decoder checks samples_per_request_max");
            self.start_timestamps.push((idx, start_ms));
        }
        self.samples.push(sample);
    }

    /// Adds a series with the samples pushed since the previous one.
    pub(crate) fn push_series(&mut self, labels: Span, key: Option<RouteKey>) {
        let end =
            |len: usize| u32::try_from(len).expect("the decoder checks samples_per_request_max");
        let samples_end = end(self.samples.len());
        let histograms_end = end(self.histograms.len());
        self.series.push(SeriesEntry {
            labels,
            samples_end,
            histograms_end,
            key,
        });
    }

    /// Adds an exemplar of the series that is pushed next.
    pub(crate) fn push_exemplar(&mut self, fields: Span) {
        let series_idx =
            u32::try_from(self.series.len()).expect("the decoder checks series_per_request_max");
        self.exemplars.push(ExemplarEntry { series_idx, fields });
        self.exemplars_size += (fields.end - fields.start) as usize;
    }

    /// Iterates over the series in order, each with its samples.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&SeriesEntry, SeriesSamples<'_>)> {
        let mut start = 0;
        let mut rest = &self.start_timestamps[..];
        self.series.iter().map(move |series| {
            let end = series.samples_end as usize;
            let first_idx = std::mem::replace(&mut start, end);
            let n_starts = rest
                .iter()
                .take_while(|(idx, _)| (*idx as usize) < end)
                .count();
            let (start_timestamps, others) = rest.split_at(n_starts);
            rest = others;
            (
                series,
                SeriesSamples {
                    samples: &self.samples[first_idx..end],
                    first_idx,
                    start_timestamps,
                },
            )
        })
    }

    /// Returns the float samples of one series.
    pub(crate) fn samples_of(&self, series_idx: usize) -> SeriesSamples<'_> {
        let first_idx = series_idx
            .checked_sub(1)
            .map_or(0, |before| self.series[before].samples_end as usize);
        let end = self.series[series_idx].samples_end as usize;
        let start_timestamps =
            &self.start_timestamps[self.n_starts_before(first_idx)..self.n_starts_before(end)];
        SeriesSamples {
            samples: &self.samples[first_idx..end],
            first_idx,
            start_timestamps,
        }
    }

    /// Returns the number of start timestamps of samples before an index.
    fn n_starts_before(&self, sample_idx: usize) -> usize {
        self.start_timestamps
            .partition_point(|&(idx, _)| (idx as usize) < sample_idx)
    }

    /// Returns the histograms of a series.
    pub(crate) fn histograms_of(&self, series_idx: usize) -> &[HistogramEntry] {
        let end = |idx: usize| self.series[idx].histograms_end as usize;
        &self.histograms[series_idx.checked_sub(1).map_or(0, end)..end(series_idx)]
    }

    /// Returns the index of a histogram among the samples of the request: floats first, then
    /// histograms.
    pub(crate) fn histogram_index(&self, series_idx: usize, histogram_idx: usize) -> u32 {
        let histograms_start = series_idx
            .checked_sub(1)
            .map_or(0, |before| self.series[before].histograms_end as usize);
        (self.samples.len() + histograms_start + histogram_idx) as u32
    }

    /// Returns the histogram at an index of [`DecodedBatch::histogram_index`], or `None` if the
    /// sample is a float.
    pub(crate) fn histogram_at(&self, index: u32) -> Option<&HistogramEntry> {
        let histogram_idx = (index as usize).checked_sub(self.samples.len())?;
        Some(&self.histograms[histogram_idx])
    }

    /// Returns the float sample at an index of [`SampleEntry::index`].
    pub(crate) fn sample_at(&self, index: u32) -> SampleEntry {
        let starts = &self.start_timestamps;
        let start = starts.binary_search_by_key(&index, |&(idx, _)| idx);
        SampleEntry {
            sample: self.samples[index as usize],
            start_ms: start.map_or(0, |position| starts[position].1),
            index,
        }
    }

    /// Returns the index of the series of a sample, a float or a histogram.
    pub(crate) fn series_of(&self, index: u32) -> u32 {
        let n_floats = self.samples.len() as u32;
        let series_idx = if index < n_floats {
            self.series
                .partition_point(|series| series.samples_end <= index)
        } else {
            self.series
                .partition_point(|series| series.histograms_end <= index - n_floats)
        };
        series_idx as u32
    }

    /// Returns the number of samples of a series, floats and histograms.
    pub(crate) fn n_samples_of(&self, series_idx: usize) -> usize {
        let (floats, histograms) = series_idx
            .checked_sub(1)
            .map_or((0, 0), |before| self.series[before].ends());
        let (floats_end, histograms_end) = self.series[series_idx].ends();
        ((floats_end - floats) + (histograms_end - histograms)) as usize
    }

    /// Returns `true` if a series of a remote-write request has exemplars.
    pub(crate) fn has_exemplars(&self, series_idx: u32) -> bool {
        self.exemplars
            .binary_search_by_key(&series_idx, |entry| entry.series_idx)
            .is_ok()
    }

    /// Empties the batch and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.version = Version::V1;
        self.symbols.clear();
        self.series.clear();
        self.samples.clear();
        self.start_timestamps.clear();
        self.families.clear();
        self.histograms.clear();
        self.exemplars.clear();
        self.exemplars_size = 0;
    }

    /// Returns the bytes of memory that the batch has allocated.
    pub(crate) fn size(&self) -> usize {
        self.series.capacity() * size_of::<SeriesEntry>()
            + self.symbols.capacity() * size_of::<Symbol>()
            + self.samples.capacity() * size_of::<Sample>()
            + self.start_timestamps.capacity() * size_of::<(u32, i64)>()
            + self.histograms.capacity() * size_of::<HistogramEntry>()
            + self.families.capacity() * size_of::<FamilyEntry>()
            + self.exemplars.capacity() * size_of::<ExemplarEntry>()
    }
}
