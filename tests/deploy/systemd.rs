//! The systemd unit, and what the server tells the service manager.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use super::{repository_path, text};
use crate::harness::{
    ConfigFile, Http, PATIENCE, Process, Server, missing, new_data_dir, serve_command, wait_until,
};

const UNIT: &str = "docs/deploy/systemd/varve.service";
/// Maximum exposure, times ten, as `--threshold` takes it.
const EXPOSURE_MAX: u32 = 15;

/// A service manager's socket.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// Listens on an abstract address, which `NOTIFY_SOCKET` names with `@`.
    fn start(name: &str) -> (Self, String) {
        let name = format!("varve-test-{}-{name}", std::process::id());
        let socket =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        (Self { socket }, format!("@{name}"))
    }

    /// Returns the next message that begins with one of `prefixes`.
    fn next(&self, prefixes: &[&str]) -> String {
        let mut buffer = [0; 4096];
        loop {
            let size = self
                .socket
                .recv(&mut buffer)
                .unwrap_or_else(|e| panic!("{e} while waiting for {prefixes:?}"));
            let message = String::from_utf8(buffer[..size].to_vec()).unwrap();
            if prefixes.iter().any(|prefix| message.starts_with(prefix)) {
                return message;
            }
        }
    }
}

#[test]
fn service_manager_sees_start_reload_watchdog_and_stop() {
    let (manager, name) = Manager::start("life");
    let config = ConfigFile::new("global: {external_labels: {a: b}}");
    let (_dir, data_dir) = new_data_dir();
    let mut command = serve_command(&data_dir, &[&config.flag()]);
    command
        .env("NOTIFY_SOCKET", &name)
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID");
    let mut server = Process::start("varve", &mut command);
    assert_eq!(manager.next(&["READY", "RELOADING", "STOPPING"]), "READY=1");
    assert_eq!(manager.next(&["STATUS=Ready"]), "STATUS=Ready");
    assert_eq!(manager.next(&["WATCHDOG"]), "WATCHDOG=1");

    server.signal("HUP");
    let reloading = manager.next(&["READY", "RELOADING", "STOPPING"]);
    let micros: u64 = reloading
        .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
        .unwrap()
        .parse()
        .unwrap();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime_s: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    // The machine has not been suspended for long, and the test not for a minute.
    assert!(
        micros as f64 / 1e6 <= uptime_s + 0.1,
        "{micros} after {uptime_s} s"
    );
    assert_eq!(manager.next(&["READY", "RELOADING", "STOPPING"]), "READY=1");

    // A reload that fails ends the state, too.
    config.write("nonsense: 1");
    server.signal("HUP");
    assert!(
        manager
            .next(&["READY", "RELOADING", "STOPPING"])
            .starts_with("RELOADING=1\n")
    );
    assert_eq!(manager.next(&["READY", "RELOADING", "STOPPING"]), "READY=1");

    assert!(server.terminate().success());
    assert_eq!(
        manager.next(&["READY", "RELOADING", "STOPPING"]),
        "STOPPING=1"
    );
}

#[test]
fn status_shows_the_progress_of_a_long_replay() {
    use crate::harness::{WriteRequest, now_ms, series};

    let mut server = Server::start(&["--storage.tsdb.shards=1"]);
    let now_ms = now_ms();
    for round in 0..40_i64 {
        let samples: Vec<_> = (0..500)
            .map(|i| (now_ms - 3_000_000 + (round * 500 + i) * 100, i as f64))
            .collect();
        let all = (0..20).map(|pod| {
            series(
                &[("__name__", "load"), ("pod", &format!("pod-{pod}"))],
                &samples,
            )
        });
        server
            .http()
            .write(&WriteRequest::new(all))
            .expect_status(204);
    }
    server.kill();
    let (manager, name) = Manager::start("replay");
    let mut command = serve_command(&server.data_dir(), &["--storage.wal.replay-concurrency=1"]);
    let _server = Process::start(
        "varve",
        command
            .env("NOTIFY_SOCKET", &name)
            .env_remove("WATCHDOG_USEC"),
    );
    assert_eq!(
        manager.next(&["STATUS"]),
        "STATUS=Loading the series of the write-ahead log"
    );
    // The replay may end before the first report of its progress.
    let status = manager.next(&["STATUS=Ready"]);
    assert!(
        status == "STATUS=Ready"
            || status.starts_with("STATUS=Ready, replaying the write-ahead log: "),
        "{status}"
    );
    if status != "STATUS=Ready" {
        assert!(status.contains('%') || status.contains("of"), "{status}");
    }
}

#[test]
fn a_path_as_notify_socket_works_and_a_wrong_one_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (_dir, data_dir) = new_data_dir();
    let mut server = Process::start(
        "varve",
        serve_command(&data_dir, &[]).env("NOTIFY_SOCKET", &path),
    );
    let mut buffer = [0; 64];
    let size = socket.recv(&mut buffer).unwrap();
    assert!(
        buffer[..size].starts_with(b"STATUS="),
        "{:?}",
        path.as_os_str().as_bytes()
    );
    assert!(server.terminate().success());

    let (_dir, data_dir) = new_data_dir();
    let mut server = Process::start(
        "varve",
        serve_command(&data_dir, &[]).env("NOTIFY_SOCKET", dir.path().join("no")),
    );
    server.listening_address();
    assert!(server.terminate().success());
    assert!(
        server
            .whole_output()
            .contains("Cannot notify the service manager")
    );
}

#[test]
fn the_unit_is_valid_and_its_exposure_is_low() {
    if missing(&["systemd-analyze"]) {
        return;
    }
    let analyze = |args: &[&str], unit: &std::path::Path| {
        let output = Command::new("systemd-analyze")
            .args(args)
            .arg(unit)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let security = ["security", "--offline=true", "--no-pager", &threshold];
    let (is_low, report) = analyze(&security, &repository_path(UNIT));
    assert!(is_low, "{report}");
    let last = report
        .lines()
        .rev()
        .find(|line| line.contains("exposure level"))
        .unwrap();
    println!("{last}");

    // The program of the unit is not installed here.
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("varve.service");
    let here = text(UNIT).replace("/usr/bin/varve", env!("CARGO_BIN_EXE_varve"));
    std::fs::write(&unit, here.replace("Documentation=man:varve(1)\n", "")).unwrap();
    let (is_valid, report) = analyze(&["verify"], &unit);
    assert!(is_valid && report.is_empty(), "{report}");
}

#[test]
fn the_flags_of_the_unit_start_a_server() {
    let unit = text(UNIT);
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/varve "))
        .unwrap();
    let (_dir, data_dir) = new_data_dir();
    let args = start
        .replace("%S/varve", &data_dir.display().to_string())
        .replace("$VARVE_FLAGS", "--self-scrape-interval=0");
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    let mut server = Process::start(
        "varve",
        command
            .args(args.split(' '))
            .arg("--web.listen-address=127.0.0.1:0"),
    );
    let http = Http::new(server.listening_address());
    wait_until("the server", || http.get("/-/ready").status == 200);
    assert!(server.terminate().success());
    assert!(data_dir.join("lock").exists());
}

#[test]
fn the_unit_runs_under_a_real_systemd() {
    let script = repository_path("tests/deploy/systemd_pid1.sh");
    let output = Command::new("sh")
        .arg(script)
        .args([env!("CARGO_BIN_EXE_varve"), UNIT])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(77) => eprintln!("{text}"),
        Some(0) => assert!(
            text.contains("restarted after a kill and after a hang, and stopped"),
            "{text}"
        ),
        _ => panic!("{text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}
