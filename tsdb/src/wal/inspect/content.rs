//! Decoded records.

use std::sync::Arc;

use varve_model::histogram::Histogram;
use varve_model::metadata::Metadata;
use varve_model::start_timestamps::Order;
use varve_model::{Exemplar, Labels, Sample};

use crate::batch::SeriesRef;
use crate::wal::checkpoint::{self, Entry, Loader, Texts};
use crate::wal::compression::Decompressor;
use crate::wal::file_name::SegmentKind;
use crate::wal::reader::Frame;
use crate::wal::record::{
    self, EXEMPLARS, START_TIMESTAMPS, SampleColumn, SampleSizes, decode_exemplars,
    decode_histograms, decode_start_timestamps,
};

/// Names of all records, as [`Content::name`] returns them.
pub const RECORD_NAMES: [&str; 10] = [
    "series",
    "samples",
    "metadata",
    "histograms",
    "exemplars",
    "start_timestamps",
    "begin",
    "symbols",
    "end",
    "unknown",
];

/// A decoded record. Series are identified by their refs.
#[derive(Debug)]
pub enum Content<'a> {
    /// Series definitions of a segment.
    Series(Vec<(u64, Labels)>),
    /// Samples in the order of the request, and the sizes of the parts of the record.
    Samples(&'a [LoggedSample], SampleSizes),
    /// Metadata by metric family.
    Metadata(Vec<(String, Metadata)>),
    /// Native histograms: series, timestamp, value.
    Histograms(Vec<(u64, i64, Arc<Histogram>)>),
    /// Exemplars: id, series, exemplar.
    Exemplars(Vec<(u64, u64, Exemplar)>),
    /// Start timestamps of samples of the next record.
    StartTimestamps(Vec<LoggedStart>),
    /// The first frame of a checkpoint, with the next free series ref at its start.
    Begin(u64),
    /// Number of symbols in a symbols frame of a checkpoint.
    Symbols(u64),
    /// Series of a checkpoint (ref, timestamp of the last sample or `i64::MIN`, labels), and the
    /// number of series whose labels are lost.
    CheckpointSeries(Vec<(u64, i64, Labels)>, u64),
    /// Exemplars of a checkpoint by series, each with its id.
    CheckpointExemplars(Vec<(Labels, Vec<(u64, Exemplar)>)>),
    /// The last frame of a checkpoint, with the next free series ref at its end.
    End(u64),
    /// An unknown record in a valid frame.
    Unknown,
}

/// A sample of the WAL.
#[derive(Debug, Clone, Copy)]
pub struct LoggedSample {
    /// The series.
    pub series: u64,
    /// The sample.
    pub sample: Sample,
}

/// The start timestamp of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedStart {
    /// The series.
    pub series: u64,
    /// The timestamp of the sample.
    pub timestamp_ms: i64,
    /// The start timestamp; 0 if unknown.
    pub start_ms: i64,
    /// Whether the start timestamp applies only to this out-of-order sample; `None` if the replay
    /// decides.
    pub is_out_of_order: Option<bool>,
}

impl Content<'_> {
    /// Returns the name of the record.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Series(_) | Self::CheckpointSeries(..) => "series",
            Self::Samples(..) => "samples",
            Self::Metadata(_) => "metadata",
            Self::Histograms(_) => "histograms",
            Self::Exemplars(_) | Self::CheckpointExemplars(_) => "exemplars",
            Self::StartTimestamps(_) => "start_timestamps",
            Self::Begin(_) => "begin",
            Self::Symbols(_) => "symbols",
            Self::End(_) => "end",
            Self::Unknown => "unknown",
        }
    }
}

/// Decodes the frames of a file, in order.
#[derive(Debug)]
pub(super) struct Decoder {
    kind: SegmentKind,
    loader: Loader,
    decompressor: Decompressor,
    column: SampleColumn,
    samples: Vec<LoggedSample>,
}

impl Decoder {
    /// Creates the decoder of a file.
    pub(super) fn new(kind: SegmentKind, number: u64) -> Self {
        let loader = Loader::new(number, Texts::default());
        let decompressor = Decompressor::default();
        Self {
            kind,
            loader,
            decompressor,
            column: SampleColumn::default(),
            samples: Vec::new(),
        }
    }

    /// Decodes a frame.
    pub(super) fn decode(&mut self, frame: &Frame<'_>) -> Content<'_> {
        let content = match self.kind {
            SegmentKind::Checkpoint => self.checkpoint_content(frame),
            SegmentKind::Series => self.series_content(frame),
            SegmentKind::Samples => self.samples_content(frame),
        };
        content.unwrap_or(Content::Unknown)
    }

    fn series_content(&mut self, frame: &Frame<'_>) -> Option<Content<'_>> {
        let (record, payload) = self.decompressor.decompress(frame.record, frame.payload)?;
        match record {
            record::SERIES => {
                let mut series = Vec::new();
                record::decode_series(payload, |number, labels| {
                    series.push((number.0, record::to_labels(labels)))
                })?;
                Some(Content::Series(series))
            }
            record::METADATA => {
                let mut families = Vec::new();
                record::decode_metadata(payload, |family, metadata| {
                    families.push((family.to_owned(), metadata))
                })?;
                Some(Content::Metadata(families))
            }
            _ => None,
        }
    }

    fn samples_content(&mut self, frame: &Frame<'_>) -> Option<Content<'_>> {
        let Self {
            decompressor,
            column,
            samples,
            ..
        } = self;
        let (record, payload) = decompressor.decompress(frame.record, frame.payload)?;
        let sizes = match record {
            record::HISTOGRAMS => {
                let mut found = Vec::new();
                decode_histograms(payload, |logged| {
                    found.push((logged.series.0, logged.timestamp_ms, logged.histogram))
                })?;
                return Some(Content::Histograms(found));
            }
            START_TIMESTAMPS => return start_timestamps(payload),
            EXEMPLARS => {
                let mut found = Vec::new();
                decode_exemplars(payload, |number, series, exemplar| {
                    found.push((number, series.0, exemplar))
                })?;
                return Some(Content::Exemplars(found));
            }
            record::SAMPLES => record::decode_sized(payload, column)?,
            _ => return None,
        };
        samples.clear();
        for (&SeriesRef(series), &sample) in column.refs.iter().zip(&column.samples) {
            samples.push(LoggedSample { series, sample });
        }
        Some(Content::Samples(samples, sizes))
    }

    fn checkpoint_content(&mut self, frame: &Frame<'_>) -> Option<Content<'_>> {
        let n_symbols = self.loader.n_symbols();
        let mut series = Vec::new();
        let mut n_lost = 0;
        let mut families = Vec::new();
        let mut exemplars = Vec::new();
        let mut next_ref = 0;
        // The closure never fails.
        let _ok = self.loader.frame(frame, &mut |entry: Entry<'_>| {
            match entry {
                Entry::Series(it) => series.push((it.series.0, it.last_ms, it.labels())),
                Entry::LostSeries => n_lost += 1,
                Entry::Metadata(family, metadata) => families.push((family, metadata)),
                Entry::Exemplars(numbered) => exemplars.push(numbered),
                Entry::NextRef(next) => next_ref = next,
            }
            Ok(())
        })?;
        match frame.record & !crate::wal::frame::COMPRESSED {
            checkpoint::BEGIN => Some(Content::Begin(next_ref)),
            checkpoint::END => Some(Content::End(next_ref)),
            checkpoint::SYMBOLS => Some(Content::Symbols(self.loader.n_symbols() - n_symbols)),
            checkpoint::SERIES => Some(Content::CheckpointSeries(series, n_lost)),
            checkpoint::EXEMPLARS => Some(Content::CheckpointExemplars(exemplars)),
            record::METADATA => Some(Content::Metadata(families)),
            _ => None,
        }
    }
}

fn start_timestamps(payload: &[u8]) -> Option<Content<'static>> {
    let mut found = Vec::new();
    decode_start_timestamps(payload, |series, timestamp_ms, start| {
        let is_out_of_order = start.order.map(|order| order == Order::OutOfOrder);
        found.push(LoggedStart {
            series: series.0,
            timestamp_ms,
            start_ms: start.start_ms,
            is_out_of_order,
        });
    })?;
    Some(Content::StartTimestamps(found))
}
