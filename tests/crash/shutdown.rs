//! Shutdown, and the lock of the data directory.

use std::time::{Duration, Instant};

use crate::harness::{Server, WriteRequest, series, try_serve, wait_until};

const T0: i64 = 1_700_000_000_000;

fn write(server: &Server, name: &str) {
    server
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", name)],
            &[(T0, 1.0)],
        )]))
        .expect_status(204);
}

fn names(server: &Server) -> String {
    server.http().get("/api/v1/label/__name__/values").text()
}

#[test]
fn sigterm_shuts_down_without_loss() {
    let mut server = Server::start(&[]);
    write(&server, "a");
    assert!(server.terminate().success(), "{}", server.log());
    server.restart(&[]);
    write(&server, "b");
    assert!(server.terminate().success(), "{}", server.log());
    server.restart(&[]);
    assert_eq!(names(&server), r#"{"status":"success","data":["a","b"]}"#);
}

#[test]
fn a_file_that_exceeds_its_limit_does_not_end_the_process() {
    let mut server = Server::start(&[]);
    // The kernel sends it when a write exceeds RLIMIT_FSIZE.
    server.signal("XFSZ");
    write(&server, "a");
    assert!(server.terminate().success(), "{}", server.log());
}

#[test]
fn sigterm_does_not_wait_long_for_clients() {
    let mut server = Server::start(&[]);
    // An idle connection, an incomplete request, and a client that does not read its response.
    let mut amid = server.http().connect();
    amid.send(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\nContent-Length: 10\r\n\r\nx");
    let _idle = server.http().connect();
    let mut unread = server.http().connect();
    unread.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_until("the server to see them", || {
        server.metric("varve_http_connections") >= 3.0
    });
    let started = Instant::now();
    assert!(server.terminate().success(), "{}", server.log());
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_second_process_cannot_open_the_data_directory() {
    let server = Server::start(&[]);
    write(&server, "a");
    let (status, output) = try_serve(&server.data_dir(), &[]);
    assert!(!status.success());
    assert!(output.contains("is in use by another process"), "{output}");
    assert_eq!(names(&server), r#"{"status":"success","data":["a"]}"#);
}

#[test]
fn invalid_settings_end_the_server_with_a_message() {
    let dir = tempfile::TempDir::new().expect("make a temporary directory");
    for (flags, reason) in [
        (&["--query.timeout=nonsense"][..], "--query.timeout"),
        (&["--storage.tsdb.shards=3"], "must be a power of two"),
        (&["--config.file=/dev/null/nothing"], "configuration file"),
        (&["--no.such.flag"], "--no.such.flag"),
        // It started, and could store nothing.
        (&["--memory.limit=1KiB"], "at least 16MiB"),
    ] {
        let (status, output) = try_serve(dir.path(), flags);
        assert!(!status.success(), "{flags:?}");
        assert!(output.contains(reason), "{flags:?}: {output}");
        assert!(!output.contains("panicked"), "{flags:?}: {output}");
    }
}
