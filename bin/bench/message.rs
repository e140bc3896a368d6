//! The messages of remote write 1.0 (`prompb/remote.proto`), encoded from parts that are kept encoded.

use anyhow::{Context, Result};
use bytes::Bytes;
use varve_tsdb::{Labels, Sample};

// Tags of fields: the field's number and its wire type.
const SERIES: u8 = 1 << 3 | LENGTH;
const SERIES_LABEL: u8 = 1 << 3 | LENGTH;
const SERIES_SAMPLE: u8 = 2 << 3 | LENGTH;
const LABEL_NAME: u8 = 1 << 3 | LENGTH;
const LABEL_VALUE: u8 = 2 << 3 | LENGTH;
const SAMPLE_VALUE: u8 = 1 << 3 | FIXED64;
const SAMPLE_TIMESTAMP: u8 = 2 << 3 | VARINT;
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;

/// The labels of a series, encoded.
#[derive(Debug, Clone)]
pub(super) struct EncodedLabels(Box<[u8]>);

/// A write request while samples gather in it.
#[derive(Debug, Default)]
pub(super) struct WriteRequest {
    message: Vec<u8>,
    n_samples: usize,
}

impl EncodedLabels {
    pub(super) fn new(labels: &Labels) -> Self {
        let mut encoded = Vec::with_capacity(labels.size() + 6 * labels.len());
        let mut label = Vec::new();
        for (name, value) in labels {
            label.clear();
            push_bytes(LABEL_NAME, name.as_bytes(), &mut label);
            push_bytes(LABEL_VALUE, value.as_bytes(), &mut label);
            push_bytes(SERIES_LABEL, &label, &mut encoded);
        }
        Self(encoded.into())
    }
}

impl WriteRequest {
    /// Adds a series with one sample.
    pub(super) fn push(&mut self, labels: &EncodedLabels, sample: Sample) {
        let mut point = [0; 20];
        let len = encode_sample(sample, &mut point);
        self.message.push(SERIES);
        push_varint((labels.0.len() + 2 + len) as u64, &mut self.message);
        self.message.extend_from_slice(&labels.0);
        push_bytes(SERIES_SAMPLE, &point[..len], &mut self.message);
        self.n_samples += 1;
    }

    pub(super) fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Compresses the request into a body and empties it.
    pub(super) fn take_body(&mut self) -> Result<Bytes> {
        let body = snap::raw::Encoder::new().compress_vec(&self.message).context("compress a request")?;
        self.message.clear();
        self.n_samples = 0;
        Ok(body.into())
    }
}

/// Encodes a sample, which takes at most 20 bytes, and returns how many it took.
fn encode_sample(sample: Sample, out: &mut [u8; 20]) -> usize {
    out[0] = SAMPLE_VALUE;
    out[1..9].copy_from_slice(&sample.value.to_le_bytes());
    out[9] = SAMPLE_TIMESTAMP;
    let (mut rest, mut at) = (sample.timestamp_ms.cast_unsigned(), 10);
    while rest >= 0x80 {
        out[at] = (rest & 0x7f) as u8 | 0x80;
        (rest, at) = (rest >> 7, at + 1);
    }
    out[at] = rest as u8;
    at + 1
}

fn push_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn push_varint(mut rest: u64, out: &mut Vec<u8>) {
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use varve_ingest::{DecodedBatch, Limits, RouteHasher, decode_v1};

    use super::*;

    #[test]
    fn the_receiver_understands_what_is_sent() {
        let labels = Labels::from_pairs([("__name__", "up"), ("job", "x".repeat(300).as_str())]).unwrap();
        let encoded = EncodedLabels::new(&labels);
        let mut request = WriteRequest::default();
        for sample in [(i64::MAX, -0.0), (-1, f64::INFINITY), (1_760_000_000_000, 0.1)] {
            request.push(&encoded, Sample { timestamp_ms: sample.0, value: sample.1 });
        }
        let body = request.take_body().unwrap();
        let message = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        let mut batch = DecodedBatch::default();
        decode_v1(&message, &RouteHasher::new(), &Limits::default(), &mut batch).unwrap();
        assert_eq!(request.n_samples(), 0);
    }
}
