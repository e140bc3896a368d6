//! Encoder for remote write 1.0 (`prompb/remote.proto`) and 2.0
//! (`io/prometheus/write/v2/types.proto`).
//!
//! Labels are encoded once per series, not once per request.

use std::collections::HashMap;

use anyhow::{Context, Result};
use clap::ValueEnum;
use varve_model::{Labels, Sample};

// Tags: field number and wire type. Both versions encode samples alike.
const SERIES_V1: u8 = 1 << 3 | LENGTH;
const SERIES_V2: u8 = 5 << 3 | LENGTH;
const SYMBOL: u8 = 4 << 3 | LENGTH;
const SERIES_LABEL: u8 = 1 << 3 | LENGTH;
const SERIES_LABEL_REFS: u8 = 1 << 3 | LENGTH;
const SERIES_SAMPLE: u8 = 2 << 3 | LENGTH;
const LABEL_NAME: u8 = 1 << 3 | LENGTH;
const LABEL_VALUE: u8 = 2 << 3 | LENGTH;
const SAMPLE_VALUE: u8 = 1 << 3 | FIXED64;
const SAMPLE_TIMESTAMP: u8 = 2 << 3 | VARINT;
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;

/// A version of remote write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Version {
    #[value(name = "1.0")]
    V1,
    #[value(name = "2.0")]
    V2,
}

/// The labels of a series, ready for a request.
#[derive(Debug, Clone)]
pub(crate) enum EncodedLabels {
    /// Encoded fields.
    V1(Box<[u8]>),
    /// The symbols, names and values alternately.
    V2(Box<[Box<str>]>),
}

/// A write request under construction.
#[derive(Debug, Default)]
pub(crate) struct WriteRequest {
    series: Vec<u8>,
    /// Version 2.0: symbol refs, and the encoded symbol table.
    symbols: HashMap<Box<str>, u32>,
    symbol_fields: Vec<u8>,
    /// Version 2.0: scratch for the `labels_refs` of a series.
    label_refs: Vec<u8>,
    n_samples: usize,
}

impl EncodedLabels {
    pub(crate) fn new(labels: &Labels, version: Version) -> Self {
        match version {
            Version::V1 => Self::V1(label_fields(labels).into()),
            Version::V2 => Self::V2(
                labels
                    .iter()
                    .flat_map(|(name, value)| [name.into(), value.into()])
                    .collect(),
            ),
        }
    }
}

fn label_fields(labels: &Labels) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(labels.size() + 6 * labels.len());
    let mut label = Vec::new();
    for (name, value) in labels {
        label.clear();
        push_bytes(LABEL_NAME, name.as_bytes(), &mut label);
        push_bytes(LABEL_VALUE, value.as_bytes(), &mut label);
        push_bytes(SERIES_LABEL, &label, &mut encoded);
    }
    encoded
}

impl WriteRequest {
    /// Adds a series with one sample. All series of a request have the same version.
    pub(crate) fn push(&mut self, labels: &EncodedLabels, sample: Sample) {
        let mut point = [0; 20];
        let len = encode_sample(sample, &mut point);
        let tag = match labels {
            EncodedLabels::V1(_) => SERIES_V1,
            EncodedLabels::V2(symbols) => {
                self.encode_refs(symbols);
                SERIES_V2
            }
        };
        let labels = match labels {
            EncodedLabels::V1(fields) => fields,
            EncodedLabels::V2(_) => &self.label_refs[..],
        };
        self.series.push(tag);
        push_varint((labels.len() + 2 + len) as u64, &mut self.series);
        self.series.extend_from_slice(labels);
        push_bytes(SERIES_SAMPLE, &point[..len], &mut self.series);
        self.n_samples += 1;
    }

    /// Encodes the symbols as refs into `label_refs` and adds new symbols to the table.
    fn encode_refs(&mut self, symbols: &[Box<str>]) {
        if self.symbols.is_empty() {
            self.add_symbol("");
        }
        let mut refs = Vec::with_capacity(2 * symbols.len());
        for symbol in symbols {
            let known = self.symbols.get(symbol).copied();
            push_varint(
                known.unwrap_or_else(|| self.add_symbol(symbol)).into(),
                &mut refs,
            );
        }
        self.label_refs.clear();
        push_bytes(SERIES_LABEL_REFS, &refs, &mut self.label_refs);
    }

    fn add_symbol(&mut self, symbol: &str) -> u32 {
        let symbol_ref =
            u32::try_from(self.symbols.len()).expect("a request has fewer than 2^32 symbols");
        push_bytes(SYMBOL, symbol.as_bytes(), &mut self.symbol_fields);
        self.symbols.insert(symbol.into(), symbol_ref);
        symbol_ref
    }

    pub(crate) fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Returns the compressed body and clears the request.
    pub(crate) fn take_body(&mut self) -> Result<Vec<u8>> {
        // Symbols precede the series that refer to them, as in Prometheus.
        self.symbol_fields.append(&mut self.series);
        let body = snap::raw::Encoder::new()
            .compress_vec(&self.symbol_fields)
            .context("compress a request")?;
        self.symbol_fields.clear();
        self.symbols.clear();
        self.n_samples = 0;
        Ok(body)
    }
}

/// Encodes a sample and returns its size, at most 20 bytes.
fn encode_sample(sample: Sample, out: &mut [u8; 20]) -> usize {
    out[0] = SAMPLE_VALUE;
    out[1..9].copy_from_slice(&sample.value.to_le_bytes());
    out[9] = SAMPLE_TIMESTAMP;
    let mut rest = sample.timestamp_ms.cast_unsigned();
    let mut size = 10;
    while rest >= 0x80 {
        out[size] = (rest & 0x7f) as u8 | 0x80;
        rest >>= 7;
        size += 1;
    }
    out[size] = rest as u8;
    size + 1
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
    use varve_ingest::Limits;
    use varve_ingest::remote_write::{DecodedBatch, RouteHasher, decode_v1, decode_v2};

    use super::*;

    fn check_decoded(version: Version) {
        let sets = [("job", "x".repeat(300)), ("instance", "up".to_owned())];
        let sets = sets.map(|(name, value)| {
            Labels::from_pairs([("__name__", "up"), (name, value.as_str())]).unwrap()
        });
        let samples = [
            (i64::MAX, -0.0),
            (-1, f64::INFINITY),
            (1_760_000_000_000, 0.1),
        ];
        let mut request = WriteRequest::default();
        let mut batch = DecodedBatch::default();
        // The second request starts with an empty symbol table.
        for _ in 0..2 {
            for (i, (timestamp_ms, value)) in samples.into_iter().enumerate() {
                request.push(
                    &EncodedLabels::new(&sets[i % 2], version),
                    Sample {
                        timestamp_ms,
                        value,
                    },
                );
            }
            assert_eq!(request.n_samples(), 3);
            let message = snap::raw::Decoder::new()
                .decompress_vec(&request.take_body().unwrap())
                .unwrap();
            let decode = if version == Version::V1 {
                decode_v1
            } else {
                decode_v2
            };
            decode(
                &message,
                &RouteHasher::new(),
                &Limits::for_tests(),
                &mut batch,
            )
            .unwrap();
            assert_eq!((request.n_samples(), batch.n_samples()), (0, 3));
        }
    }

    #[test]
    fn the_receiver_decodes_version_1() {
        check_decoded(Version::V1);
    }

    #[test]
    fn the_receiver_decodes_version_2() {
        check_decoded(Version::V2);
    }
}
