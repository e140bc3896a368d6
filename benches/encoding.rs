//! The encodings of values: bytes a sample against XOR chunks, and the speed of rows with and without zstd, over data
//! that is generated and data that a Prometheus recorded (with promtool on the PATH).

#[path = "common/rows.rs"]
mod rows;
#[path = "common/xor.rs"]
mod xor;

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rows::Row;
use varve_tsdb::testing::RowCodec;

/// Neighbouring rows that are compressed together.
const PAGE_ROWS: usize = 256;
const ZSTD_LEVEL: i32 = 1;
/// Values in a row of a part of ten minutes, of a block of two hours and of a merged one, at 30 s.
const ROW_LENS: [usize; 3] = [20, 240, 960];
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/prometheus-data/mixed");

fn encoding(c: &mut Criterion) {
    println!("set             samples  constant | bytes a sample: XOR    rows  +zstd");
    for n in ROW_LENS {
        measure(c, &format!("generated {n}"), &rows::generated(2_000_000 / n.max(200), n));
    }
    for n in ROW_LENS {
        match rows::recorded(Path::new(RECORDED), n) {
            Ok(rows) => measure(c, &format!("recorded {n}"), &rows),
            Err(e) => println!("recorded {n}: skipped, no data or no promtool on the PATH: {e}"),
        }
    }
}

/// A page before and after compression.
struct Page {
    row_lens: Vec<usize>,
    raw: Vec<u8>,
    compressed: Vec<u8>,
}

fn measure(c: &mut Criterion, name: &str, rows: &[Row]) {
    let n_samples: usize = rows.iter().map(Vec::len).sum();
    let pages = pages(rows);
    print_sizes(name, rows, n_samples, &pages);

    let mut group = c.benchmark_group(name);
    group.sample_size(10).throughput(Throughput::Elements(n_samples as u64));
    group.bench_function("encode", |b| {
        let (mut codec, mut page) = (RowCodec::default(), Vec::new());
        b.iter(|| {
            for rows in rows.chunks(PAGE_ROWS) {
                page.clear();
                rows.iter().for_each(|row| codec.encode(row, &mut page));
                black_box(&page);
            }
        });
    });
    group.bench_function("decode", |b| {
        let mut values = Vec::new();
        b.iter(|| pages.iter().for_each(|page| decode(page, &page.raw, &mut values)));
    });
    group.bench_function("decode zstd", |b| {
        let mut zstd = zstd::bulk::Decompressor::new().expect("there is memory");
        let mut values = Vec::new();
        b.iter(|| {
            for page in &pages {
                let raw = zstd.decompress(&page.compressed, page.raw.len()).expect("it was compressed");
                decode(page, &raw, &mut values);
            }
        });
    });
}

fn pages(rows: &[Row]) -> Vec<Page> {
    let mut codec = RowCodec::default();
    let page = |rows: &[Row]| {
        let mut raw = Vec::new();
        rows.iter().for_each(|row| codec.encode(row, &mut raw));
        let compressed = zstd::bulk::compress(&raw, ZSTD_LEVEL).expect("there is memory");
        Page { row_lens: rows.iter().map(Vec::len).collect(), raw, compressed }
    };
    rows.chunks(PAGE_ROWS).map(page).collect()
}

fn print_sizes(name: &str, rows: &[Row], n_samples: usize, pages: &[Page]) {
    let is_constant = |row: &&Row| row.iter().all(|value| value.to_bits() == row[0].to_bits());
    let constant: usize = rows.iter().filter(is_constant).map(Vec::len).sum();
    let each = |size: usize| size as f64 / n_samples as f64;
    println!(
        "{name:14} {n_samples:8}  {:6.1} % | {:19.3} {:7.3} {:7.3}",
        100.0 * each(constant),
        each(rows.iter().map(|row| xor::size(row)).sum()),
        each(pages.iter().map(|page| page.raw.len()).sum()),
        each(pages.iter().map(|page| page.compressed.len().min(page.raw.len())).sum()),
    );
}

fn decode(page: &Page, mut raw: &[u8], values: &mut Vec<f64>) {
    for &n in &page.row_lens {
        values.clear();
        assert!(RowCodec::decode(&mut raw, n, values), "the page was encoded");
        black_box(&values);
    }
}

criterion_group!(benches, encoding);
criterion_main!(benches);
