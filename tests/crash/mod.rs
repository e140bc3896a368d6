//! Acknowledged samples survive `kill -9` at random times under load, and a shutdown.

mod damage;
mod ledger;
mod replay;
mod retention;
mod shutdown;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::harness::{Random, Server, copy_dir};
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
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|id| Writer::new(id, random.next()))
        .collect();
    let mut ledger = Ledger::default();
    let mut server = Server::start(&[&flush_interval(&mut random)]);
    for round in 0..ROUNDS {
        write_until_killed(
            &mut server,
            &mut writers,
            Duration::from_millis(random.below(ROUND_MS)),
        );
        for writer in &mut writers {
            ledger.note(writer.take_sent());
        }
        let name = format!("round {round} of seed {seed}");
        ledger.check_bits(&copy(&server.data_dir()), &name);
        // The number of shards may change at each start, even after a crash during replay.
        for _ in 0..random.below(3) {
            let flags = [&*shards(&mut random), &*flush_interval(&mut random)];
            server.restart_and_kill(&flags, Duration::from_millis(random.below(START_MS)));
        }
        server.restart(&[&shards(&mut random), &flush_interval(&mut random)]);
        ledger.check_responses(server.http(), &name);
    }
    eprintln!("{ledger}");
    assert!(
        ledger.n_acknowledged() > 1000,
        "too few samples were acknowledged: {ledger}"
    );
}

fn shards(random: &mut Random) -> String {
    format!("--storage.tsdb.shards={}", 1 << random.below(4))
}

/// Returns a flush interval: flushes and merges run continuously, or never.
fn flush_interval(random: &mut Random) -> String {
    let interval = ["5ms", "20ms", "60ms", "10m"][random.below(4) as usize];
    format!("--storage.head.flush-interval={interval}")
}

/// Writes from all writers concurrently, and kills the server meanwhile.
fn write_until_killed(server: &mut Server, writers: &mut [Writer], life: Duration) {
    let killed = AtomicBool::new(false);
    let http = server.http().clone();
    scope(|scope| {
        for writer in writers {
            let (http, killed) = (&http, &killed);
            scope.spawn(move || {
                let lost = writer.write_until_lost(http);
                assert!(
                    killed.load(Ordering::SeqCst),
                    "the server ended by itself: {lost}"
                );
            });
        }
        sleep(life);
        killed.store(true, Ordering::SeqCst);
        server.kill();
    });
}

fn seed() -> u64 {
    match std::env::var("VARVE_CRASH_SEED") {
        Ok(seed) => seed.parse().expect("VARVE_CRASH_SEED is a number"),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64),
    }
}

/// Copies a data directory, so that opening it does not recover the original.
fn copy(data_dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::TempDir::new().expect("make a temporary directory");
    copy_dir(data_dir, copy.path());
    copy
}
