//! Reads records of all segments in order, in decompressed batches.

use std::sync::Arc;

use rayon::prelude::*;
use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};

use crate::wal::{
    BufferPool, LogKind, RawRecord, RecordType, Segment, SegmentReader, WalCompression,
};

/// Decompressed size of a batch. A single record may be larger.
pub(crate) const BATCH_SIZE: usize = 2 << 20;

/// Reads records of all segments in order.
pub(crate) struct RecordReader {
    fs: Arc<dyn Fs>,
    segments: std::vec::IntoIter<(Segment, LogKind)>,
    open: Option<(Arc<Segment>, LogKind, SegmentReader)>,
    /// A record that did not fit the previous batch.
    waiting: Option<Raw>,
    spare: BufferPool,
    pub(crate) damage: DamageReport,
    /// Bytes of finished segments, and of all segments.
    done: u64,
    total: u64,
}

/// A compressed record and its segment.
struct Raw {
    segment: Arc<Segment>,
    log: LogKind,
    record: RawRecord,
}

/// A decompressed record.
pub(crate) struct Record {
    pub(crate) segment: Arc<Segment>,
    pub(crate) log: LogKind,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) record_type: Option<RecordType>,
}

#[cfg(test)]
impl Record {
    /// Creates a record without a file.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let segment = Arc::new(Segment {
            path: "wal/00000000".into(),
            number: 0,
            is_last: true,
            is_checkpoint: false,
        });
        Self {
            segment,
            log: LogKind::Wal,
            offset: 0,
            record_type: RecordType::of(&bytes),
            bytes,
        }
    }
}

/// Consecutive records of one log.
pub(crate) struct Batch {
    pub(crate) records: Vec<Record>,
    /// Bytes of segments read up to the end of the batch.
    pub(crate) done: u64,
}

impl RecordReader {
    pub(crate) fn new(fs: Arc<dyn Fs>, segments: Vec<(Segment, LogKind)>) -> Self {
        let size = |segment: &Segment| {
            fs.open(&segment.path)
                .and_then(|file| file.size())
                .unwrap_or(0)
        };
        let total = segments.iter().map(|(segment, _)| size(segment)).sum();
        let segments = segments.into_iter();
        Self {
            fs,
            segments,
            open: None,
            waiting: None,
            spare: BufferPool::default(),
            damage: DamageReport::default(),
            done: 0,
            total,
        }
    }

    /// Returns the size of all segments.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn done(&self) -> u64 {
        self.done
            + self
                .open
                .as_ref()
                .map_or(0, |(_, _, reader)| reader.position())
    }

    /// Returns the next records of one log, decompressed on the current thread pool, or `None` at
    /// the end.
    pub(crate) fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Vec::new();
        let mut size = 0_usize;
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
        let batch: Vec<_> = batch
            .into_iter()
            .map(|raw| (raw, self.spare.get()))
            .collect();
        let decoded: Vec<_> = batch
            .into_par_iter()
            .map(|(raw, memory)| decode(raw, memory))
            .collect();
        let mut records = Vec::with_capacity(decoded.len());
        for (record, memory) in decoded {
            self.spare.put(memory);
            match record {
                Ok(record) => records.push(record),
                Err((segment, offset)) => {
                    let reason = "cannot decompress record";
                    self.damage
                        .push(&segment.path, offset, DamageKind::Corrupt, reason);
                }
            }
        }
        Some(Batch {
            records,
            done: self.done(),
        })
    }

    /// Returns the buffers of a batch to the pool.
    pub(crate) fn recycle(&mut self, batch: Batch) {
        for record in batch.records {
            self.spare.put(record.bytes);
        }
    }

    fn next(&mut self) -> Option<Raw> {
        loop {
            if let Some((segment, log, reader)) = &mut self.open {
                if let Some(record) = reader.next_in(&mut self.spare, &mut self.damage) {
                    return Some(Raw {
                        segment: Arc::clone(segment),
                        log: *log,
                        record,
                    });
                }
                self.done += reader.size();
                self.open = None;
            }
            let (segment, log) = self.segments.next()?;
            match SegmentReader::open(&*self.fs, &segment) {
                Ok(reader) => self.open = Some((Arc::new(segment), log, reader)),
                Err(error) => {
                    self.damage
                        .push(&segment.path, 0, DamageKind::Corrupt, error.to_string())
                }
            }
        }
    }
}

/// Segment and offset of a record.
type Location = (Arc<Segment>, u64);

/// Decompresses a record, or returns its location if that fails. Also returns the buffer that is
/// free now.
fn decode(raw: Raw, mut memory: Vec<u8>) -> (Result<Record, Location>, Vec<u8>) {
    let Raw {
        segment,
        log,
        record:
            RawRecord {
                offset,
                compression,
                mut bytes,
            },
    } = raw;
    if compression != WalCompression::None {
        if compression.decode_into(&bytes, &mut memory).is_none() {
            return (Err((segment, offset)), memory);
        }
        std::mem::swap(&mut bytes, &mut memory);
    }
    let record_type = RecordType::of(&bytes);
    (
        Ok(Record {
            segment,
            log,
            offset,
            bytes,
            record_type,
        }),
        memory,
    )
}
