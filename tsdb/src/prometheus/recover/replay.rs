//! Records in, chunks of series out, batch by batch: while one batch is applied the next one is read.

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use rayon::ThreadPool;
use rayon::prelude::*;

use super::input::{Input, Log};
use super::part::Scratch;
use super::report::{Phase, Progress, Report};
use super::series::{SeriesIdx, SeriesTable};
use super::series_state::{SeriesState, Value};
use super::shard::{Extra, FORGET, Item, Shard, Share};
use super::unknown::{UnknownSample, UnknownSamples};
use super::{RecoverOptions, UNKNOWN_SAMPLES};
use crate::error::Result;
use crate::fs::Fs;
use crate::prometheus::chunk;
use crate::prometheus::fault::{FaultKind, Faults};
use crate::prometheus::head_chunks::{HeadChunk, HeadChunkFiles};
use crate::prometheus::wal::{
    Definition, RawRecord, RecordType, RefHistogram, RefSample, RefTombstone, Segment, SegmentReader,
    decode_definitions, decode_exemplars, decode_histograms, decode_metadata, decode_samples, decode_tombstones,
};
use crate::sample::{SampleColumns, TimeRange};

/// Bytes of decompressed records that are worked on at once; one record may be larger.
const BATCH_SIZE: usize = 16 << 20;
/// Least bytes of chunks in memory, whatever the budget: below that there would be more files than samples.
const CHUNKS_SIZE_MIN: usize = 16 << 20;
/// What a batch takes, decoded and compressed, for each of its bytes.
const BATCH_FACTOR: usize = 6;

/// All that was replayed.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) table: SeriesTable,
    pub(super) shards: Vec<Shard>,
    pub(super) tombstones: HashMap<SeriesIdx, Vec<TimeRange>>,
    pub(super) head: HeadChunkFiles,
    pub(super) head_chunks: Vec<HeadChunk>,
    pub(super) valid_from_ms: i64,
}

impl Replayed {
    /// Returns a series' shard and state.
    pub(super) fn state(&self, series: SeriesIdx) -> (&Shard, &SeriesState) {
        let shard = &self.shards[series as usize % self.shards.len()];
        (shard, &shard.states[series as usize / self.shards.len()])
    }
}

/// Replays all logs.
#[expect(clippy::too_many_arguments, reason = "one caller; each is another thing")]
pub(super) fn replay(
    fs: &Arc<dyn Fs>,
    input: Input,
    out: &Path,
    options: &RecoverOptions,
    pool: &ThreadPool,
    scratch: &Scratch,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Replayed> {
    let mut queue = Queue::new(Arc::clone(fs), input.segments.clone());
    let mut replay = Replay::new(fs, input, out, options, scratch)?;
    let mut batch = queue.next_batch();
    while let Some(current) = batch {
        let (next, applied) =
            pool.install(|| rayon::join(|| queue.next_batch(), || replay.apply(current, report, options)));
        applied?;
        batch = next;
        let n_samples = replay.shards.iter().map(|shard| shard.n_taken + shard.n_late).sum();
        progress(Progress { phase: Phase::Read, done: queue.done, total: queue.total, n_samples });
    }
    report.read_size = queue.done;
    report.faults.append(queue.faults);
    pool.install(|| replay.finish(report))
}

/// The segments that are still to be read.
struct Queue {
    fs: Arc<dyn Fs>,
    segments: std::vec::IntoIter<(Segment, Log)>,
    open: Option<(Arc<Segment>, Log, SegmentReader)>,
    /// A record that did not fit in the batch before.
    waiting: Option<Record>,
    faults: Faults,
    /// Bytes of segments that were read to their end, and of all.
    done: u64,
    total: u64,
}

/// A record and where it was found.
struct Record {
    segment: Arc<Segment>,
    log: Log,
    raw: RawRecord,
}

impl Queue {
    fn new(fs: Arc<dyn Fs>, segments: Vec<(Segment, Log)>) -> Self {
        let size = |segment: &Segment| fs.open(&segment.path).and_then(|file| file.size()).unwrap_or(0);
        let total = segments.iter().map(|(segment, _)| size(segment)).sum();
        let segments = segments.into_iter();
        Self { fs, segments, open: None, waiting: None, faults: Faults::default(), done: 0, total }
    }

    /// Returns records of one log, in order; `None` at the end.
    fn next_batch(&mut self) -> Option<Vec<Record>> {
        let (mut records, mut size) = (Vec::new(), 0_usize);
        while let Some(record) = self.waiting.take().or_else(|| self.next()) {
            let decoded_size = record.raw.compression.decoded_size(&record.raw.bytes);
            let other_log = records.last().is_some_and(|last: &Record| last.log != record.log);
            if !records.is_empty() && (other_log || size + decoded_size > BATCH_SIZE) {
                self.waiting = Some(record);
                break;
            }
            size += decoded_size + size_of::<Record>();
            records.push(record);
        }
        (!records.is_empty()).then_some(records)
    }

    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some((segment, log, reader)) = &mut self.open {
                if let Some(raw) = reader.next(&mut self.faults) {
                    return Some(Record { segment: Arc::clone(segment), log: *log, raw });
                }
                self.done += reader.size();
                self.open = None;
            }
            let (segment, log) = self.segments.next()?;
            match SegmentReader::open(&*self.fs, &segment) {
                Ok(reader) => self.open = Some((Arc::new(segment), log, reader)),
                Err(error) => self.faults.push(&segment.path, 0, FaultKind::Damage, error.to_string()),
            }
        }
    }
}

/// A record, decompressed.
struct Decoded {
    segment: Arc<Segment>,
    log: Log,
    offset: u64,
    bytes: Vec<u8>,
    record_type: Option<RecordType>,
}

/// What some records that follow each other hold, by shard.
#[derive(Default)]
struct Routed {
    is_late: bool,
    shards: Vec<Vec<Item>>,
    extras: Vec<Extra>,
    unknown: Vec<UnknownSample>,
    n_covered: u64,
    n_unknown_schema: u64,
    n_exemplars: u64,
    n_metadata: u64,
    faults: Faults,
}

/// A replay under way.
struct Replay {
    input: Input,
    table: SeriesTable,
    shards: Vec<Shard>,
    tombstones: HashMap<SeriesIdx, Vec<TimeRange>>,
    unknown: UnknownSamples,
}

impl Replay {
    fn new(fs: &Arc<dyn Fs>, input: Input, out: &Path, options: &RecoverOptions, scratch: &Scratch) -> Result<Self> {
        let shard = |idx| Shard::new(scratch.file(idx), options.starts);
        // The labels come from whoever wrote the directory: no salt is needed against them, and runs are alike.
        let table = SeriesTable::new(0);
        let shards = (0..options.concurrency).map(shard).collect();
        let unknown = UnknownSamples::create(fs, &out.join(UNKNOWN_SAMPLES))?;
        Ok(Self { input, table, shards, tombstones: HashMap::new(), unknown })
    }

    fn apply(&mut self, records: Vec<Record>, report: &mut Report, options: &RecoverOptions) -> Result<()> {
        let decoded: Vec<_> = records.into_par_iter().map(decode).collect();
        let mut sound = Vec::with_capacity(decoded.len());
        for record in decoded {
            match record {
                Ok(record) => sound.push(record),
                Err((segment, offset)) => {
                    let reason = "a record cannot be decompressed";
                    report.faults.push(&segment.path, offset, FaultKind::Damage, reason);
                }
            }
        }
        self.define(&sound, report);
        self.delete(&sound, report);
        let group_len = sound.len().div_ceil(self.shards.len() * 4).max(1);
        let routed: Vec<_> = sound.par_chunks(group_len).map(|records| self.route(records)).collect();
        let (head, valid_from_ms, n_shards) = (&self.input.head_chunks, self.input.valid_from_ms, self.shards.len());
        self.shards.par_iter_mut().enumerate().for_each(|(idx, shard)| {
            debug_assert!(idx < n_shards, "as many lists as shards");
            for routed in &routed {
                let share = Share { items: &routed.shards[idx], extras: &routed.extras, is_late: routed.is_late };
                shard.apply(&share, head, valid_from_ms);
            }
        });
        for routed in routed {
            report.n_covered += routed.n_covered;
            report.n_unknown_schema += routed.n_unknown_schema;
            report.n_exemplars += routed.n_exemplars;
            report.n_metadata += routed.n_metadata;
            report.faults.append(routed.faults);
            routed.unknown.iter().try_for_each(|sample| self.unknown.push(sample, report))?;
        }
        self.spill(options)
    }

    /// Defines the series of a batch, so that all of its samples find theirs.
    fn define(&mut self, records: &[Decoded], report: &mut Report) {
        let definitions: Vec<_> = records
            .par_iter()
            .map(|record| {
                let mut definitions: Vec<Definition<'_>> = Vec::new();
                let is_series = record.record_type == Some(RecordType::Series);
                let bad = is_series.then(|| decode_definitions(&record.bytes, &mut definitions).err()).flatten();
                (definitions, bad)
            })
            .collect();
        for (record, (definitions, bad)) in records.iter().zip(definitions) {
            match record.record_type {
                Some(record_type) => report.records.add(record_type),
                None => {
                    let reason = format!("a record of type {:?} is not known", record.bytes.first());
                    report.faults.push(&record.segment.path, record.offset, FaultKind::Unknown, reason);
                }
            }
            if let Some(bad) = bad {
                report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, bad.to_string());
            }
            for definition in definitions {
                if self.define_one(&definition).is_none() {
                    let reason = format!("the labels of series {} make no sense", definition.series);
                    report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, reason);
                }
            }
        }
    }

    fn define_one(&mut self, definition: &Definition<'_>) -> Option<()> {
        let (n_series, known) = (self.table.len(), self.table.find(definition.series));
        let series = self.table.define(definition.series, definition.labels())?;
        let n_shards = self.shards.len();
        let shard = &mut self.shards[series as usize % n_shards];
        if series as usize == n_series {
            shard.push_series();
        }
        if known != Some(series) {
            let places = self.input.head_chunks_of(definition.series);
            let state = &mut shard.states[series as usize / n_shards];
            state.add_head_chunks(places, &self.input.head_chunks, self.input.valid_from_ms);
        }
        Some(())
    }

    /// Notes deletions. Those of all of time come with the samples: they are no deletions.
    fn delete(&mut self, records: &[Decoded], report: &mut Report) {
        for record in records.iter().filter(|record| record.record_type == Some(RecordType::Tombstones)) {
            let mut tombstones = Vec::new();
            if let Err(bad) = decode_tombstones(&record.bytes, &mut tombstones) {
                report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, bad.to_string());
            }
            for tombstone in tombstones {
                let RefTombstone { series, min_ms, max_ms } = tombstone;
                if is_forget(&tombstone) || max_ms < self.input.valid_from_ms {
                    continue;
                }
                match self.table.find(series) {
                    Some(series) => {
                        report.n_tombstones += 1;
                        let range = TimeRange { start_ms: min_ms, end_ms: max_ms };
                        self.tombstones.entry(series).or_default().push(range);
                    }
                    None => {
                        let reason = format!("a deletion of series {series}, whose definition is lost");
                        report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, reason);
                    }
                }
            }
        }
    }

    /// Decodes the samples of records and finds their series.
    fn route(&self, records: &[Decoded]) -> Routed {
        let mut routed = Routed { shards: vec![Vec::new(); self.shards.len()], ..Routed::default() };
        let (mut samples, mut histograms) = (Vec::new(), Vec::new());
        for record in records {
            routed.is_late = record.log == Log::Late;
            let bad = match record.record_type {
                Some(RecordType::Samples | RecordType::SamplesV2) => {
                    samples.clear();
                    let decoded = decode_samples(&record.bytes, &mut samples);
                    samples.iter().for_each(|sample| self.route_sample(sample, &mut routed));
                    decoded.err()
                }
                Some(
                    RecordType::Histograms
                    | RecordType::FloatHistograms
                    | RecordType::CustomHistograms
                    | RecordType::CustomFloatHistograms
                    | RecordType::HistogramsV2
                    | RecordType::FloatHistogramsV2,
                ) => {
                    let decoded = decode_histograms(&record.bytes, &mut histograms);
                    histograms.drain(..).for_each(|histogram| self.route_histogram(histogram, &mut routed));
                    decoded.map(|n_unknown| routed.n_unknown_schema += n_unknown).err()
                }
                Some(RecordType::Tombstones) => {
                    let mut tombstones = Vec::new();
                    // Damage was noted before.
                    let _ = decode_tombstones(&record.bytes, &mut tombstones);
                    tombstones.iter().filter(|it| is_forget(it)).for_each(|it| self.route_forget(it, &mut routed));
                    None
                }
                Some(RecordType::Exemplars) => {
                    let mut exemplars = Vec::new();
                    let decoded = decode_exemplars(&record.bytes, &mut exemplars);
                    routed.n_exemplars += exemplars.len() as u64;
                    decoded.err()
                }
                Some(RecordType::Metadata) => {
                    let mut metadata = Vec::new();
                    let decoded = decode_metadata(&record.bytes, &mut metadata);
                    routed.n_metadata += metadata.len() as u64;
                    decoded.err()
                }
                Some(RecordType::Series | RecordType::MmapMarkers) | None => None,
            };
            if let Some(bad) = bad {
                routed.faults.push(&record.segment.path, record.offset, FaultKind::Damage, bad.to_string());
            }
        }
        routed
    }

    #[inline]
    fn route_sample(&self, sample: &RefSample, routed: &mut Routed) {
        let &RefSample { series, timestamp_ms, start_ms, value } = sample;
        if timestamp_ms < self.input.valid_from_ms && !routed.is_late {
            routed.n_covered += 1;
            return;
        }
        let Some(found) = self.table.find(series) else {
            routed.unknown.push(UnknownSample { series, timestamp_ms, value: Value::Float(value) });
            return;
        };
        let extra = if start_ms == 0 { 0 } else { routed.push_extra(Extra { start_ms, histogram: None }) };
        routed.push(found, Item { timestamp_ms, bits: value.to_bits(), slot: 0, extra });
    }

    fn route_histogram(&self, sample: RefHistogram, routed: &mut Routed) {
        let RefHistogram { series, timestamp_ms, start_ms, histogram } = sample;
        if timestamp_ms < self.input.valid_from_ms && !routed.is_late {
            routed.n_covered += 1;
            return;
        }
        let Some(found) = self.table.find(series) else {
            routed.unknown.push(UnknownSample { series, timestamp_ms, value: Value::Histogram(histogram) });
            return;
        };
        let extra = routed.push_extra(Extra { start_ms, histogram: Some(histogram) });
        routed.push(found, Item { timestamp_ms, bits: 0, slot: 0, extra });
    }

    fn route_forget(&self, tombstone: &RefTombstone, routed: &mut Routed) {
        if let Some(series) = self.table.find(tombstone.series) {
            routed.push(series, Item { timestamp_ms: 0, bits: 0, slot: 0, extra: FORGET });
        }
    }

    /// Moves chunks to files when there are more than fit in memory.
    fn spill(&mut self, options: &RecoverOptions) -> Result<()> {
        let fixed = self.table.size()
            + self.table.len() * size_of::<SeriesState>()
            + self.input.head_chunks.len() * size_of::<HeadChunk>()
            + BATCH_SIZE * BATCH_FACTOR;
        let budget = options.memory_bytes.saturating_sub(fixed).max(CHUNKS_SIZE_MIN);
        if self.shards.iter().map(Shard::memory).sum::<usize>() <= budget {
            return Ok(());
        }
        self.shards.par_iter_mut().try_for_each(Shard::spill)
    }

    fn finish(mut self, report: &mut Report) -> Result<Replayed> {
        let (head, valid_from_ms) = (&self.input.head_chunks, self.input.valid_from_ms);
        self.shards.par_iter_mut().for_each(|shard| shard.finish(head, valid_from_ms));
        self.keep_unknown_chunks(report)?;
        for shard in &self.shards {
            report.n_samples += shard.n_taken;
            report.n_late_samples += shard.n_late;
            report.n_not_newer += shard.n_not_newer;
            report.spilled_size += shard.file.size();
        }
        report.n_series = self.table.len() as u64;
        let Self { input, table, shards, tombstones, unknown } = self;
        unknown.finish()?;
        let Input { head, head_chunks, valid_from_ms, .. } = input;
        Ok(Replayed { table, shards, tombstones, head, head_chunks, valid_from_ms })
    }

    /// Keeps what head chunks hold of series without a definition.
    fn keep_unknown_chunks(&mut self, report: &mut Report) -> Result<()> {
        let (mut bytes, mut columns) = (Vec::new(), SampleColumns::default());
        for chunk in &self.input.head_chunks {
            let is_covered = !chunk.is_late && chunk.max_ms < self.input.valid_from_ms;
            if is_covered || self.table.find(chunk.series).is_some() {
                continue;
            }
            self.input.head.read(chunk, &mut bytes)?;
            columns.clear();
            if let Err(error) = chunk::decode(chunk.encoding, &bytes, &mut columns) {
                let path = self.input.head.path(chunk);
                report.faults.push(path, u64::from(chunk.offset), FaultKind::Damage, error.to_string());
            }
            for (idx, sample) in columns.iter().enumerate() {
                let value = match columns.histogram(idx) {
                    Some(histogram) => Value::Histogram(Arc::clone(histogram)),
                    None => Value::Float(sample.value),
                };
                let unknown = UnknownSample { series: chunk.series, timestamp_ms: sample.timestamp_ms, value };
                self.unknown.push(&unknown, report)?;
            }
        }
        Ok(())
    }
}

impl Routed {
    fn push(&mut self, series: SeriesIdx, item: Item) {
        let n_shards = self.shards.len() as u32;
        self.shards[(series % n_shards) as usize].push(Item { slot: series / n_shards, ..item });
    }

    fn push_extra(&mut self, extra: Extra) -> u32 {
        self.extras.push(extra);
        // A batch has far fewer samples than that.
        self.extras.len() as u32
    }
}

/// A deletion of all of time says that the series was moved to a block because it went silent.
fn is_forget(tombstone: &RefTombstone) -> bool {
    (tombstone.min_ms, tombstone.max_ms) == (i64::MIN, i64::MAX)
}

fn decode(record: Record) -> Result<Decoded, (Arc<Segment>, u64)> {
    let Record { segment, log, raw: RawRecord { offset, compression, bytes } } = record;
    let bytes = match compression.decode(&bytes) {
        Some(std::borrow::Cow::Owned(bytes)) => bytes,
        Some(std::borrow::Cow::Borrowed(_)) => bytes,
        None => return Err((segment, offset)),
    };
    let record_type = RecordType::of(&bytes);
    Ok(Decoded { segment, log, offset, bytes, record_type })
}
