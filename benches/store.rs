//! The cost of a store at full size: memory, disk, CPU and latency, over the fleet of
//! `varve-bench`. Prints one table.
//!
//! Not a criterion bench: most of these figures are sizes, and a store of a million series is
//! filled only once. Phases run one after the other in one process. CPU time is that of the calling
//! thread. Memory is that of the process, minus its memory before the store was opened. Run it with
//! MIMALLOC_PURGE_DELAY=10, as the server runs. See docs/performance.md.

#[path = "store/process.rs"]
mod process;
#[path = "store/small_stores.rs"]
mod small_stores;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use process::{cpu_of_process, cpu_time, resident_bytes, size_of_dir};
use varve_bench::{Fleet, FleetOptions};
use varve_context::{Limit, MemoryBudget, QueryContext};
use varve_env::RealFs;
use varve_env::testing::ManualClock;
use varve_model::{Labels, MatchOp, Matcher, Sample, SampleColumns, TimeRange};
use varve_tsdb::select::{LabelHint, SelectHints};
use varve_tsdb::stats::{FlushStats, Stats};
use varve_tsdb::{Db, Options, ReadContext, SeriesHandle, WalSync, WriteBatch, inspect};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const REQUEST_SAMPLES: usize = 2_000;
/// Rounds between two flushes: ten minutes at 30 s.
const FLUSH_ROUNDS: i64 = 20;
const HOUR_ROUNDS: i64 = 120;

#[derive(Debug, Clone, Copy, Parser)]
struct Args {
    /// Active series
    #[arg(long, default_value = "100000")]
    series: usize,
    /// Hours of history
    #[arg(long, default_value = "1")]
    hours: i64,
    #[arg(long, default_value = "2")]
    shards: usize,
    /// Logs that the shards share; the default is that of a server on two cores
    #[arg(long, default_value = "2")]
    logs: usize,
    /// Passed by cargo to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Number of series that get samples during a flush, to measure how long an append waits.
const N_PROBES: usize = 64;
/// How often the resident memory is sampled.
const RESIDENT_INTERVAL: Duration = Duration::from_millis(10);

struct Bench {
    args: Args,
    fleet: Fleet,
    dir: tempfile::TempDir,
    handles: Vec<SeriesHandle>,
    /// The samples of a round, by place.
    round: Vec<Sample>,
    batch: WriteBatch,
    next_round: i64,
    /// Resident memory before the store was opened.
    empty_bytes: u64,
}

fn main() {
    let args = Args::parse();
    println!(
        "{} series, {} shards, {} h at 30 s",
        args.series, args.shards, args.hours
    );
    Bench::new(args).run();
}

impl Bench {
    fn new(args: Args) -> Self {
        Self {
            handles: Vec::with_capacity(args.series),
            round: vec![
                Sample {
                    timestamp_ms: 1,
                    value: 1.0
                };
                args.series
            ],
            batch: WriteBatch::default(),
            next_round: 0,
            empty_bytes: resident_bytes(),
            dir: tempfile::tempdir().expect("create a temporary directory"),
            fleet: Fleet::new(FleetOptions {
                active_series: args.series,
                ..FleetOptions::default()
            }),
            args,
        }
    }

    fn run(&mut self) {
        self.empty_bytes = resident_bytes();
        let db = self.open(1);
        self.new_series(&db);
        self.history(&db);
        self.disk(&db);
        self.reads(&db);
        self.restart(db);
        self.series_leave();
        self.many_parts();
        self.many_shards();
        self.recorded();
    }

    fn open(&self, workers: usize) -> Db {
        let end_ms = self
            .fleet
            .timestamp_ms(0, (self.args.hours + 24) * HOUR_ROUNDS);
        let options = Options {
            shards: self.args.shards,
            wal_logs: self.args.logs,
            wal_sync: WalSync::Never,
            wal_replay_concurrency: workers,
            background: false,
            clock: Arc::new(ManualClock::at(end_ms)),
            ..Options::default()
        };
        Db::open(self.dir.path(), options).expect("open the data directory")
    }

    fn n_series(&self) -> f64 {
        self.args.series as f64
    }

    fn new_series(&mut self, db: &Db) {
        let mut cpu = Duration::ZERO;
        let places: Vec<u32> = (0..self.fleet.n_places()).collect();
        for places in places.chunks(REQUEST_SAMPLES) {
            let labels = places
                .iter()
                .map(|&place| self.fleet.labels(self.fleet.series_at(place, 0)));
            let labels: Vec<_> = labels.collect();
            let started = cpu_time();
            self.handles.extend(
                labels
                    .iter()
                    .map(|labels| db.series(labels).expect("write within the limits")),
            );
            cpu += cpu_time() - started;
        }
        db.sync().expect("write to disk");
        line(
            "CPU of a new series",
            format!("{:.2} us", cpu.as_secs_f64() * 1e6 / self.n_series()),
        );
    }

    /// Computes the samples of the next round; not measured.
    fn scrape(&mut self) {
        let round = self.next_round;
        let mut n_samples = 0;
        let samples = &mut self.round;
        self.fleet
            .scrape(0..self.fleet.n_places(), round, |_, sample| {
                samples[n_samples] = sample;
                n_samples += 1;
            });
        self.next_round += 1;
    }

    /// Appends the round and returns the CPU time.
    fn append(&mut self, db: &Db) -> Duration {
        let started = cpu_time();
        for (samples, handles) in self
            .round
            .chunks(REQUEST_SAMPLES)
            .zip(self.handles.chunks(REQUEST_SAMPLES))
        {
            self.batch.clear();
            for ((sample, handle), tag) in samples.iter().zip(handles).zip(0..) {
                self.batch.push(*handle, *sample, tag);
            }
            db.append(&mut self.batch).expect("write within the limits");
            assert!(self.batch.rejected().is_empty(), "rounds ascend");
        }
        cpu_time() - started
    }

    fn rounds(&mut self, db: &Db, n: i64) -> Duration {
        (0..n).fold(Duration::ZERO, |cpu, _| {
            self.scrape();
            cpu + self.append(db)
        })
    }

    fn history(&mut self, db: &Db) {
        let mut cpu = Duration::ZERO;
        let mut log_bytes = 0;
        let mut n_samples = 0.0;
        let mut pause_us = 0;
        let mut flushing = Duration::ZERO;
        let mut full = 0;
        let mut after = 0;
        let mut wait = Duration::ZERO;
        let definitions = size_of_dir(&self.dir.path().join("wal"));
        for idx in 0..self.args.hours * HOUR_ROUNDS / FLUSH_ROUNDS {
            let before = size_of_dir(&self.dir.path().join("wal"));
            cpu += self.rounds(db, FLUSH_ROUNDS);
            n_samples += self.n_series() * FLUSH_ROUNDS as f64;
            log_bytes += size_of_dir(&self.dir.path().join("wal")) - before;
            full = full.max(self.own_bytes());
            let started = Instant::now();
            let before = cpu_time();
            let (FlushStats { paused_us, .. }, waited) = self.flush_under_load(db);
            flushing += cpu_time() - before;
            pause_us = pause_us.max(paused_us);
            wait = wait.max(waited);
            if idx == 0 {
                line(
                    "first flush: takes, appends wait",
                    format!("{:.2?}, {paused_us} us", started.elapsed()),
                );
            }
            db.compact().expect("write to disk");
            after = self.own_bytes();
        }
        line(
            "CPU of a sample of a known series",
            format!("{:.3} us", cpu.as_secs_f64() * 1e6 / n_samples),
        );
        line(
            "CPU of flushing a sample",
            format!("{:.3} us", flushing.as_secs_f64() * 1e6 / n_samples),
        );
        line(
            "appends wait for the freezing of the heads, at most",
            format!("{pause_us} us"),
        );
        line(
            "an append during a flush takes at most",
            format!("{wait:.1?}"),
        );
        line(
            "memory of a series, full head",
            format!("{:.0} bytes", full as f64 / self.n_series()),
        );
        line(
            "memory of a series, after a flush",
            format!("{:.0} bytes", after as f64 / self.n_series()),
        );
        line(
            "log of a sample",
            format!("{:.2} bytes", log_bytes as f64 / n_samples),
        );
        line(
            "log of a new series",
            format!("{:.1} bytes", definitions as f64 / self.n_series()),
        );
    }

    /// Flushes while another thread repeatedly appends a sample to each of a few series; returns
    /// the longest append.
    fn flush_under_load(&self, db: &Db) -> (FlushStats, Duration) {
        let is_over = AtomicBool::new(false);
        let now_ms = self.round[0].timestamp_ms;
        thread::scope(|scope| {
            let probing = scope.spawn(|| {
                let mut batch = WriteBatch::default();
                let mut longest = Duration::ZERO;
                let mut handles = Vec::new();
                for i in 0..N_PROBES {
                    let labels = [("__name__", "probe"), ("i", &*i.to_string())];
                    let labels = Labels::from_pairs(labels).expect("names are unique");
                    handles.push(db.series(&labels).expect("write within the limits"));
                }
                for k in 0..25_000 {
                    batch.clear();
                    let sample = Sample {
                        timestamp_ms: now_ms + k,
                        value: 1.0,
                    };
                    for &handle in &handles {
                        batch.push(handle, sample, 0);
                    }
                    let started = Instant::now();
                    db.append(&mut batch).expect("write within the limits");
                    longest = longest.max(started.elapsed());
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    thread::sleep(Duration::from_micros(100));
                }
                longest
            });
            let stats = db.flush().expect("write to disk");
            is_over.store(true, Ordering::Relaxed);
            (stats, probing.join().expect("it does not panic"))
        })
    }

    fn disk(&self, db: &Db) {
        let stats = db.stats();
        line(
            &format!(
                "disk of a sample, {} parts and blocks, as compaction leaves them",
                stats.n_blocks
            ),
            sizes(&stats),
        );
        let started = Instant::now();
        let cpu = cpu_time();
        db.compact_fully().expect("write to disk");
        let stats = db.stats();
        line(
            "merging all",
            format!("{:.1?}, {:.1?} of CPU", started.elapsed(), cpu_time() - cpu),
        );
        line("blocks", format!("{}", stats.n_blocks));
        line(
            "disk of a sample, merged: all = values + timestamps + index",
            sizes(&stats),
        );
        let of_series = stats.blocks_index_bytes as f64 / self.n_series() / stats.n_blocks as f64;
        line(
            "index of a series, in each block",
            format!("{of_series:.1} bytes"),
        );
    }

    fn reads(&self, db: &Db) {
        // The cache is empty: the block is new.
        self.single_series(db, "read for the first time");
        for which in ["first", "second"] {
            self.scan(
                db,
                &format!("scan of all series without their labels, the {which}"),
                LabelHint::With(Vec::new()),
            );
        }
        self.scan(db, "scan of all series with their labels", LabelHint::All);
        let cpu = cpu_time();
        let set = db
            .select_labels(&query(), &[], TimeRange::ALL)
            .expect("read without limits");
        black_box(
            set.map(|series| series.expect("read without limits").labels().len())
                .sum::<usize>(),
        );
        let of_series = (cpu_time() - cpu).as_secs_f64() * 1e6 / self.n_series();
        line(
            "labels of all series",
            format!("{of_series:.2} us a series"),
        );
        self.single_series(db, "read before");
    }

    /// Reads all samples, and the labels in the hint.
    fn scan(&self, db: &Db, what: &str, labels: LabelHint) {
        let mut columns = SampleColumns::default();
        let mut n_samples = 0;
        let mut n_series = 0;
        let hints = SelectHints {
            labels,
            ..SelectHints::default()
        };
        let cpu = cpu_time();
        for series in db
            .select_with(&query(), &[], TimeRange::ALL, hints)
            .expect("read without limits")
        {
            columns.clear();
            series
                .and_then(|series| series.read(&mut columns))
                .expect("read without limits");
            n_samples += columns.len();
            n_series += 1;
        }
        let cpu = (cpu_time() - cpu).as_secs_f64();
        assert_eq!(n_series, self.args.series + N_PROBES);
        line(
            what,
            format!("{:.0} M samples a second", n_samples as f64 / cpu / 1e6),
        );
    }

    fn single_series(&self, db: &Db, pages: &str) {
        let places = (0..1000).map(|i| i * 7919 % self.args.series as u32);
        let mut times: Vec<_> = places
            .filter_map(|place| self.one_series(db, place))
            .collect();
        times.sort_unstable();
        let what = format!("one series by its labels, pages {pages}: p50, p99");
        line(
            &what,
            format!(
                "{:.0?}, {:.0?}",
                times[times.len() / 2],
                times[times.len() * 99 / 100]
            ),
        );
    }

    /// Returns the time to find and read a series; `None` if other series have the same name,
    /// instance and pod.
    fn one_series(&self, db: &Db, place: u32) -> Option<Duration> {
        let labels = self.fleet.labels(self.fleet.series_at(place, 0));
        let matchers: Vec<_> = labels
            .iter()
            .filter(|(name, _)| matches!(*name, "__name__" | "instance" | "pod"))
            .map(|(name, value)| {
                Matcher::new(MatchOp::Equal, name, value).expect("an equality matcher is valid")
            })
            .collect();
        let mut columns = SampleColumns::default();
        let started = Instant::now();
        let mut set = db
            .select(&query(), &matchers, TimeRange::ALL)
            .expect("read without limits");
        let series = set
            .next()
            .expect("the series exists")
            .expect("read without limits");
        series.read(&mut columns).expect("read without limits");
        let took = started.elapsed();
        assert!(!columns.is_empty());
        set.next().is_none().then_some(took)
    }

    fn restart(&mut self, db: Db) {
        self.rounds(&db, FLUSH_ROUNDS);
        let before = self.own_bytes();
        drop(db);
        self.log_parts();
        for workers in [1, 2] {
            let started = Instant::now();
            let cpu = cpu_of_process("self");
            let (db, peak) = self.open_watched(workers);
            let took = started.elapsed().as_secs_f64();
            let cpu = cpu_of_process("self") - cpu;
            let peak = peak.saturating_sub(self.empty_bytes);
            let mib = |bytes: u64| bytes >> 20;
            line(
                &format!("memory before a restart, and its peak, {workers} workers"),
                format!("{}, {} MiB", mib(before), mib(peak)),
            );
            let n = db.stats().replayed.n_samples;
            assert_eq!(n as i64, self.args.series as i64 * FLUSH_ROUNDS);
            let rate = format!(
                "{took:.2} s, {cpu:.1?} of CPU, {:.1} M samples a second",
                n as f64 / took / 1e6
            );
            line(
                &format!("restart with 10 min of log, {workers} workers"),
                rate,
            );
        }
    }

    /// Prints the parts of the log since the last flush.
    fn log_parts(&self) {
        let log = inspect::inspect(&RealFs, self.dir.path(), &mut |_, _| {})
            .expect("the log exists")
            .parts;
        let bytes_per_sample = |bits: u64| bits as f64 / 8.0 / log.n_samples as f64;
        let inspect::SampleSizes {
            head,
            refs,
            times,
            values,
            ..
        } = log.samples;
        let parts = [log.sample_frames * 8, head, refs, times, values].map(bytes_per_sample);
        let [frames, heads, refs, times, values] = parts;
        let all: f64 = parts.iter().sum();
        line(
            "log of a sample: all = frames + heads of records + series + timestamps + values",
            format!(
                "{all:.3} = {frames:.3} + {heads:.3} + {refs:.3} + {times:.3} + {values:.3} bytes"
            ),
        );
        line(
            "checkpoint of a series",
            format!("{:.1} bytes", log.checkpoints as f64 / self.n_series()),
        );
    }

    /// Opens the store, and returns the peak of resident memory meanwhile.
    fn open_watched(&self, workers: usize) -> (Db, u64) {
        let is_open = AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut peak = 0;
                while !is_open.load(Ordering::Relaxed) {
                    peak = peak.max(resident_bytes());
                    thread::sleep(RESIDENT_INTERVAL);
                }
                peak.max(resident_bytes())
            });
            let db = self.open(workers);
            is_open.store(true, Ordering::Relaxed);
            (db, watching.join().expect("it does not panic"))
        })
    }

    /// Returns the memory of the store: that of the process, minus its memory before and the
    /// handles.
    fn own_bytes(&self) -> u64 {
        let handles = (self.handles.len() * size_of::<SeriesHandle>()) as u64;
        resident_bytes().saturating_sub(self.empty_bytes + handles)
    }
}

/// Returns the context of a query with a deadline and a memory budget, as in a server.
fn query() -> ReadContext {
    ReadContext::unrestricted(QueryContext::new(
        Duration::from_secs(3600),
        MemoryBudget::new(Limit::Other("memory"), 1 << 30),
    ))
}

/// Returns the bytes per sample in blocks, in total and by part.
fn sizes(stats: &Stats) -> String {
    let per_sample = |bytes: u64| bytes as f64 / stats.blocks_samples as f64;
    let [all, values, timestamps, index] = [
        stats.blocks_size_bytes,
        stats.blocks_values_bytes,
        stats.blocks_timestamps_bytes,
        stats.blocks_index_bytes,
    ]
    .map(per_sample);
    format!("{all:.3} = {values:.3} + {timestamps:.3} + {index:.3} bytes")
}

fn line(what: &str, figure: String) {
    println!("| {what} | {figure} |");
}
