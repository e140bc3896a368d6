//! Encodes `SeriesResponse` messages by hand, without intermediate protobuf structs. Sizes precede
//! contents, so each size is a varint of fixed length that is set at the end.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use varve_model::{Labels, SampleColumns};
use varve_prometheus::chunk::{Chunk, Encoder, StartTimestamps};
use varve_tsdb::select::Series;

use crate::api::remote_read::size_of_columns;
use crate::error::Result;
use crate::grpc::frame::Frames;
use crate::serving::run::Work;

/// Size of a message in bytes from which it is sent. A longer series continues in the next message.
const MESSAGE_SIZE: usize = 256 << 10;
/// Copies of a series in memory: columns, chunks, in its message, and compressed.
const COPIES: usize = 4;
/// Length of a size that is set later: 35 bits.
const LATER_SIZE: usize = 5;

/// Writes series as messages of up to `batch_size` series.
pub(super) struct SeriesWriter<'a> {
    out: &'a mut Frames,
    batch_size: usize,
    /// Where the batch, or the series without a batch, begins in the buffer of the open message.
    start: usize,
    n_series: usize,
    columns: SampleColumns,
    encoder: Encoder,
}

impl<'a> SeriesWriter<'a> {
    pub(super) fn new(out: &'a mut Frames, batch_size: usize) -> Self {
        let encoder = Encoder::new(StartTimestamps::Drop);
        Self {
            out,
            batch_size,
            start: 0,
            n_series: 0,
            columns: SampleColumns::default(),
            encoder,
        }
    }

    /// Writes a series without chunks.
    pub(super) fn write_labels(&mut self, work: &mut Work, labels: &Labels) -> Result<()> {
        let start = self.begin_series(work, labels);
        self.end_series(work, start)
    }

    /// Writes a series with its samples, unless it has none.
    pub(super) fn write(
        &mut self,
        work: &mut Work,
        labels: &Labels,
        series: &Series,
    ) -> Result<()> {
        self.columns.clear();
        series.read(&mut self.columns)?;
        if self.columns.is_empty() {
            return Ok(());
        }
        let mut charge = work.ctx.charge();
        charge.grow(COPIES * (size_of_columns(&self.columns) + labels.size()))?;
        self.encoder.push_aligned(&self.columns);
        let mut start = self.begin_series(work, labels);
        for chunk in self.encoder.finish() {
            if self.out.open(work).len() - start >= MESSAGE_SIZE {
                self.end_series(work, start)?;
                start = self.begin_series(work, labels);
            }
            put_chunk(&chunk, self.out.open(work));
        }
        self.end_series(work, start)
    }

    /// Appends the labels of a series. Returns where it begins.
    fn begin_series(&mut self, work: &mut Work, labels: &Labels) -> usize {
        let message = self.out.open(work);
        if self.n_series == 0 {
            // `SeriesResponse.batch`; without one, the series is `SeriesResponse.series`.
            self.start = if self.batch_size > 1 {
                begin_field(4, message)
            } else {
                message.len()
            };
        }
        // `SeriesResponse.series` and `SeriesBatch.series` both are field 1.
        let start = begin_field(1, message);
        put_labels(labels, message);
        start
    }

    /// Ends a series that begins at `start`.
    fn end_series(&mut self, work: &mut Work, start: usize) -> Result<()> {
        let message = self.out.open(work);
        end_field(start, message);
        self.n_series += 1;
        let is_full =
            self.n_series >= self.batch_size || message.len() - self.start >= MESSAGE_SIZE;
        if is_full { self.flush(work) } else { Ok(()) }
    }

    /// Sends the series that were not sent yet.
    pub(super) fn flush(&mut self, work: &mut Work) -> Result<()> {
        if self.n_series > 0 && self.batch_size > 1 {
            end_field(self.start, self.out.open(work));
        }
        self.n_series = 0;
        self.out.close(work)
    }
}

/// Appends a `SeriesResponse` with a warning.
pub(super) fn warning(text: &str, out: &mut Vec<u8>) {
    put_bytes(2, text.as_bytes(), out);
}

fn put_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Begins a field of bytes whose size is set by [`end_field`]. Returns where its contents begin.
fn begin_field(tag: u32, out: &mut Vec<u8>) -> usize {
    encode_key(tag, WireType::LengthDelimited, out);
    out.extend_from_slice(&[0; LATER_SIZE]);
    out.len()
}

/// Sets the size of a field whose contents begin at `start` and end with the buffer.
fn end_field(start: usize, out: &mut [u8]) {
    let mut size = out.len() - start;
    for byte in &mut out[start - LATER_SIZE..start] {
        *byte = size as u8 & 0x7f | 0x80;
        size >>= 7;
    }
    // The last byte has no continuation bit.
    out[start - 1] &= 0x7f;
}

fn put_integer(tag: u32, value: i64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(value as u64, out);
}

/// Returns the size of a field with a tag below 16.
fn size_of_field(size: usize) -> usize {
    1 + encoded_len_varint(size as u64) + size
}

fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    for (name, value) in labels {
        encode_key(1, WireType::LengthDelimited, out);
        encode_varint(
            (size_of_field(name.len()) + size_of_field(value.len())) as u64,
            out,
        );
        put_bytes(1, name.as_bytes(), out);
        put_bytes(2, value.as_bytes(), out);
    }
}

/// Appends a chunk as an `AggrChunk`, whose encoding is Prometheus' code less 1. It has no codes for
/// chunks with start timestamps; the encoder drops them.
fn put_chunk(chunk: &Chunk, out: &mut Vec<u8>) {
    let kind = i64::from(chunk.encoding.code()) - 1;
    let size_of_raw = 1 + encoded_len_varint(kind as u64) + size_of_field(chunk.bytes.len());
    let size_of_min = 1 + encoded_len_varint(chunk.min_ms as u64);
    let size_of_max = 1 + encoded_len_varint(chunk.max_ms as u64);
    let size = size_of_min + size_of_max + size_of_field(size_of_raw);
    encode_key(2, WireType::LengthDelimited, out);
    encode_varint(size as u64, out);
    put_integer(1, chunk.min_ms, out);
    put_integer(2, chunk.max_ms, out);
    encode_key(3, WireType::LengthDelimited, out);
    encode_varint(size_of_raw as u64, out);
    put_integer(1, kind, out);
    put_bytes(2, &chunk.bytes, out);
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use varve_prometheus::chunk::Encoding;

    use super::*;
    use varve_wire::prometheus::types::Label;

    #[derive(Clone, PartialEq, Message)]
    struct Decoded {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<Label>,
        #[prost(message, repeated, tag = "2")]
        chunks: Vec<DecodedChunk>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct DecodedChunk {
        #[prost(int64, tag = "1")]
        min_time: i64,
        #[prost(int64, tag = "2")]
        max_time: i64,
        #[prost(message, optional, tag = "3")]
        raw: Option<DecodedRaw>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct DecodedRaw {
        #[prost(int32, tag = "1")]
        kind: i32,
        #[prost(bytes = "vec", tag = "2")]
        data: Vec<u8>,
    }

    #[test]
    fn series_decode() {
        let labels = Labels::from_pairs([("__name__", "m"), ("long", &*"é".repeat(100))]).unwrap();
        let mut bytes = Vec::new();
        put_labels(&labels, &mut bytes);
        let times = [(i64::MIN, -1), (0, i64::MAX)];
        for (encoding, (min_ms, max_ms)) in [Encoding::Xor, Encoding::FloatHistogram]
            .into_iter()
            .zip(times)
        {
            put_chunk(
                &Chunk {
                    encoding,
                    min_ms,
                    max_ms,
                    n_samples: 1,
                    bytes: vec![7; 300],
                },
                &mut bytes,
            );
        }
        let decoded = Decoded::decode(&*bytes).unwrap();
        let pairs = decoded
            .labels
            .iter()
            .map(|label| (label.name.as_str(), label.value.as_str()));
        assert!(pairs.eq(labels.iter()));
        let chunks: Vec<_> = decoded
            .chunks
            .iter()
            .map(|chunk| (chunk.min_time, chunk.max_time))
            .collect();
        assert_eq!(chunks, times);
        let raw: Vec<_> = decoded
            .chunks
            .into_iter()
            .filter_map(|chunk| chunk.raw)
            .collect();
        assert_eq!(
            raw,
            [
                DecodedRaw {
                    kind: 0,
                    data: vec![7; 300]
                },
                DecodedRaw {
                    kind: 2,
                    data: vec![7; 300]
                }
            ]
        );
    }
}
