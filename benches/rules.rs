//! The cost of drop rules: known series with 0, 40 and 400 rules that match none of them, and
//! series that a rule drops. Prints a table.
//!
//! Not a criterion bench, as the differences are smaller than those between two runs on a busy
//! machine. The same requests go to one receiver per case in turn, each with its own store, and the
//! result is the median of the ratios of CPU time, round by round. The whole path of a sample is
//! the request from its body to its acknowledgement, including the WAL, and its share of flushes
//! and compaction. `--case` runs a single receiver, to count instructions:
//!
//! ```sh
//! valgrind --tool=callgrind --toggle-collect='*Receiver::write*' target/release/deps/rules-* --case 0 --series 2000 --rounds 40
//! ```

#[path = "common/bodies.rs"]
mod bodies;
#[allow(dead_code, reason = "a bench does not use all of it")]
mod common;
#[path = "../tests/harness/messages/remote_write.rs"]
#[allow(dead_code, unused_imports, reason = "requests are of version 1.0 only")]
mod messages;

#[path = "store/process.rs"]
#[allow(dead_code, reason = "a bench does not use all of it")]
mod process;

use std::sync::Arc;
use std::time::Duration;

use bodies::requests;
use clap::Parser;
use process::cpu_time;
use varve_env::testing::ManualClock;
use varve_ingest::admission::Origin;
use varve_ingest::relabel::{RelabelConfig, Relabeling};
use varve_ingest::remote_write::Version;
use varve_ingest::{Limits, Receiver};
use varve_system::machine::allocator;
use varve_tsdb::{Db, Options, WalSync};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ten minutes.
const ROUNDS_PER_FLUSH: i64 = 20;

#[derive(Debug, Parser)]
struct Args {
    #[arg(long, default_value = "50000")]
    series: usize,
    /// Samples of each series; two hours are 240
    #[arg(long, default_value = "240")]
    rounds: i64,
    /// A single case: 0, 40 or 400 rules, or dropped
    #[arg(long)]
    case: Option<String>,
    /// Passed by cargo to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A receiver with some rules, its store and its cost.
struct Case {
    name: &'static str,
    receiver: Receiver,
    db: Arc<Db>,
    /// CPU time of each round of requests.
    rounds: Vec<Duration>,
    /// CPU time of flushes and compaction.
    later: Duration,
    _dir: tempfile::TempDir,
}

fn main() {
    allocator::release_freed_memory();
    let args = Args::parse();
    let mut cases = Vec::new();
    for name in ["0", "40", "400", "dropped"] {
        if args.case.as_deref().is_none_or(|asked| asked == name) {
            cases.push(Case::new(name));
        }
    }
    let bodies = |step| {
        requests(0..args.series, common::START_MS, step)
            .map(|request| request.to_body())
            .collect::<Vec<_>>()
    };
    for body in &bodies(0) {
        for case in &cases {
            case.write(body);
        }
    }
    for step in 1..=args.rounds {
        let bodies = bodies(step);
        // Rotate, so that no case always runs first.
        let n_cases = cases.len();
        cases.rotate_left(1.min(n_cases));
        for case in &mut cases {
            case.round(&bodies);
        }
        if step % ROUNDS_PER_FLUSH == 0 || step == args.rounds {
            for case in &mut cases {
                case.flush();
            }
        }
    }
    for case in &mut cases {
        case.merge();
    }
    report(&mut cases, args.series as f64 * args.rounds as f64);
}

impl Case {
    fn new(name: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("create a temporary directory");
        let options = Options {
            shards: 2,
            wal_sync: WalSync::Never,
            background: false,
            clock: Arc::new(ManualClock::at(common::START_MS + 24 * 3_600_000)),
            ..Options::default()
        };
        let db = Arc::new(Db::open(dir.path(), options).expect("open an empty directory"));
        let receiver = Receiver::new(Arc::clone(&db), Limits::for_tests());
        receiver.set_relabeling(Relabeling::new(rules(name)).expect("parse valid rules"));
        Self {
            name,
            receiver,
            db,
            rounds: Vec::new(),
            later: Duration::ZERO,
            _dir: dir,
        }
    }

    fn write(&self, body: &[u8]) {
        let written = self
            .receiver
            .write(&Origin::default(), Version::V1, body)
            .expect("write within the limits");
        assert!(written.rejections.is_empty(), "{}", written.rejections);
    }

    fn round(&mut self, bodies: &[Vec<u8>]) {
        let before = cpu_time();
        for body in bodies {
            self.write(body);
        }
        self.rounds.push(cpu_time() - before);
    }

    fn flush(&mut self) {
        let before = cpu_time();
        self.db.flush().expect("write to disk");
        self.db.compact().expect("write to disk");
        self.later += cpu_time() - before;
    }

    fn merge(&mut self) {
        let before = cpu_time();
        self.db.compact_fully().expect("write to disk");
        self.later += cpu_time() - before;
    }
}

/// Returns the rules of a case, by its name.
fn rules(name: &str) -> Vec<RelabelConfig> {
    let Ok(n_rules) = name.parse() else {
        return vec![RelabelConfig {
            action: Some("drop".to_owned()),
            ..RelabelConfig::default()
        }];
    };
    let rules = (0..n_rules).map(|i: usize| RelabelConfig {
        source_labels: vec!["job".to_owned(), "__name__".to_owned()],
        regex: Some(format!("job-{i};(unwanted_{i}|deprecated_.*)")),
        action: Some("drop".to_owned()),
        ..RelabelConfig::default()
    });
    rules.collect()
}

fn report(cases: &mut [Case], n_samples: f64) {
    cases.sort_by_key(|case| {
        ["0", "40", "400", "dropped"]
            .iter()
            .position(|name| *name == case.name)
    });
    let Some(first) = cases.first() else { return };
    let whole = |case: &Case| (case.rounds.iter().sum::<Duration>() + case.later).as_secs_f64();
    println!(
        "| rules | request, us a sample | of the first | whole path, us a sample | of the first |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for case in &*cases {
        let request = case.rounds.iter().sum::<Duration>().as_secs_f64();
        let ratios = case
            .rounds
            .iter()
            .zip(&first.rounds)
            .map(|(a, b)| a.as_secs_f64() / b.as_secs_f64());
        println!(
            "| {} | {:.3} | {:.3} | {:.3} | {:.3} |",
            case.name,
            request * 1e6 / n_samples,
            median(ratios.collect()),
            whole(case) * 1e6 / n_samples,
            whole(case) / whole(first),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
