//! What a frame holds, in the terms of those who look at a log from outside.

use std::sync::Arc;

use crate::head::{Order, SeriesRef};
use crate::labels::{Labels, Metadata};
use crate::sample::Sample;
use crate::sample::exemplar::Exemplar;
use crate::sample::histogram::Histogram;
use crate::wal::checkpoint::{Entry, Loader};
use crate::wal::exemplars::{EXEMPLARS, decode_exemplars};
use crate::wal::histograms::decode_histograms;
use crate::wal::payload::Unpacker;
use crate::wal::reader::Frame;
use crate::wal::record::SampleColumn;
use crate::wal::starts::{STARTS, decode_starts};
use crate::wal::{SegmentKind, checkpoint, record, samples as samples_record};

/// Names of all records, as [`Content::name`] returns them.
pub const RECORD_NAMES: [&str; 10] =
    ["series", "samples", "metadata", "histograms", "exemplars", "starts", "begin", "symbols", "end", "unknown"];

/// What a frame holds. A series is named by its number in the data directory.
#[derive(Debug)]
pub enum Content<'a> {
    /// Definitions of series, of a segment.
    Series(Vec<(u64, Labels)>),
    /// Samples, in the order of the request, and what takes how much.
    Samples(&'a [LoggedSample], SampleSizes),
    /// Metadata by metric family.
    Metadata(Vec<(String, Metadata)>),
    /// Native histograms: series, time, value.
    Histograms(Vec<(u64, i64, Arc<Histogram>)>),
    /// Exemplars, each with its number and its series.
    Exemplars(Vec<(u64, u64, Exemplar)>),
    /// Start timestamps of samples of the next record.
    Starts(Vec<LoggedStart>),
    /// The beginning of a checkpoint, with the least number that no series had when it was begun.
    Begin(u64),
    /// Labels that series of a checkpoint refer to, and how many there are.
    Symbols(u64),
    /// Series of a checkpoint, each with the time of its last sample (`i64::MIN`: none); how many more lack a symbol.
    CheckpointSeries(Vec<(u64, i64, Labels)>, u64),
    /// Exemplars of a checkpoint by series, each with its number.
    CheckpointExemplars(Vec<(Labels, Vec<(u64, Exemplar)>)>),
    /// The end of a checkpoint, with the least number that no series had by then.
    End(u64),
    /// What this program does not know, though the checksum is right.
    Unknown,
}

/// A sample of a log.
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
    /// When the sample was taken.
    pub timestamp_ms: i64,
    /// Since when it counts; 0: not known.
    pub start_ms: i64,
    /// Whether it is the start of this sample alone; `None`: replay decides.
    pub is_late: Option<bool>,
}

/// How many bits the parts of a record of samples take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleSizes {
    /// What is there once: number, flags, first series, first time.
    pub head: u64,
    /// The other series.
    pub refs: u64,
    /// The other times.
    pub times: u64,
    /// The values.
    pub values: u64,
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
            Self::Starts(_) => "starts",
            Self::Begin(_) => "begin",
            Self::Symbols(_) => "symbols",
            Self::End(_) => "end",
            Self::Unknown => "unknown",
        }
    }
}

/// Decodes the frames of one file, in order.
#[derive(Debug)]
pub(super) struct Decoder {
    kind: SegmentKind,
    loader: Loader,
    unpacker: Unpacker,
    column: SampleColumn,
    samples: Vec<LoggedSample>,
}

impl Decoder {
    /// Starts a file of a kind and a number.
    pub(super) fn new(kind: SegmentKind, number: u64) -> Self {
        let (loader, unpacker) = (Loader::new(number), Unpacker::default());
        Self { kind, loader, unpacker, column: SampleColumn::default(), samples: Vec::new() }
    }

    /// Decodes a frame.
    pub(super) fn decode(&mut self, frame: &Frame<'_>) -> Content<'_> {
        let content = match self.kind {
            SegmentKind::Checkpoint => self.of_checkpoint(frame),
            SegmentKind::Series => self.of_series(frame),
            SegmentKind::Samples => self.of_samples(frame),
        };
        content.unwrap_or(Content::Unknown)
    }

    fn of_series(&mut self, frame: &Frame<'_>) -> Option<Content<'_>> {
        let (record, payload) = self.unpacker.unpack(frame.record, frame.payload)?;
        match record {
            record::SERIES => {
                let mut series = Vec::new();
                record::decode_series(payload, |number, labels| series.push((number.0, record::set_of(labels))))?;
                Some(Content::Series(series))
            }
            record::METADATA => {
                let mut families = Vec::new();
                record::decode_metadata(payload, |family, metadata| families.push((family.to_owned(), metadata)))?;
                Some(Content::Metadata(families))
            }
            _ => None,
        }
    }

    fn of_samples(&mut self, frame: &Frame<'_>) -> Option<Content<'_>> {
        let Self { unpacker, column, samples, .. } = self;
        let (record, payload) = unpacker.unpack(frame.record, frame.payload)?;
        let sizes = match record {
            record::HISTOGRAMS => {
                let mut found = Vec::new();
                decode_histograms(payload, |of| found.push((of.series.0, of.timestamp_ms, of.histogram)))?;
                return Some(Content::Histograms(found));
            }
            STARTS => return starts(payload),
            EXEMPLARS => {
                let mut found = Vec::new();
                decode_exemplars(payload, |number, series, exemplar| found.push((number, series.0, exemplar)))?;
                return Some(Content::Exemplars(found));
            }
            record::SAMPLES => samples_record::decode_sized(payload, column)?,
            _ => return None,
        };
        let samples_record::PartSizes { head, refs, times, values } = sizes;
        let sizes = SampleSizes { head, refs, times, values };
        let logged = |(&SeriesRef(series), &sample)| LoggedSample { series, sample };
        samples.clear();
        samples.extend(column.refs.iter().zip(&column.samples).map(logged));
        Some(Content::Samples(samples, sizes))
    }

    fn of_checkpoint(&mut self, frame: &Frame<'_>) -> Option<Content<'_>> {
        let n_symbols = self.loader.n_symbols();
        let (mut series, mut n_lost, mut families) = (Vec::new(), 0, Vec::new());
        let (mut exemplars, mut next_ref) = (Vec::new(), 0);
        let mut each = |entry: Entry<'_>| {
            match entry {
                Entry::Series(it) => series.push((it.series.0, it.last_ms, it.labels())),
                Entry::LostSeries => n_lost += 1,
                Entry::Metadata(family, metadata) => families.push((family, metadata)),
                Entry::Exemplars(of_series) => exemplars.push(of_series),
                Entry::NextRef(next) => next_ref = next,
            }
            Ok(())
        };
        // What is handed out is never refused.
        let _taken = self.loader.frame(frame, &mut each)?;
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

fn starts(payload: &[u8]) -> Option<Content<'static>> {
    let mut found = Vec::new();
    decode_starts(payload, |series, timestamp_ms, start| {
        let is_late = start.order.map(|order| order == Order::OutOfOrder);
        found.push(LoggedStart { series: series.0, timestamp_ms, start_ms: start.start_ms, is_late });
    })?;
    Some(Content::Starts(found))
}
