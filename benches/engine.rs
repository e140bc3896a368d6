//! Storage engine: appends to known series, series creation, replay, scans.

mod common;
#[path = "common/fill.rs"]
mod fill;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use varve_tsdb::{Db, QueryContext, SampleColumns, TimeRange, WriteBatch};

const N_SERIES: usize = 100_000;
const N_STEPS: i64 = 20;

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    group.sample_size(20);

    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = common::open(dir.path(), 2, 1);
    let handles = fill::series(&db, N_SERIES);
    let (mut batch, mut step) = (WriteBatch::default(), 0);
    group.throughput(Throughput::Elements(N_SERIES as u64));
    group.bench_function("known series", |b| {
        b.iter(|| {
            fill::append_step(&db, &handles, step, &mut batch);
            step += 1;
        });
    });

    const N_NEW: usize = 20_000;
    let labels: Vec<_> = (0..N_NEW).map(common::labels).collect();
    group.throughput(Throughput::Elements(N_NEW as u64));
    group.bench_function("new series", |b| {
        let empty = || {
            let dir = tempfile::tempdir().expect("create a temporary directory");
            (common::open(dir.path(), 2, 1), dir)
        };
        b.iter_batched(
            empty,
            |(db, dir)| {
                for labels in &labels {
                    black_box(db.series(labels).expect("write within the limits"));
                }
                (db, dir)
            },
            BatchSize::PerIteration,
        );
    });
}

fn read(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = common::open(dir.path(), 2, 1);
    let handles = fill::series(&db, N_SERIES);
    let mut batch = WriteBatch::default();
    (0..N_STEPS).for_each(|step| fill::append_step(&db, &handles, step, &mut batch));
    db.sync().expect("write to disk");

    let mut group = c.benchmark_group("read");
    group.sample_size(10);
    group.throughput(Throughput::Elements(N_SERIES as u64 * N_STEPS as u64));
    group.bench_function("scan of the head", |b| b.iter(|| scan(&db)));
    drop(db);
    for workers in [1, 2] {
        group.bench_function(format!("replay, {workers} workers"), |b| {
            b.iter(|| black_box(common::open(dir.path(), 2, workers)).stats());
        });
    }
}

fn scan(db: &Db) {
    let mut columns = SampleColumns::default();
    for series in db.select(&QueryContext::unbounded(), &[], TimeRange::ALL).expect("read without limits") {
        columns.clear();
        series.and_then(|series| series.read(&mut columns)).expect("read without limits");
        black_box(&columns);
    }
}

criterion_group!(benches, append, read);
criterion_main!(benches);
