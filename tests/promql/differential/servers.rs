//! The two servers that answer: they hold the same data and have the same features on.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::compare::Outcome;
use super::generator::{Question, Times};
use crate::harness::{Http, Server, WriteRequest, wait_for, wait_until};

const FEATURES: &str = "--enable-feature=promql-experimental-functions,promql-per-step-stats";

/// Both servers.
pub(super) struct Servers {
    varve: Server,
    prometheus: Prometheus,
}

impl Servers {
    pub(super) fn start(data: &WriteRequest, natives: Option<Vec<u8>>) -> Self {
        let servers = Self { varve: Server::start(&[FEATURES]), prometheus: Prometheus::start() };
        for http in [servers.varve.http(), &servers.prometheus.http] {
            let answer = http.write(data);
            assert!(matches!(answer.status, 200 | 204), "{answer:?}");
            if let Some(body) = &natives {
                let answer = http.write_body(body);
                assert!(matches!(answer.status, 200 | 204), "{answer:?}");
            }
        }
        servers
    }

    pub(super) fn ask_varve(&self, question: &Question) -> Outcome {
        ask(self.varve.http(), question)
    }

    pub(super) fn ask_prometheus(&self, question: &Question) -> Outcome {
        ask(&self.prometheus.http, question)
    }
}

fn ask(http: &Http, Question { query, times }: &Question) -> Outcome {
    let seconds = |ms: i64| format!("{}.{:03}", ms / 1000, ms % 1000);
    Outcome::of(&match *times {
        Times::Instant { time_ms } => {
            http.form("/api/v1/query", &[("query", query), ("time", &seconds(time_ms)), ("stats", "all")])
        }
        Times::Range { start_ms, end_ms, step_ms } => {
            let [start, end, step] = [start_ms, end_ms, step_ms].map(seconds);
            let params =
                [("query", query.as_str()), ("start", &start), ("end", &end), ("step", &step), ("stats", "all")];
            http.form("/api/v1/query_range", &params)
        }
    })
}

/// A real Prometheus with experimental functions, which the harness' does not have.
struct Prometheus {
    http: Http,
    child: Child,
    _dir: TempDir,
}

impl Prometheus {
    fn start() -> Self {
        let dir = TempDir::new().expect("make a temporary directory");
        let (config, log) = (dir.path().join("prometheus.yml"), dir.path().join("log"));
        std::fs::write(&config, "global: {}\n").expect("write the configuration");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .args(["--web.listen-address=127.0.0.1:0", "--web.enable-remote-write-receiver", FEATURES])
            .arg("--enable-feature=native-histograms")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("create the log"))
            .spawn()
            .expect("start prometheus");
        let address = wait_for("prometheus to listen", || {
            std::fs::read_to_string(&log).ok()?.lines().find_map(listening_address)
        });
        let http = Http::new(address);
        wait_until("prometheus to be ready", || http.try_get("/-/ready").is_ok_and(|answer| answer.status == 200));
        Self { http, child, _dir: dir }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Finds the address in a line such as `msg="Listening on" address=127.0.0.1:9090`; a first line has port 0.
fn listening_address(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.split_once("istening")?.1.split_once("address=")?;
    address.split_whitespace().next()?.parse().ok().filter(|address: &SocketAddr| address.port() != 0)
}
