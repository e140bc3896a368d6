//! The samples and exemplars of a log.

use std::sync::atomic::Ordering;

use super::context::ReplayContext;
use super::locations::{LookupHint, SeriesLocation, SeriesLocations};
use super::log::LogReplay;
use super::sample_bins::SampleBins;
use super::start_timestamps::RecordStartTimestamps;
use crate::batch::SeriesRef;
use crate::error::Result;
use crate::head::AnySample;
use crate::wal::record::{
    self, EXEMPLARS, START_TIMESTAMPS, SampleColumn, decode_exemplars, decode_histograms,
    decode_start_timestamps,
};
use crate::wal::{Decompressor, SegmentKind, is_closed, quarantine};

/// The state of a worker that replays samples segments. Its memory is reused for all frames.
struct Scratch<'a> {
    context: &'a ReplayContext<'a>,
    /// Locations of the series of earlier epochs.
    earlier: &'a SeriesLocations,
    column: SampleColumn,
    /// Lookup hints: for the series of this log, and for the series of earlier epochs.
    hints: (LookupHint, LookupHint),
    /// Float samples of previous records that are not applied yet.
    bins: SampleBins<'a>,
    /// Start timestamps of the samples of the next record.
    start_timestamps: RecordStartTimestamps,
}

impl LogReplay {
    /// Replays the samples segments. `earlier` contains the series of earlier epochs.
    pub(super) fn replay_samples(
        &mut self,
        context: &ReplayContext<'_>,
        earlier: &SeriesLocations,
    ) -> Result<()> {
        // A series that an earlier epoch defined may be in any shard.
        let only_shard = if earlier.len() == 0 {
            self.only_shard
        } else {
            None
        };
        let mut decompressor = Decompressor::default();
        let mut scratch = Scratch {
            context,
            earlier,
            column: SampleColumn::default(),
            hints: Default::default(),
            bins: SampleBins::new(context.shards, only_shard, context.sample_bins_bytes),
            start_timestamps: RecordStartTimestamps::default(),
        };
        let numbers = std::mem::take(&mut self.samples_segments);
        for &number in &numbers {
            let n_unknown = self.n_unknown();
            let is_closed = is_closed(&numbers, number);
            self.replay_segment(
                SegmentKind::Samples,
                number,
                is_closed,
                context,
                |log, frame| {
                    let decompressed = decompressor.decompress(frame.record, frame.payload);
                    Ok(decompressed.and_then(|(record, payload)| {
                        log.apply_record(record, payload, &mut scratch)
                    }))
                },
            )?;
            // The next flush removes the segment; samples and exemplars without a series must not
            // be lost with it.
            if self.n_unknown() > n_unknown {
                quarantine::link_file(
                    context.fs,
                    context.quarantine,
                    &self.path(SegmentKind::Samples, number),
                )?;
            }
        }
        scratch.bins.drain(&mut self.stats);
        Ok(())
    }

    fn n_unknown(&self) -> u64 {
        self.stats.n_unknown_samples + self.stats.n_unknown_exemplars
    }

    /// Applies a record of a samples segment. Returns `None` if it does not decode.
    fn apply_record(
        &mut self,
        record: u8,
        payload: &[u8],
        scratch: &mut Scratch<'_>,
    ) -> Option<()> {
        match record {
            record::SAMPLES => {
                record::decode_samples(payload, &mut scratch.column)?;
                self.apply_samples(scratch);
            }
            record::HISTOGRAMS => self.apply_histograms(payload, scratch)?,
            START_TIMESTAMPS => self.read_start_timestamps(payload, scratch)?,
            EXEMPLARS => self.apply_exemplars(payload, scratch)?,
            _ => return None,
        }
        Some(())
    }

    fn read_start_timestamps(&self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch {
            start_timestamps,
            hints,
            earlier,
            ..
        } = scratch;
        start_timestamps.clear();
        let is_buffered = decode_start_timestamps(payload, |series, timestamp_ms, start| {
            if let Some(location) = self.find(series, earlier, hints) {
                start_timestamps.add(location, timestamp_ms, start);
            }
        })?;
        start_timestamps.set_buffered(is_buffered);
        Some(())
    }

    /// Applies the samples in `scratch.column`.
    fn apply_samples(&mut self, scratch: &mut Scratch<'_>) {
        let Scratch {
            context,
            earlier,
            column,
            hints,
            bins,
            start_timestamps,
        } = scratch;
        context.progress.add_samples(column.len() as u64);
        let has_starts = !start_timestamps.is_empty();
        if has_starts {
            bins.drain(&mut self.stats);
        }
        let mut newest_ms = i64::MIN;
        let mut highest = SeriesRef(0);
        for (&series, &sample) in column.refs.iter().zip(&column.samples) {
            highest = highest.max(series);
            let Some(location) = self.find(series, earlier, hints) else {
                self.stats.n_unknown_samples += 1;
                continue;
            };
            newest_ms = newest_ms.max(sample.timestamp_ms);
            if has_starts {
                self.apply_one(
                    location,
                    AnySample::Float(sample),
                    start_timestamps,
                    context,
                );
            } else {
                bins.push(location, sample, &mut self.stats);
            }
        }
        self.reserve_ref(highest);
        context.newest_ms.fetch_max(newest_ms, Ordering::Relaxed);
        start_timestamps.clear();
    }

    fn apply_histograms(&mut self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch {
            context,
            earlier,
            hints,
            bins,
            start_timestamps,
            ..
        } = scratch;
        // If a float and a histogram have the same timestamp, the first wins: apply the earlier
        // floats now.
        bins.drain(&mut self.stats);
        let decoded = decode_histograms(payload, |logged| {
            context.progress.add_samples(1);
            self.reserve_ref(logged.series);
            match self.find(logged.series, earlier, hints) {
                Some(location) => {
                    context
                        .newest_ms
                        .fetch_max(logged.timestamp_ms, Ordering::Relaxed);
                    let sample = AnySample::Histogram(logged.timestamp_ms, &logged.histogram);
                    self.apply_one(location, sample, start_timestamps, context);
                }
                None => self.stats.n_unknown_samples += 1,
            }
        });
        start_timestamps.clear();
        decoded
    }

    /// Applies a sample directly. The bins must be empty.
    fn apply_one(
        &mut self,
        location: SeriesLocation,
        sample: AnySample<'_>,
        start_timestamps: &RecordStartTimestamps,
        context: &ReplayContext<'_>,
    ) {
        let mut head = context.shards[usize::from(location.shard)].head_mut();
        let replayed = head.replay(location.slot, sample);
        start_timestamps.apply(&mut head, location, sample.timestamp_ms(), replayed);
        self.stats.count(replayed, 1);
    }

    fn apply_exemplars(&mut self, payload: &[u8], scratch: &mut Scratch<'_>) -> Option<()> {
        let Scratch {
            context,
            earlier,
            hints,
            ..
        } = scratch;
        decode_exemplars(payload, |id, series, exemplar| {
            self.reserve_ref(series);
            let location = self.find(series, earlier, hints);
            self.restore_exemplar(id, exemplar, context, || {
                let SeriesLocation { shard, slot, .. } = location?;
                Some(context.shards[usize::from(shard)].head().labels(slot))
            });
        })
    }

    fn find(
        &self,
        series: SeriesRef,
        earlier: &SeriesLocations,
        hints: &mut (LookupHint, LookupHint),
    ) -> Option<SeriesLocation> {
        self.locations
            .find(series, &mut hints.0)
            .or_else(|| earlier.find(series, &mut hints.1))
    }
}
