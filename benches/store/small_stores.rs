//! Separate stores of a tenth of the size: many parts, many shards, and samples that a real
//! Prometheus recorded. Also the memory of the large store after its series were evicted.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use varve_env::damage::DamageReport;
use varve_env::{Fs, RealFs};
use varve_model::Sample;
use varve_model::staleness::STALE_NAN_BITS;
use varve_prometheus::import::import_block;

use super::process::size_of_dir;
use super::{Args, Bench, FLUSH_ROUNDS, line, sizes};

/// Blocks of a real Prometheus with a scrape interval of three seconds; not part of this
/// repository.
const RECORDED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../shared/prometheus-data/mixed"
);

impl Bench {
    /// Prints the memory of the store after half of its series ended with a staleness marker, and
    /// after all others but one fell silent and were evicted.
    pub(crate) fn series_leave(&mut self) {
        let db = self.open(2);
        self.resolve(&db);
        let full = self.own_bytes();
        self.scrape();
        let half = self.args.series / 2;
        for sample in &mut self.round[..half] {
            sample.value = f64::from_bits(STALE_NAN_BITS);
        }
        self.append(&db);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut after = [0; 2];
        // Minutes after the last complete round. A flush evicts series and frees their memory.
        for (after, minutes) in after
            .iter_mut()
            .zip([vec![6, 12], (120..=240).step_by(10).collect()])
        {
            for minutes in minutes {
                self.batch.clear();
                let timestamp_ms = self.fleet.timestamp_ms(0, self.next_round + minutes * 2);
                let last = self.handles.last().expect("there are series");
                self.batch.push(
                    *last,
                    Sample {
                        timestamp_ms,
                        value: 1.0,
                    },
                    0,
                );
                db.append(&mut self.batch).expect("write within the limits");
                db.flush().expect("write to disk");
            }
            *after = self.own_bytes();
        }
        assert_eq!((db.stats().n_series, self.batch.rejected().len()), (1, 0));
        line("memory of the store", format!("{:.0} MiB", mib(full)));
        line(
            "the same, a few minutes after half of its series ended",
            format!("{:.0} MiB", mib(after[0])),
        );
        line(
            "the same, four hours after the others fell silent",
            format!("{:.0} MiB", mib(after[1])),
        );
    }

    /// Prints how long opening a store of a hundred parts takes.
    pub(crate) fn many_parts(&self) {
        const N_PARTS: i64 = 100;
        let mut small = self.with_a_tenth(self.args.shards);
        let db = small.open(1);
        small.resolve(&db);
        for _ in 0..N_PARTS {
            small.rounds(&db, 1);
            db.flush().expect("write to disk");
        }
        drop(db);
        let started = Instant::now();
        let db = small.open(2);
        let took = started.elapsed();
        assert!(db.stats().n_blocks >= N_PARTS as u64);
        line(
            &format!("opening {N_PARTS} parts of {} series", small.args.series),
            format!("{took:.2?}"),
        );
    }

    /// Prints the log size and the CPU time of a sample for several numbers of shards.
    pub(crate) fn many_shards(&self) {
        let mut few = None;
        for shards in [self.args.shards, 16, 64] {
            let mut small = self.with_a_tenth(shards);
            let db = small.open(1);
            small.resolve(&db);
            let wal = small.dir.path().join("wal");
            let before = size_of_dir(&wal);
            let cpu = small.rounds(&db, FLUSH_ROUNDS);
            let n_samples = small.n_series() * FLUSH_ROUNDS as f64;
            let bytes = (size_of_dir(&wal) - before) as f64 / n_samples;
            let cpu_us = cpu.as_secs_f64() * 1e6 / n_samples;
            let times = cpu_us / *few.get_or_insert(cpu_us);
            let what = format!(
                "{shards} shards, {} series: log, CPU of a sample",
                small.args.series
            );
            line(
                &what,
                format!("{bytes:.2} bytes, {cpu_us:.3} us, {times:.2} times"),
            );
        }
    }

    /// Prints the size of the recorded samples in a block.
    pub(crate) fn recorded(&self) {
        let what = "recorded data, a sample: all = values + timestamps + index";
        let Ok(blocks) = std::fs::read_dir(RECORDED) else {
            return line(what, "skipped, no data".to_owned());
        };
        let small = self.with_a_tenth(self.args.shards);
        let db = small.open(1);
        let (fs, import_dir): (Arc<dyn Fs>, _) =
            (Arc::new(RealFs), small.dir.path().join("import"));
        let mut number = 1;
        for dir in blocks
            .flatten()
            .map(|entry| entry.path())
            .filter(|dir| dir.join("index").exists())
        {
            number += import(&fs, &dir, &import_dir, number);
        }
        db.import().expect("the blocks were just written");
        db.compact_fully().expect("write to disk");
        line(
            what,
            format!(
                "{}, {} samples",
                sizes(&db.stats()),
                db.stats().blocks_samples
            ),
        );
    }

    /// Returns a bench with a tenth of the series.
    fn with_a_tenth(&self, shards: usize) -> Self {
        Self::new(Args {
            series: (self.args.series / 10).max(1),
            shards,
            ..self.args
        })
    }

    /// Finds or creates all series.
    fn resolve(&mut self, db: &varve_tsdb::Db) {
        self.handles.clear();
        for place in 0..self.fleet.n_places() {
            let labels = self.fleet.labels(self.fleet.series_at(place, 0));
            let handle = db.series(&labels).expect("write within the limits");
            self.handles.push(handle);
        }
    }
}

fn import(fs: &Arc<dyn Fs>, block: &Path, import_dir: &Path, number: u64) -> u64 {
    let mut damage = DamageReport::default();
    import_block(fs, block, import_dir, number, &[], &mut damage)
        .expect("the directory is a block")
        .n_blocks
}
