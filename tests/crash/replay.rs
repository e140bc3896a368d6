//! A killed server accepts writes and returns complete results while it replays its log.

use std::path::{Path, PathBuf};

use crate::harness::{Answer, Server, WriteRequest, series, try_serve, wait_until};

const T0: i64 = 1_700_000_000_000;
const N_SERIES: i64 = 2000;
const N_SAMPLES: i64 = 40;

/// Returns a request with the samples of all series from `from` to `to`, one per second.
fn request(from: i64, to: i64) -> WriteRequest {
    let samples = |i: i64| {
        (from..to)
            .map(|t| (T0 + t * 1000, (i * t % 1009) as f64 / 8.0))
            .collect::<Vec<_>>()
    };
    WriteRequest::new(
        (0..N_SERIES).map(|i| series(&[("__name__", "m"), ("i", &i.to_string())], &samples(i))),
    )
}

fn count(server: &Server, end: i64) -> Answer {
    let time = (T0 / 1000 + end).to_string();
    server.http().query(
        "/api/v1/query",
        &[("query", "sum(count_over_time(m[1h]))"), ("time", &time)],
    )
}

fn counted(answer: &Answer) -> Option<String> {
    let answered = (answer.status == 200).then(|| answer.json())?;
    Some(
        answered["data"]["result"][0]["value"][1]
            .as_str()
            .unwrap_or("nothing")
            .to_owned(),
    )
}

#[test]
fn a_killed_server_accepts_writes_and_returns_complete_results_while_it_replays() {
    let mut server = Server::start(&[]);
    (0..N_SAMPLES).for_each(|t| drop(server.http().write(&request(t, t + 1)).expect_status(204)));
    let mut end = N_SAMPLES;
    for round in 0..4 {
        server.kill();
        server.restart_at_once(&["--storage.wal.replay-concurrency=1"]);
        // 503 until the series are known.
        let next = request(end, end + 1);
        wait_until("a write to be accepted", || {
            let answer = server.http().write(&next);
            assert!(matches!(answer.status, 204 | 503), "{answer:?}");
            answer.status == 204
        });
        end += 1;
        // A query waits for the replay, or fails with its progress.
        let expected = (N_SERIES * end).to_string();
        match counted(&count(&server, end)) {
            Some(found) => assert_eq!(found, expected, "round {round}"),
            None => panic!("round {round}: two minutes are enough"),
        }
        server.http().get("/-/ready?for=write").expect_status(200);
    }
    server.kill();
    server.restart(&[]);
    wait_until("the end of the replay", || {
        server.metric("varve_tsdb_replay_running") == 0.0
    });
    assert_eq!(server.http().get("/-/ready").text(), "Varve is Ready.\n");
    let answer = server.http().get("/api/v1/status/walreplay");
    let progress = answer.data();
    assert_eq!(
        (&progress["min"], answer.header("x-varve-replay-state")),
        (&0.into(), "done"),
        "{progress}"
    );
    assert!(
        progress["max"].as_u64() > Some(0) && progress["max"] == progress["current"],
        "{progress}"
    );
    assert_eq!(
        counted(&count(&server, end)),
        Some((N_SERIES * end).to_string())
    );
    assert_eq!(
        server.metric("varve_tsdb_replayed_samples"),
        (N_SERIES * end) as f64
    );
}

#[test]
fn partial_results_are_returned_at_once_with_a_warning() {
    let mut server = Server::start(&[]);
    (0..N_SAMPLES).for_each(|t| drop(server.http().write(&request(t, t + 1)).expect_status(204)));
    server.kill();
    server.restart_at_once(&[
        "--storage.wal.replay-concurrency=1",
        "--query.partial-during-replay",
    ]);
    let expected = (N_SERIES * N_SAMPLES).to_string();
    wait_until("a whole answer", || {
        let answer = count(&server, N_SAMPLES);
        if answer.status == 503 {
            return false;
        }
        let warning = &answer.json()["warnings"][0];
        let is_partial = warning
            .as_str()
            .is_some_and(|text| text.starts_with("the WAL is being replayed"));
        // An incomplete result has a warning.
        assert!(
            is_partial || counted(&answer).as_ref() == Some(&expected),
            "{answer:?}"
        );
        !is_partial
    });
}

#[test]
fn damage_found_by_the_replay_ends_a_server_with_on_corruption_refuse() {
    let mut server = Server::start(&[]);
    (0..4).for_each(|t| drop(server.http().write(&request(t, t + 1)).expect_status(204)));
    server.kill();
    let segment = samples_segment(&server.data_dir()).expect("the log has samples");
    let mut bytes = std::fs::read(&segment).expect("read a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, &bytes).expect("write a segment");
    let (status, output) = try_serve(&server.data_dir(), &["--storage.wal.on-corruption=refuse"]);
    assert!(!status.success(), "{output}");
    assert!(output.contains("is damaged at byte"), "{output}");
    assert_eq!(
        std::fs::read(&segment).expect("read a segment"),
        bytes,
        "nothing is changed"
    );
    server.restart(&[]);
    wait_until("the end of the replay", || {
        server.metric("varve_tsdb_replay_running") == 0.0
    });
    assert!(server.metric("varve_tsdb_replayed_damaged_bytes") > 0.0);
}

/// Returns a segment with samples.
fn samples_segment(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .expect("list a folder")
        .map(|entry| entry.expect("list a folder").path());
    entries.into_iter().find_map(|path| {
        if path.is_dir() {
            return samples_segment(&path);
        }
        path.file_name()?
            .to_str()?
            .starts_with("samples-")
            .then_some(path)
    })
}
