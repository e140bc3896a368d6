//! Fuzz targets: one function each, which asserts what must hold for arbitrary bytes.
#![forbid(unsafe_code)]

mod active_requests;
mod prometheus;
mod regexp;
mod reseal;
mod store;
mod usage;

pub use active_requests::active_requests;
pub use prometheus::{prometheus_block, prometheus_chunk, prometheus_log};
pub use regexp::regexp_parse;
pub use store::{store_decode, store_open, wal_replay};
pub use usage::usage_record;

use std::path::Path;
use std::sync::Arc;

use varve_codec::timestamps::{decode_timestamps, encode_timestamps};
use varve_codec::values::{ValueEncoder, decode_values};
use varve_env::testing::MemFs;
use varve_env::{Fs, StateFileError};
use varve_ingest::Limits;
use varve_ingest::ha::Elections;
use varve_ingest::remote_write::{DecodedBatch, RouteHasher, decode_v1, decode_v2};
use varve_promql::Features;
use varve_promql::{parse, print};

/// Decodes a row of values and a column of timestamps. The first two bytes are the number of
/// elements. A decoded row is encoded and decoded again, to the same bits.
pub fn row_decode(input: &[u8]) {
    let Some((&[a, b], bytes)) = input.split_first_chunk() else {
        return;
    };
    let n = usize::from(u16::from_le_bytes([a, b])) % 1024;
    let (mut src, mut values) = (bytes, vec![0.5]);
    let decoded = decode_values(&mut src, n, &mut values).is_some();
    assert_eq!(values.len(), if decoded { 1 + n } else { 1 });
    if decoded {
        let (mut again, mut back) = (Vec::new(), Vec::new());
        ValueEncoder::default().encode(&values[1..], &mut again);
        assert!(decode_values(&mut &again[..], n, &mut back).is_some());
        assert!(
            back.iter()
                .map(|v| v.to_bits())
                .eq(values[1..].iter().map(|v| v.to_bits()))
        );
    }
    let (mut src, mut times_ms) = (bytes, vec![1]);
    let decoded = decode_timestamps(&mut src, n, &mut times_ms).is_some();
    assert_eq!(times_ms.len(), if decoded { 1 + n } else { 1 });
    if decoded {
        let (mut again, mut back) = (Vec::new(), Vec::new());
        encode_timestamps(&times_ms[1..], &mut again);
        assert!(decode_timestamps(&mut &again[..], n, &mut back).is_some());
        assert_eq!(back, times_ms[1..]);
    }
}

/// Reads the input as the payload of the file of HA leaders, under a valid checksum. An invalid
/// file is set aside: the next start finds none.
pub fn ha_file(input: &[u8]) {
    let (fs, path): (Arc<dyn Fs>, _) = (Arc::new(MemFs::new()), Path::new("/ha"));
    let head = [&b"VHAP\x01\0\0\0"[..], &crc32c::crc32c(input).to_le_bytes()].concat();
    fs.create(path)
        .and_then(|file| file.append(&[&head, input].concat()))
        .expect("there is room");
    let (_, found) = Elections::open(Arc::clone(&fs), path.to_owned());
    assert!(!matches!(found, Err(StateFileError::Newer(_))), "{found:?}");
    assert_eq!(Elections::open(fs, path.to_owned()).1, Ok(()));
}

/// Decodes a message of remote write 1.0, twice into the same batch.
pub fn remote_write_v1(input: &[u8]) {
    let (hasher, limits, mut batch) = (
        RouteHasher::new(),
        Limits::for_tests(),
        DecodedBatch::default(),
    );
    let first = decode_v1(input, &hasher, &limits, &mut batch).is_ok();
    assert_eq!(
        decode_v1(input, &hasher, &limits, &mut batch).is_ok(),
        first
    );
}

/// Decodes a message of remote write 2.0, twice into the same batch.
pub fn remote_write_v2(input: &[u8]) {
    let (hasher, limits, mut batch) = (
        RouteHasher::new(),
        Limits::for_tests(),
        DecodedBatch::default(),
    );
    let first = decode_v2(input, &hasher, &limits, &mut batch).is_ok();
    assert_eq!(
        decode_v2(input, &hasher, &limits, &mut batch).is_ok(),
        first
    );
}

/// Parses an expression. If it parses, its printed form parses, and prints the same.
pub fn promql_parse(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let features = Features::default();
    let Ok(expr) = parse(text, &features) else {
        return;
    };
    let printed = print(&expr);
    let again = parse(&printed, &features)
        .unwrap_or_else(|e| panic!("{text:?} is printed as {printed:?}: {e}"));
    assert_eq!(print(&again), printed, "{text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a target on the seeds, and on `n_inputs` (or `FUZZ_INPUTS`) mutations of them.
    fn smoke(target: fn(&[u8]), seeds: &[&[u8]], n_inputs: u64) {
        let number = |name| {
            std::env::var(name)
                .ok()
                .map(|text| text.parse().expect("a number"))
        };
        let n_inputs = number("FUZZ_INPUTS").unwrap_or(n_inputs);
        seeds.iter().for_each(|seed| target(seed));
        let mut state = number("FUZZ_SEED").unwrap_or(1);
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..n_inputs {
            let mut input = seeds[below(seeds.len())].to_vec();
            for _ in 0..=below(4) {
                let other = seeds[below(seeds.len())];
                let at = below(input.len() + 1);
                match below(4) {
                    0 => input.truncate(at),
                    1 => input.insert(at, below(256) as u8),
                    2 => input
                        .iter_mut()
                        .skip(at)
                        .take(1)
                        .for_each(|byte| *byte ^= 1 << below(8)),
                    _ => {
                        drop(input.splice(at..at, other[below(other.len() + 1)..].iter().copied()))
                    }
                }
            }
            target(&input);
        }
    }

    /// Runs a target on lists of one and of three edits.
    fn on_edits(target: fn(&[u8]), n_inputs: u64) {
        on_edits_after(target, &[], n_inputs);
    }

    /// As `on_edits`, after each of the heads.
    fn on_edits_after(target: fn(&[u8]), heads: &[&[u8]], n_inputs: u64) {
        let edits: Vec<u8> = (0..64_u64)
            .flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
            .collect();
        let seeds: Vec<&[u8]> = edits
            .chunks(8)
            .chain(edits.chunks(24))
            .chain([&[][..]])
            .collect();
        if heads.is_empty() {
            return smoke(target, &seeds, n_inputs);
        }
        let seeds: Vec<_> = heads
            .iter()
            .flat_map(|head| seeds.iter().map(|seed| [head, *seed].concat()))
            .collect();
        smoke(
            target,
            &seeds.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            n_inputs,
        );
    }

    #[test]
    fn prometheus_block_holds() {
        on_edits_after(prometheus_block, &[&[0], &[1]], 2_000);
    }

    #[test]
    fn ha_file_holds() {
        let cluster =
            b"\x02\0\x01\0a\x01\0r\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x01\0b\x01\0r\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";
        smoke(ha_file, &[b"\0\0", cluster], 5_000);
    }

    #[test]
    fn usage_record_holds() {
        let seeds = usage::seeds();
        smoke(
            usage_record,
            &seeds.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            5_000,
        );
    }

    #[test]
    fn active_requests_holds() {
        let seeds = active_requests::seeds();
        smoke(
            active_requests,
            &seeds.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            5_000,
        );
    }

    #[test]
    fn wal_replay_holds() {
        on_edits(wal_replay, 500);
    }

    #[test]
    fn store_open_holds() {
        on_edits(store_open, 300);
    }

    #[test]
    fn store_decode_holds() {
        on_edits(store_decode, 200);
    }

    #[test]
    fn prometheus_holds() {
        let mut columns = varve_model::SampleColumns::default();
        for i in 0..100 {
            let histogram = varve_model::histogram::Histogram {
                sum: i as f64,
                ..varve_model::histogram::Histogram::default()
            };
            match i {
                0..50 => columns.push(varve_model::Sample {
                    timestamp_ms: i * 1000,
                    value: i as f64,
                }),
                _ => columns.push_histogram(i * 1000, std::sync::Arc::new(histogram)),
            }
        }
        let mut seeds = Vec::new();
        for starts in [
            varve_prometheus::chunk::StartTimestamps::Drop,
            varve_prometheus::chunk::StartTimestamps::Keep,
        ] {
            let mut encoder = varve_prometheus::chunk::Encoder::new(starts);
            encoder.push_columns(&columns);
            let chunks = encoder.finish();
            seeds.extend(
                chunks
                    .into_iter()
                    .map(|chunk| [&[chunk.encoding.code() - 1][..], &chunk.bytes].concat()),
            );
        }
        let seeds: Vec<_> = seeds.iter().map(Vec::as_slice).collect();
        smoke(prometheus_chunk, &seeds, 10_000);
        let record = [&[2][..], &[0; 16], &[2, 4], &[0x40; 8], &[6, 8], &[0x40; 8]].concat();
        let mut segment = vec![1, 0, record.len() as u8];
        segment.extend_from_slice(&crc32c::crc32c(&record).to_be_bytes());
        segment.extend_from_slice(&record);
        smoke(
            prometheus_log,
            &[
                &record,
                &segment,
                &[1, 0, 0],
                &[0x01, 0x30, 0xbc, 0x91, 1, 0, 0, 0, 9],
            ],
            5_000,
        );
    }

    #[test]
    fn row_decode_holds() {
        let mut rows = Vec::new();
        let columns: [fn(i32) -> f64; 6] = [
            |_| 7.0,
            |_| f64::NAN,
            |i| f64::from(i * i),
            |i| f64::from(i) * 0.1,
            |i| f64::from(i).sqrt(),
            |i| {
                if i % 9 == 0 {
                    f64::INFINITY
                } else {
                    f64::from(i) / 8.0
                }
            },
        ];
        for value in columns {
            let mut row = 100_u16.to_le_bytes().to_vec();
            ValueEncoder::default().encode(&(0..100).map(value).collect::<Vec<_>>(), &mut row);
            rows.push(row);
        }
        for step in [0, 7] {
            let mut times = 100_u16.to_le_bytes().to_vec();
            encode_timestamps(
                &(0..100)
                    .map(|i| i * 1000 + i % 3 * step)
                    .collect::<Vec<_>>(),
                &mut times,
            );
            rows.push(times);
        }
        smoke(
            row_decode,
            &rows.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            20_000,
        );
    }

    #[test]
    fn regexp_parse_holds() {
        let seeds = [
            "node-[0-9]|a.*b|(x|y)+z?\nnode-1\naxxb\nxyz",
            ".*(foo|bar|)\nfoo\nxbar\n",
            "(?i)a{2,3}\\.[^a-c]\\d|\\pL$\naa.x",
            "a?b*?c+?[x-z]^$\nbcx",
        ];
        smoke(regexp_parse, &seeds.map(str::as_bytes), 3_000);
    }

    #[test]
    fn remote_write_v1_holds() {
        // One series with a label and a sample; metadata.
        let series = b"\x0a\x1a\x0a\x0d\x0a\x08__name__\x12\x01m\x12\x09\x09\0\0\0\0\0\0\xf0\x3f";
        let metadata = b"\x1a\x0a\x08\x02\x12\x01m\x22\x03abc";
        smoke(remote_write_v1, &[series, metadata], 20_000);
    }

    #[test]
    fn remote_write_v2_holds() {
        // Symbols; one series with a label, a sample with its start and metadata.
        let message = b"\x22\x00\x22\x08__name__\x22\x01m\
            \x2a\x17\x0a\x02\x01\x02\x12\x0d\x09\0\0\0\0\0\0\xf0\x3f\x10\x05\x18\x01\x2a\x02\x08\x02";
        smoke(remote_write_v2, &[message], 20_000);
    }

    #[test]
    fn promql_parse_holds() {
        let seeds = [
            "sum by (job) (rate(http_requests_total{code=~\"5..\", job!=\"a\"}[5m] offset 1h))",
            "histogram_quantile(0.9, sum without (i) (x)) > bool on (a) group_left (b) -1.5e3 ^ 2",
            "max_over_time(up[1h:5m] @ end()) or absent(vector(1)) unless {__name__=\"a b\"}",
        ];
        smoke(promql_parse, &seeds.map(str::as_bytes), 20_000);
    }
}
