//! A request for all series from many clients at once, during writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{SERIES, T0, held, ingest};
use crate::harness::{Server, WriteRequest, series, wait_until};

const CLIENTS: usize = 16;
/// Allowed memory beyond that of the idle server, in bytes.
const GROWTH_MAX: u64 = 32 << 20;
/// How long writes are measured alone, for comparison.
const ALONE: Duration = Duration::from_secs(2);
/// The interval between requests of a sender whose responses arrive in time.
const PACE: Duration = Duration::from_millis(200);
/// The fraction of the write rate that must remain.
const RATE_KEPT: f64 = 0.9;
/// Number of attempts.
const ROUNDS: usize = 3;

/// Writes until `stop`, and returns the requests per second.
fn write(server: &Server, stop: &AtomicBool, round: &AtomicU64) -> f64 {
    let started = Instant::now();
    let mut n_requests: u32 = 0;
    while !stop.load(Ordering::Relaxed) {
        let at = T0 + 60_000 + round.fetch_add(1, Ordering::Relaxed) as i64;
        let pods: Vec<_> = (0..500).map(|i| format!("pod-{i}")).collect();
        let written = pods
            .iter()
            .map(|pod| series(&[("__name__", "written"), ("pod", pod)], &[(at, 1.0)]));
        server
            .http()
            .write(&WriteRequest::new(written))
            .expect_status(204);
        n_requests += 1;
        thread::sleep((PACE * n_requests).saturating_sub(started.elapsed()));
    }
    f64::from(n_requests) / started.elapsed().as_secs_f64()
}

#[test]
fn all_series_for_sixteen_clients_during_writes() {
    let server = Server::start(&[]);
    ingest(&server, SERIES);
    let (stop, round) = (AtomicBool::new(false), AtomicU64::new(0));
    let alone = thread::scope(|scope| {
        let writing = scope.spawn(|| write(&server, &stop, &round));
        thread::sleep(ALONE);
        stop.store(true, Ordering::Relaxed);
        writing.join().expect("the writer does not panic")
    });
    let idle = server.resident_size();
    // The machine may be busy: one undisturbed round is enough.
    let is_kept = (0..ROUNDS).any(|_| {
        let (beside, peak) = ask_beside_writes(&server, &round);
        eprintln!("resident {idle} bytes idle, {peak} at most; {alone:.1} writes a second alone, {beside:.1} beside");
        peak < idle + GROWTH_MAX && beside > alone * RATE_KEPT
    });
    assert!(
        is_kept,
        "in none of {ROUNDS} rounds memory and rate were kept"
    );
    wait_until("all memory to be given back", || held(&server) == 0.0);
    server.http().get("/-/healthy").expect_status(200);
}

/// Makes the requests of all clients at once, during writes. Returns the writes per second and the
/// peak of resident memory.
fn ask_beside_writes(server: &Server, round: &AtomicU64) -> (f64, u64) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| write(server, &stop, round));
        let watching = scope.spawn(|| {
            let mut peak = 0;
            while !stop.load(Ordering::Relaxed) {
                peak = server.resident_size().max(peak);
                thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let asking: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| ask(server))).collect();
        for client in asking {
            client.join().expect("a client does not panic");
        }
        stop.store(true, Ordering::Relaxed);
        (
            writing.join().expect("the writer does not panic"),
            watching.join().expect("the watch does not panic"),
        )
    })
}

/// Requests all series, and checks while reading that the response is complete.
fn ask(server: &Server) {
    let mut connection = server.http().connect();
    connection.send(
        b"GET /api/v1/series?match[]=%7B__name__%3D~%22.%2B%22%7D HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    let (n_series, end) = connection.count(b"\"__name__\":\"load\"");
    assert_eq!(n_series, SERIES, "the answer ends with {end:?}");
    assert!(
        end.ends_with("]}\r\n0\r\n\r\n"),
        "the answer ends with {end:?}"
    );
}
