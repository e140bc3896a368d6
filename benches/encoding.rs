//! The encoding of values: bytes per sample, and the speed of rows with and without zstd, over the
//! fleet of `varve-bench`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use varve_bench::{Fleet, FleetOptions, SeriesId};
use varve_codec::values::{ValueEncoder, decode_values};

/// Number of rows that are compressed together.
const PAGE_ROWS: usize = 256;
const ZSTD_LEVEL: i32 = 1;
/// Number of values of a row in a part of ten minutes, a block of two hours and a merged block, at
/// 30 s.
const ROW_LENS: [usize; 3] = [20, 240, 960];
/// Number of values in all rows.
const VALUES: usize = 2_000_000;

/// Consecutive values of a series.
type Row = Vec<f64>;

fn encoding(c: &mut Criterion) {
    println!("values of a row  samples  constant | bytes per sample: rows  +zstd");
    for n in ROW_LENS {
        measure(c, n, &rows(n));
    }
}

/// Returns rows of `n` values, in label order as in a block.
fn rows(n: usize) -> Vec<Row> {
    let fleet = Fleet::new(FleetOptions {
        active_series: VALUES / n,
        ..FleetOptions::default()
    });
    let mut series: Vec<_> = (0..fleet.n_places())
        .map(|place| SeriesId {
            place,
            generation: 0,
        })
        .collect();
    series.sort_by_cached_key(|series| fleet.labels(*series));
    let mut rows = Vec::new();
    for series in series {
        let values = (0..n as i64).map(|round| {
            fleet
                .value(series, round)
                .expect("no series ends without churn")
        });
        rows.push(values.collect());
    }
    rows
}

/// A page before and after compression.
struct Page {
    row_lens: Vec<usize>,
    raw: Vec<u8>,
    compressed: Vec<u8>,
}

fn measure(c: &mut Criterion, n: usize, rows: &[Row]) {
    let n_samples: usize = rows.iter().map(Vec::len).sum();
    let pages = pages(rows);
    print_sizes(n, rows, n_samples, &pages);

    let mut group = c.benchmark_group(format!("rows of {n}"));
    group
        .sample_size(10)
        .throughput(Throughput::Elements(n_samples as u64));
    group.bench_function("encode", |b| {
        let mut encoder = ValueEncoder::default();
        let mut page = Vec::new();
        b.iter(|| {
            for rows in rows.chunks(PAGE_ROWS) {
                page.clear();
                for row in rows {
                    encoder.encode(row, &mut page);
                }
                black_box(&page);
            }
        });
    });
    group.bench_function("decode", |b| {
        let mut values = Vec::new();
        b.iter(|| {
            for page in &pages {
                decode(page, &page.raw, &mut values);
            }
        });
    });
    group.bench_function("decode zstd", |b| {
        let mut zstd = zstd::bulk::Decompressor::new().expect("there is memory");
        let mut values = Vec::new();
        b.iter(|| {
            for page in &pages {
                let raw = zstd
                    .decompress(&page.compressed, page.raw.len())
                    .expect("it was compressed");
                decode(page, &raw, &mut values);
            }
        });
    });
}

fn pages(rows: &[Row]) -> Vec<Page> {
    let mut encoder = ValueEncoder::default();
    let mut pages = Vec::new();
    for rows in rows.chunks(PAGE_ROWS) {
        let mut raw = Vec::new();
        for row in rows {
            encoder.encode(row, &mut raw);
        }
        let compressed = zstd::bulk::compress(&raw, ZSTD_LEVEL).expect("there is memory");
        pages.push(Page {
            row_lens: rows.iter().map(Vec::len).collect(),
            raw,
            compressed,
        });
    }
    pages
}

fn print_sizes(n: usize, rows: &[Row], n_samples: usize, pages: &[Page]) {
    let mut constant = 0;
    for row in rows {
        if row.iter().all(|value| value.to_bits() == row[0].to_bits()) {
            constant += row.len();
        }
    }
    let per_sample = |size: usize| size as f64 / n_samples as f64;
    println!(
        "{n:15} {n_samples:8}  {:6.1} % | {:22.3} {:6.3}",
        100.0 * per_sample(constant),
        per_sample(pages.iter().map(|page| page.raw.len()).sum()),
        per_sample(
            pages
                .iter()
                .map(|page| page.compressed.len().min(page.raw.len()))
                .sum()
        ),
    );
}

fn decode(page: &Page, mut raw: &[u8], values: &mut Vec<f64>) {
    for &n in &page.row_lens {
        values.clear();
        assert!(
            decode_values(&mut raw, n, values).is_some(),
            "the page was encoded"
        );
        black_box(&values);
    }
}

criterion_group!(benches, encoding);
criterion_main!(benches);
