//! Components of Thanos, each a process of its own.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{Answer, Http};
use super::peers::Prometheus;
use super::process::Process;
use super::{WriteRequest, missing, wait_until};

/// A running component.
#[derive(Debug)]
pub(crate) struct Thanos {
    process: Process,
    http: Http,
    grpc: SocketAddr,
    _dir: TempDir,
}

/// Returns `true` if `thanos` is missing, and prints that the test is skipped.
pub(crate) fn is_thanos_missing() -> bool {
    missing(&["thanos"])
}

impl Thanos {
    /// Starts a querier of these endpoints, and waits until it has their metadata.
    pub(crate) fn query(endpoints: &[SocketAddr], flags: &[&str]) -> Self {
        let endpoint_flags: Vec<_> = endpoints
            .iter()
            .map(|address| format!("--endpoint={address}"))
            .collect();
        let all: Vec<&str> = endpoint_flags
            .iter()
            .map(String::as_str)
            .chain(flags.iter().copied())
            .collect();
        let querier = Self::start("query", &all);
        wait_until("the querier to know its stores", || {
            querier.healthy_stores().len() == endpoints.len()
        });
        querier
    }

    /// Starts a sidecar of a Prometheus that has external labels, and waits until it has read them.
    pub(crate) fn sidecar(prometheus: &Prometheus) -> Self {
        let url = format!("--prometheus.url={}", prometheus.http().url(""));
        let data_dir = format!("--tsdb.path={}", prometheus.data_dir().display());
        Self::start("sidecar", &[&url, &data_dir])
    }

    /// Starts a router that distributes samples over these ingestors, and returns it and its
    /// remote-write client.
    pub(crate) fn router(ingestors: &[SocketAddr], flags: &[&str]) -> (Self, Http) {
        let address = free_address();
        let endpoints: Vec<_> = ingestors.iter().map(SocketAddr::to_string).collect();
        let hashring = format!("--receive.hashrings={}", json!([{"endpoints": endpoints}]));
        let listen = format!("--remote-write.address={address}");
        let own = [
            "--receive.hashrings-algorithm=ketama",
            "--label=receive=\"router\"",
            &hashring,
            &listen,
        ];
        let (router, http) = (
            Self::start("receive", &[&own, flags].concat()),
            Http::new(address),
        );
        // It is ready before it accepts writes.
        wait_until("the router to listen", || http.try_connect().is_some());
        (router, http)
    }

    /// Starts an ingestor that stores what it receives, and returns it and its remote-write client.
    pub(crate) fn ingestor() -> (Self, Http) {
        let address = free_address();
        let listen = format!("--remote-write.address={address}");
        let ingestor = Self::start(
            "receive",
            &["--tsdb.path=data", "--label=replica=\"a\"", &listen],
        );
        let http = Http::new(address);
        wait_until("the ingestor to listen", || http.try_connect().is_some());
        (ingestor, http)
    }

    /// Starts a store gateway, and waits until it has loaded the blocks of its bucket.
    pub(crate) fn store(flags: &[&str]) -> Self {
        Self::start("store", &[&["--data-dir=."], flags].concat())
    }

    fn start(component: &str, flags: &[&str]) -> Self {
        let (address, grpc, dir) = (
            free_address(),
            free_address(),
            TempDir::new().expect("make a directory"),
        );
        let mut command = Command::new("thanos");
        command.current_dir(dir.path()).arg(component).args(flags);
        command.args([
            format!("--http-address={address}"),
            format!("--grpc-address={grpc}"),
        ]);
        if component == "receive" {
            // Its default is a fixed port.
            command.arg(format!("--receive.capnproto-address={}", free_address()));
        }
        let mut process = Process::start(&format!("thanos {component}"), &mut command);
        let http = Http::new(address);
        wait_until(&format!("thanos {component} to be ready"), || {
            assert!(
                process.is_running(),
                "thanos {component} has exited:\n{}",
                process.output()
            );
            http.try_get("/-/ready")
                .is_ok_and(|answer| answer.status == 200)
        });
        Self {
            process,
            http,
            grpc,
            _dir: dir,
        }
    }

    /// Returns the stores of a querier that have no error.
    pub(crate) fn healthy_stores(&self) -> Vec<Value> {
        let stores = self.http.get("/api/v1/stores").data();
        let stores = stores
            .as_object()
            .expect("stores by type")
            .values()
            .filter_map(Value::as_array)
            .flatten();
        stores
            .filter(|store| store["lastError"].is_null())
            .cloned()
            .collect()
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    pub(crate) fn grpc_address(&self) -> SocketAddr {
        self.grpc
    }
}

/// Sends a remote write to a router.
pub(crate) fn write_to_router(router: &Http, request: &WriteRequest, tenant: &str) -> Answer {
    let headers = [
        ("content-encoding", "snappy"),
        ("content-type", "application/x-protobuf"),
        ("thanos-tenant", tenant),
    ];
    router.post("/api/v1/receive", &headers, &request.to_body())
}

/// Returns an address that no process listens on.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("find a free port");
    listener.local_addr().expect("a bound address")
}
