//! What was acknowledged survives: `kill -9` at random moments under load, and an orderly stop.

mod ledger;
mod replay;
mod retention;
mod shutdown;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::harness::{Random, Server};
use ledger::Ledger;
use writer::Writer;

const ROUNDS: u64 = 20;
const WRITERS: u64 = 4;
/// How long a round may write before it is killed.
const ROUND_MS: u64 = 300;
/// About how long a start takes.
const START_MS: u64 = 80;

#[test]
fn kill_nine_loses_nothing_acknowledged_and_doubles_nothing() {
    let seed = seed();
    eprintln!("seed {seed}: set VARVE_CRASH_SEED={seed} to replay");
    let mut random = Random::new(seed);
    let mut writers: Vec<_> = (0..WRITERS).map(|id| Writer::new(id, random.next())).collect();
    let mut ledger = Ledger::default();
    let mut server = Server::start(&[&flush_interval(&mut random)]);
    for round in 0..ROUNDS {
        write_until_killed(&mut server, &mut writers, Duration::from_millis(random.below(ROUND_MS)));
        for writer in &mut writers {
            ledger.note(writer.take_sent());
        }
        let name = format!("round {round} of seed {seed}");
        ledger.check_bits(&copy(&server.data_dir()), &name);
        // The number of shards may change between starts, also after a crash, also if the next one comes amid replay.
        for _ in 0..random.below(3) {
            let flags = [&*shards(&mut random), &*flush_interval(&mut random)];
            server.restart_and_kill(&flags, Duration::from_millis(random.below(START_MS)));
        }
        server.restart(&[&shards(&mut random), &flush_interval(&mut random)]);
        ledger.check_answers(server.http(), &name);
    }
    eprintln!("{ledger}");
    assert!(ledger.n_acknowledged() > 1000, "too little was written to show anything: {ledger}");
}

fn shards(random: &mut Random) -> String {
    format!("--storage.tsdb.shards={}", 1 << random.below(4))
}

/// Flushes and merges come all the time, or never.
fn flush_interval(random: &mut Random) -> String {
    let interval = ["5ms", "20ms", "60ms", "10m"][random.below(4) as usize];
    format!("--storage.head.flush-interval={interval}")
}

/// Writes with all writers at the same time and kills the server amid that.
fn write_until_killed(server: &mut Server, writers: &mut [Writer], life: Duration) {
    let killed = AtomicBool::new(false);
    let http = server.http().clone();
    scope(|scope| {
        for writer in writers {
            let (http, killed) = (&http, &killed);
            scope.spawn(move || {
                let lost = writer.write_until_lost(http);
                assert!(killed.load(Ordering::SeqCst), "the server went away by itself: {lost}");
            });
        }
        // The random moment.
        sleep(life);
        killed.store(true, Ordering::SeqCst);
        server.kill();
    });
}

fn seed() -> u64 {
    match std::env::var("VARVE_CRASH_SEED") {
        Ok(seed) => seed.parse().expect("VARVE_CRASH_SEED is a number"),
        Err(_) => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
    }
}

/// Copies a data directory, so that looking into it leaves the crash as it is for the server to recover from.
fn copy(data_dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::TempDir::new().expect("make a temporary directory");
    copy_into(data_dir, copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("list a directory") {
        let entry = entry.expect("list a directory");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("an entry has a type").is_dir() {
            std::fs::create_dir(&to).expect("make a directory");
            copy_into(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("copy a file");
        }
    }
}
