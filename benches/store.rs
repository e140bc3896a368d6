//! What a store costs at full size: memory, disk, CPU and waiting, over the fleet of `varve bench`. Prints one table.
//!
//! Not a criterion bench: most of these figures are sizes, and a million series are filled once, not a hundred times.
//! Phases run one after the other in one process; CPU is that of the calling thread, memory is that of the process less
//! what it took before the store was opened. To be run as the server runs, with MIMALLOC_PURGE_DELAY=0. See
//! docs/performance.md.

#[path = "common/fleet.rs"]
mod fleet;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use fleet::{Fleet, FleetOptions, SeriesId};
use varve_tsdb::{
    Db, FlushStats, Labels, ManualClock, MatchOp, Matcher, Options, QueryContext, Sample, SampleColumns, SeriesHandle,
    TimeRange, WalSync, WriteBatch,
};

/// The server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const REQUEST_SAMPLES: usize = 2_000;
/// Ten minutes at 30 s, as between two flushes of a server.
const FLUSH_ROUNDS: i64 = 20;
const HOUR_ROUNDS: i64 = 120;

#[derive(Debug, Parser)]
struct Args {
    /// Active series
    #[arg(long, default_value = "100000")]
    series: usize,
    /// Hours of history
    #[arg(long, default_value = "1")]
    hours: i64,
    #[arg(long, default_value = "2")]
    shards: usize,
    /// Logs that the shards share; as the server has them on two cores
    #[arg(long, default_value = "2")]
    logs: usize,
    /// What cargo tells every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Series that get samples while the store is flushed, to see how long an append waits.
const N_PROBES: usize = 64;
/// How often it is looked how much memory is resident.
const RESIDENT_INTERVAL: Duration = Duration::from_millis(2);

struct Bench {
    args: Args,
    fleet: Fleet,
    dir: tempfile::TempDir,
    handles: Vec<SeriesHandle>,
    /// The samples of a round, by place.
    round: Vec<Sample>,
    batch: WriteBatch,
    next_round: i64,
    /// Resident before the store was opened.
    empty_bytes: u64,
}

fn main() {
    let args = Args::parse();
    let fleet = Fleet::new(FleetOptions { active_series: args.series, ..FleetOptions::default() });
    let sample = Sample { timestamp_ms: 1, value: 1.0 };
    let mut bench = Bench {
        handles: Vec::with_capacity(args.series),
        round: vec![sample; args.series],
        batch: WriteBatch::default(),
        next_round: 0,
        empty_bytes: 0,
        dir: tempfile::tempdir().expect("a folder"),
        fleet,
        args,
    };
    println!("{} series, {} shards, {} h at 30 s", bench.args.series, bench.args.shards, bench.args.hours);
    bench.run();
}

impl Bench {
    fn run(&mut self) {
        self.empty_bytes = resident_bytes();
        let db = self.open(1);
        self.new_series(&db);
        self.history(&db);
        self.disk(&db);
        self.reads(&db);
        self.restart(db);
        self.stale();
        self.many_blocks();
    }

    fn open(&self, workers: usize) -> Db {
        let end_ms = self.fleet.timestamp_ms(0, (self.args.hours + 24) * HOUR_ROUNDS);
        let options = Options {
            shards: self.args.shards,
            wal_logs: self.args.logs,
            wal_sync: WalSync::Never,
            wal_replay_concurrency: workers,
            background: false,
            clock: Arc::new(ManualClock::at(end_ms)),
            ..Options::default()
        };
        Db::open(self.dir.path(), options).expect("the folder opens")
    }

    fn n_series(&self) -> f64 {
        self.args.series as f64
    }

    fn new_series(&mut self, db: &Db) {
        let mut cpu = Duration::ZERO;
        let places: Vec<u32> = (0..self.fleet.n_places()).collect();
        for places in places.chunks(REQUEST_SAMPLES) {
            let labels = |&place| self.fleet.labels(SeriesId { place, ..self.fleet.series_at(place, 0) });
            let labels: Vec<_> = places.iter().map(labels).collect();
            let started = cpu_time();
            self.handles.extend(labels.iter().map(|labels| db.series(labels).expect("there is room")));
            cpu += cpu_time() - started;
        }
        db.sync().expect("the disk works");
        line("CPU of a new series", format!("{:.2} us", cpu.as_secs_f64() * 1e6 / self.n_series()));
    }

    /// Computes what the next round scrapes; not measured.
    fn scrape(&mut self) {
        let (round, mut at) = (self.next_round, 0);
        let samples = &mut self.round;
        self.fleet.scrape(0..self.fleet.n_places(), round, |_, sample| {
            samples[at] = sample;
            at += 1;
        });
        self.next_round += 1;
    }

    /// Appends the round; returns the CPU that took.
    fn append(&mut self, db: &Db) -> Duration {
        let started = cpu_time();
        for (samples, handles) in self.round.chunks(REQUEST_SAMPLES).zip(self.handles.chunks(REQUEST_SAMPLES)) {
            self.batch.clear();
            for ((sample, handle), tag) in samples.iter().zip(handles).zip(0..) {
                self.batch.push(*handle, *sample, tag);
            }
            db.append(&mut self.batch).expect("there is room");
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
        let (mut cpu, mut log_bytes, mut n_samples) = (Duration::ZERO, 0, 0.0);
        let (mut pause_us, mut flushing, mut full, mut after) = (0, Duration::ZERO, 0, 0);
        let mut wait = Duration::ZERO;
        let definitions = size_of_dir(&self.dir.path().join("wal"));
        for idx in 0..self.args.hours * HOUR_ROUNDS / FLUSH_ROUNDS {
            let before = size_of_dir(&self.dir.path().join("wal"));
            cpu += self.rounds(db, FLUSH_ROUNDS);
            n_samples += self.n_series() * FLUSH_ROUNDS as f64;
            log_bytes += size_of_dir(&self.dir.path().join("wal")) - before;
            full = full.max(self.own_bytes());
            let (started, before) = (Instant::now(), cpu_time());
            let (FlushStats { paused_us, .. }, waited) = self.flush_under_load(db);
            flushing += cpu_time() - before;
            pause_us = pause_us.max(paused_us);
            wait = wait.max(waited);
            if idx == 0 {
                line("first flush: takes, appends wait", format!("{:.2?}, {paused_us} us", started.elapsed()));
            }
            db.compact().expect("the disk works");
            after = self.own_bytes();
        }
        line("CPU of a sample of a known series", format!("{:.3} us", cpu.as_secs_f64() * 1e6 / n_samples));
        line("CPU of flushing a sample", format!("{:.3} us", flushing.as_secs_f64() * 1e6 / n_samples));
        line("appends wait for the freezing of the heads, at most", format!("{pause_us} us"));
        line("an append during a flush takes at most", format!("{wait:.1?}"));
        line("memory of a series, full head", format!("{:.0} bytes", full as f64 / self.n_series()));
        line("memory of a series, after a flush", format!("{:.0} bytes", after as f64 / self.n_series()));
        line("log of a sample", format!("{:.2} bytes", log_bytes as f64 / n_samples));
        line("log of a new series", format!("{:.1} bytes", definitions as f64 / self.n_series()));
    }

    /// Flushes while another thread appends a sample to each of some series, again and again; returns the longest time
    /// that took.
    fn flush_under_load(&self, db: &Db) -> (FlushStats, Duration) {
        let probe = |i: usize| Labels::from_pairs([("__name__", "probe"), ("i", &*i.to_string())]);
        let is_over = AtomicBool::new(false);
        let now_ms = self.round[0].timestamp_ms;
        thread::scope(|scope| {
            let probing = scope.spawn(|| {
                let (mut batch, mut longest) = (WriteBatch::default(), Duration::ZERO);
                let handles: Vec<_> = (0..N_PROBES)
                    .map(|i| db.series(&probe(i).expect("names are unique")).expect("there is room"))
                    .collect();
                for k in 0..25_000 {
                    batch.clear();
                    let sample = Sample { timestamp_ms: now_ms + k, value: 1.0 };
                    handles.iter().for_each(|&handle| batch.push(handle, sample, 0));
                    let started = Instant::now();
                    db.append(&mut batch).expect("there is room");
                    longest = longest.max(started.elapsed());
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    thread::sleep(Duration::from_micros(100));
                }
                longest
            });
            let stats = db.flush().expect("the disk works");
            is_over.store(true, Ordering::Relaxed);
            (stats, probing.join().expect("it asserts nothing"))
        })
    }

    fn disk(&self, db: &Db) {
        let (started, cpu) = (Instant::now(), cpu_time());
        db.compact_fully().expect("the disk works");
        let stats = db.stats();
        let per_sample = |bytes: u64| bytes as f64 / stats.blocks_samples as f64;
        line("merging all", format!("{:.1?}, {:.1?} of CPU", started.elapsed(), cpu_time() - cpu));
        line("blocks", format!("{}", stats.n_blocks));
        line(
            "disk of a sample: all = values + timestamps + index",
            format!(
                "{:.3} = {:.3} + {:.3} + {:.3} bytes",
                per_sample(stats.blocks_size_bytes),
                per_sample(stats.blocks_values_bytes),
                per_sample(stats.blocks_timestamps_bytes),
                per_sample(stats.blocks_index_bytes)
            ),
        );
        let of_series = stats.blocks_index_bytes as f64 / self.n_series() / stats.n_blocks as f64;
        line("index of a series, in each block", format!("{of_series:.1} bytes"));
    }

    fn reads(&self, db: &Db) {
        let mut columns = SampleColumns::default();
        let (mut n_samples, mut n_series) = (0, 0);
        let cpu = cpu_time();
        for series in db.select(&QueryContext::unbounded(), &[], TimeRange::ALL).expect("nothing limits it") {
            columns.clear();
            series.and_then(|series| series.read(&mut columns)).expect("nothing limits it");
            n_samples += columns.len();
            n_series += 1;
        }
        let cpu = (cpu_time() - cpu).as_secs_f64();
        assert_eq!(n_series, self.args.series + N_PROBES);
        line("scan of all series", format!("{:.0} M samples a second", n_samples as f64 / cpu / 1e6));
        let cpu = cpu_time();
        let set = db.select_labels(&QueryContext::unbounded(), &[], TimeRange::ALL).expect("nothing limits it");
        black_box(set.map(|series| series.expect("nothing limits it").labels().len()).sum::<usize>());
        let of_series = (cpu_time() - cpu).as_secs_f64() * 1e6 / self.n_series();
        line("labels of all series", format!("{of_series:.2} us a series"));
        let mut times: Vec<_> = (0..1000).map(|i| self.one_series(db, i * 7919 % self.args.series as u32)).collect();
        times.sort_unstable();
        line("one series by its labels: p50, p99", format!("{:.0?}, {:.0?}", times[500], times[990]));
    }

    fn one_series(&self, db: &Db, place: u32) -> Duration {
        let labels = self.fleet.labels(self.fleet.series_at(place, 0));
        let matchers: Vec<_> = labels
            .iter()
            .filter(|(name, _)| matches!(*name, "__name__" | "instance" | "pod"))
            .map(|(name, value)| Matcher::new(MatchOp::Equal, name, value).expect("it is no regular expression"))
            .collect();
        let (mut columns, started) = (SampleColumns::default(), Instant::now());
        let set = db.select(&QueryContext::unbounded(), &matchers, TimeRange::ALL).expect("nothing limits it");
        for series in set.take(1) {
            series.and_then(|series| series.read(&mut columns)).expect("nothing limits it");
        }
        assert!(!columns.is_empty());
        started.elapsed()
    }

    fn restart(&mut self, db: Db) {
        self.rounds(&db, FLUSH_ROUNDS);
        let before = self.own_bytes();
        drop(db);
        for workers in [1, 2] {
            let (started, cpu) = (Instant::now(), cpu_of_process());
            let (db, peak) = self.open_watched(workers);
            let (took, cpu) = (started.elapsed().as_secs_f64(), cpu_of_process() - cpu);
            let peak = peak.saturating_sub(self.empty_bytes);
            let mib = |bytes: u64| bytes >> 20;
            line(
                &format!("memory before a restart, and its peak, {workers} workers"),
                format!("{}, {} MiB", mib(before), mib(peak)),
            );
            let n = db.stats().replayed.n_samples;
            assert_eq!(n as i64, self.args.series as i64 * FLUSH_ROUNDS);
            let rate = format!("{took:.2} s, {cpu:.1?} of CPU, {:.1} M samples a second", n as f64 / took / 1e6);
            line(&format!("restart with 10 min of log, {workers} workers"), rate);
        }
    }

    /// Opens the store, and returns the most that was resident meanwhile.
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
            (db, watching.join().expect("it asserts nothing"))
        })
    }

    /// All series but one fall silent, for longer than they are kept in memory.
    fn stale(&mut self) {
        let db = self.open(2);
        let full = self.own_bytes();
        let labels = self.fleet.labels(self.fleet.series_at(0, 0));
        // The allocator gives memory back when it is next asked for some.
        for minutes in (120..=240).step_by(10) {
            self.batch.clear();
            let timestamp_ms = self.fleet.timestamp_ms(0, self.next_round + minutes * 2);
            let handle = db.series(&labels).expect("there is room");
            self.batch.push(handle, Sample { timestamp_ms, value: 1.0 }, 0);
            db.append(&mut self.batch).expect("there is room");
            db.flush().expect("the disk works");
        }
        assert_eq!(db.stats().n_series, 1);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        line(
            "memory before and after all series fell silent",
            format!("{:.0} and {:.0} MiB", mib(full), mib(self.own_bytes())),
        );
    }

    fn many_blocks(&mut self) {
        const N_BLOCKS: i64 = 100;
        self.dir = tempfile::tempdir().expect("a folder");
        self.args.series = (self.args.series / 10).max(1);
        self.fleet = Fleet::new(FleetOptions { active_series: self.args.series, ..FleetOptions::default() });
        self.handles.clear();
        self.round.truncate(self.args.series);
        self.next_round = 0;
        let db = self.open(1);
        let places: Vec<u32> = (0..self.fleet.n_places()).collect();
        for place in places {
            let labels = self.fleet.labels(self.fleet.series_at(place, 0));
            self.handles.push(db.series(&labels).expect("there is room"));
        }
        for _ in 0..N_BLOCKS {
            self.rounds(&db, 1);
            db.flush().expect("the disk works");
        }
        drop(db);
        let started = Instant::now();
        let db = self.open(2);
        let took = started.elapsed();
        assert!(db.stats().n_blocks >= N_BLOCKS as u64);
        line(&format!("opening {N_BLOCKS} parts of {} series", self.args.series), format!("{took:.2?}"));
    }

    /// Returns what the store takes: the process less what it took before, and the handles.
    fn own_bytes(&self) -> u64 {
        let handles = (self.handles.len() * size_of::<SeriesHandle>()) as u64;
        resident_bytes().saturating_sub(self.empty_bytes + handles)
    }
}

fn line(what: &str, figure: String) {
    println!("| {what} | {figure} |");
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this is Linux");
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("the first figure is in ns");
    Duration::from_nanos(ns)
}

/// CPU time of all threads that the process has and had.
fn cpu_of_process() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("this is Linux");
    // Behind the name of the program, which may hold anything: user and system time are the 12th and 13th field, in
    // hundredths of a second.
    let fields = text.rsplit(')').next().expect("a split has a part").split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("it is a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is always there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") << 10
}

fn size_of_dir(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of_dir(&entry.path()),
            Ok(meta) if entry.file_name() != "reserve" => meta.len(),
            _ => 0,
        })
        .sum()
}
