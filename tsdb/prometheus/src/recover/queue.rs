//! The records of the logs, in order, a batch at a time, decompressed.

use std::sync::Arc;

use rayon::prelude::*;
use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::{DamageKind, DamageReport};

use super::input::Log;
use crate::wal::{Compression, RawRecord, RecordType, Segment, SegmentReader, SpareMemory};

/// Bytes of decompressed records that are worked on at once; one record may be larger.
pub(super) const BATCH_SIZE: usize = 2 << 20;

/// The segments that are still to be read.
pub(super) struct Queue {
    fs: Arc<dyn Fs>,
    segments: std::vec::IntoIter<(Segment, Log)>,
    open: Option<(Arc<Segment>, Log, SegmentReader)>,
    /// A record that did not fit in the batch before.
    waiting: Option<Raw>,
    spare: SpareMemory,
    pub(super) damage: DamageReport,
    /// Bytes of segments that were read to their end, and of all.
    done: u64,
    total: u64,
}

/// A record as it lies in the log, and where.
struct Raw {
    segment: Arc<Segment>,
    log: Log,
    record: RawRecord,
}

/// A record, decompressed.
pub(super) struct Record {
    pub(super) segment: Arc<Segment>,
    pub(super) log: Log,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) record_type: Option<RecordType>,
}

#[cfg(test)]
impl Record {
    /// A record of a log that is nowhere.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        let segment = Arc::new(Segment { path: "wal/00000000".into(), number: 0, is_last: true, is_checkpoint: false });
        Self { segment, log: Log::InOrder, offset: 0, record_type: RecordType::of(&bytes), bytes }
    }
}

/// Records of one log that follow each other.
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    /// Bytes of logs that were read up to its end.
    pub(super) done: u64,
}

impl Queue {
    pub(super) fn new(fs: Arc<dyn Fs>, segments: Vec<(Segment, Log)>) -> Self {
        let size = |segment: &Segment| fs.open(&segment.path).and_then(|file| file.size()).unwrap_or(0);
        let total = segments.iter().map(|(segment, _)| size(segment)).sum();
        let segments = segments.into_iter();
        Self {
            fs,
            segments,
            open: None,
            waiting: None,
            spare: SpareMemory::default(),
            damage: DamageReport::default(),
            done: 0,
            total,
        }
    }

    /// Returns the bytes of all logs.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the bytes of logs that were read.
    pub(super) fn done(&self) -> u64 {
        self.done + self.open.as_ref().map_or(0, |(_, _, reader)| reader.position())
    }

    /// Returns records of one log, in order, decompressed on the threads of the current pool; `None` at the end.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let (mut batch, mut size) = (Vec::new(), 0_usize);
        while let Some(raw) = self.waiting.take().or_else(|| self.next()) {
            let decoded_size = raw.record.compression.decoded_size(&raw.record.bytes);
            let other_log = batch.last().is_some_and(|last: &Raw| last.log != raw.log);
            if !batch.is_empty() && (other_log || size + decoded_size > BATCH_SIZE) {
                self.waiting = Some(raw);
                break;
            }
            size += decoded_size + size_of::<Raw>();
            batch.push(raw);
        }
        if batch.is_empty() {
            return None;
        }
        let batch: Vec<_> = batch.into_iter().map(|raw| (raw, self.spare.take())).collect();
        let decoded: Vec<_> = batch.into_par_iter().map(|(raw, memory)| decode(raw, memory)).collect();
        let mut records = Vec::with_capacity(decoded.len());
        for (record, memory) in decoded {
            self.spare.give(memory);
            match record {
                Ok(record) => records.push(record),
                Err((segment, offset)) => {
                    let reason = "a record cannot be decompressed";
                    self.damage.push(&segment.path, offset, DamageKind::Corrupt, reason);
                }
            }
        }
        Some(Batch { records, done: self.done() })
    }

    /// Takes back a batch that is done with.
    pub(super) fn give_back(&mut self, batch: Batch) {
        batch.records.into_iter().for_each(|record| self.spare.give(record.bytes));
    }

    fn next(&mut self) -> Option<Raw> {
        loop {
            if let Some((segment, log, reader)) = &mut self.open {
                if let Some(record) = reader.next_in(&mut self.spare, &mut self.damage) {
                    return Some(Raw { segment: Arc::clone(segment), log: *log, record });
                }
                self.done += reader.size();
                self.open = None;
            }
            let (segment, log) = self.segments.next()?;
            match SegmentReader::open(&*self.fs, &segment) {
                Ok(reader) => self.open = Some((Arc::new(segment), log, reader)),
                Err(error) => self.damage.push(&segment.path, 0, DamageKind::Corrupt, error.to_string()),
            }
        }
    }
}

/// Where a record lies: in which segment, at which offset.
type Place = (Arc<Segment>, u64);

/// Decompresses a record; says where it lies if that cannot be done. Returns memory that is not needed any more, too.
fn decode(raw: Raw, mut memory: Vec<u8>) -> (Result<Record, Place>, Vec<u8>) {
    let Raw { segment, log, record: RawRecord { offset, compression, mut bytes } } = raw;
    if compression != Compression::None {
        if compression.decode_into(&bytes, &mut memory).is_none() {
            return (Err((segment, offset)), memory);
        }
        std::mem::swap(&mut bytes, &mut memory);
    }
    let record_type = RecordType::of(&bytes);
    (Ok(Record { segment, log, offset, bytes, record_type }), memory)
}
