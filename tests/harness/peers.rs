//! The real programs that Varve works with: Prometheus, promtool, the node exporter. Tests are
//! skipped if a program that they need is not on the PATH. All versions of Prometheus have the same
//! name, so the whole PATH is searched for them.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;
use varve_oracle::{find_all, missing};

use super::http::Http;
use super::process::Process;
use super::wait_until;

/// Returns a Python that can import these modules. If there is none, prints that the test is
/// skipped.
pub(crate) fn python_with(modules: &str) -> Option<String> {
    let python = std::env::var("VARVE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let imported = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .output();
    let is_found = imported.is_ok_and(|output| output.status.success());
    if !is_found {
        varve_oracle::skip(&format!("{python} has no {modules} (VARVE_TEST_PYTHON)"));
    }
    is_found.then_some(python)
}

fn find(program: &str) -> Option<PathBuf> {
    find_all(program).next()
}

/// A version of Prometheus on the PATH.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    /// Major and minor version.
    pub(crate) version: (u32, u32),
    program: PathBuf,
}

/// The releases that a difference between Varve and Prometheus concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Releases {
    All,
    /// Releases before 3.16, which Varve follows.
    Older,
    /// 3.16 and later ones.
    Newest,
}

static RELEASES: LazyLock<Vec<Release>> = LazyLock::new(|| {
    let mut releases: Vec<_> = find_all("prometheus").filter_map(Release::of).collect();
    // The sort is stable: of two programs of a version the first on the PATH remains.
    releases.sort_by_key(|release| std::cmp::Reverse(release.version));
    releases.dedup_by_key(|release| release.version);
    releases
});

/// Returns the releases on the PATH, the newest first, one per minor version. If there is none,
/// prints that the test is skipped.
pub(crate) fn releases() -> &'static [Release] {
    if missing(&["prometheus"]) {
        &[]
    } else {
        &RELEASES
    }
}

impl Release {
    fn of(program: PathBuf) -> Option<Self> {
        let version = varve_oracle::version(&program)?;
        let is_usable = !varve_oracle::is_too_old("prometheus", version);
        is_usable.then_some(Self { version, program })
    }

    /// Returns `true` if a difference that concerns `releases` concerns this one.
    pub(crate) fn is_of(&self, releases: Releases) -> bool {
        match releases {
            Releases::All => true,
            Releases::Older => self.version < (3, 16),
            Releases::Newest => self.version >= (3, 16),
        }
    }

    /// Returns `true` if the program has a flag; some distributions build it without some features.
    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        let help = Command::new(&self.program)
            .arg("--help")
            .output()
            .expect("run prometheus");
        let help = String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).into_owned();
        // The help shows a switch as --[no-]NAME.
        help.contains(flag) || help.contains(&flag.replacen("--", "--[no-]", 1))
    }

    /// Starts a Prometheus that accepts remote writes, and waits until it is ready.
    pub(crate) fn start(&self, config: &str, flags: &[&str]) -> Prometheus {
        self.start_below("", config, flags)
    }

    /// As [`Self::start`], for a Prometheus that serves below a prefix.
    pub(crate) fn start_below(&self, prefix: &str, config: &str, flags: &[&str]) -> Prometheus {
        Prometheus::run(&self.program, prefix, config, flags, |_| {})
    }
}

/// A running Prometheus with its own data directory.
#[derive(Debug)]
pub(crate) struct Prometheus {
    http: Http,
    process: Process,
    dir: TempDir,
}

impl Prometheus {
    /// Starts the newest Prometheus on the PATH. It accepts remote writes. Waits until it is ready.
    pub(crate) fn start(config: &str, flags: &[&str]) -> Self {
        Self::start_on(config, flags, |_| {})
    }

    /// As [`Self::start`], on a data directory that `fill` creates.
    pub(crate) fn start_on(config: &str, flags: &[&str], fill: impl FnOnce(&Path)) -> Self {
        Self::run(
            &RELEASES
                .first()
                .expect("the test has looked for one")
                .program,
            "",
            config,
            flags,
            fill,
        )
    }

    fn run(
        program: &Path,
        prefix: &str,
        config: &str,
        flags: &[&str],
        fill: impl FnOnce(&Path),
    ) -> Self {
        let dir = TempDir::new().expect("make a temporary directory");
        fill(&dir.path().join("data"));
        let config_file = dir.path().join("prometheus.yml");
        std::fs::write(&config_file, config).expect("write the configuration");
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .args([
                "--web.listen-address=127.0.0.1:0",
                "--web.enable-remote-write-receiver",
                "--web.enable-lifecycle",
            ])
            .args(flags);
        let mut process = Process::start("prometheus", &mut command);
        let http = Http::new(process.listening_address()).below(prefix);
        wait_until("prometheus to be ready", || {
            assert!(
                process.is_running(),
                "prometheus has exited:\n{}",
                process.output()
            );
            http.try_get("/-/ready")
                .is_ok_and(|answer| answer.status == 200)
        });
        Self { http, process, dir }
    }

    /// Reloads with another configuration.
    pub(crate) fn reload(&self, config: &str) {
        std::fs::write(self.dir.path().join("prometheus.yml"), config)
            .expect("write the configuration");
        let answer = self.http.post("/-/reload", &[], b"");
        assert_eq!(answer.status, 200, "{answer:?}\n{}", self.process.output());
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }
}

/// A running node exporter.
#[derive(Debug)]
pub(crate) struct NodeExporter {
    address: SocketAddr,
    _process: Process,
}

impl NodeExporter {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("prometheus-node-exporter");
        command.arg("--web.listen-address=127.0.0.1:0");
        let mut process = Process::start("node exporter", &mut command);
        Self {
            address: process.listening_address(),
            _process: process,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running VictoriaMetrics with its own data directory.
#[derive(Debug)]
pub(crate) struct VictoriaMetrics {
    http: Http,
    _process: Process,
    _dir: TempDir,
}

impl VictoriaMetrics {
    /// Starts `victoria-metrics`. The test has looked for it.
    pub(crate) fn start() -> Self {
        let dir = TempDir::new().expect("make a temporary directory");
        // It does not log the port that it has got for port 0.
        let free = TcpListener::bind("127.0.0.1:0").expect("bind a port");
        let address = free.local_addr().expect("a listener has an address");
        drop(free);
        let mut command = Command::new("victoria-metrics");
        command
            .arg(format!("-storageDataPath={}", dir.path().display()))
            .arg(format!("-httpListenAddr={address}"))
            .args([
                "-loggerFormat=json",
                "-search.latencyOffset=0s",
                "-memory.allowedBytes=64MB",
            ]);
        let process = Process::start("victoria-metrics", &mut command);
        let http = Http::new(address);
        wait_until("victoria-metrics to be ready", || {
            http.try_get("/health")
                .is_ok_and(|answer| answer.status == 200)
        });
        Self {
            http,
            _process: process,
            _dir: dir,
        }
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    /// Makes all received samples visible to queries.
    pub(crate) fn flush(&self) {
        self.http.get("/internal/force_flush").expect_status(200);
    }
}

/// A running Alertmanager with its own data directory. It notifies nobody.
#[derive(Debug)]
pub(crate) struct Alertmanager {
    http: Http,
    _process: Process,
    _dir: TempDir,
}

impl Alertmanager {
    /// Starts `prometheus-alertmanager`. The test has looked for it.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Starts it with further lines of its configuration file.
    pub(crate) fn start_with(lines: &str) -> Self {
        // Distributions compile in the path of the templates. It is mounted if the package is
        // unpacked elsewhere.
        const MOUNT: &str = r#"mount -t tmpfs none /usr/share && ln -s "$1" /usr/share/prometheus && shift && exec "$@""#;
        let dir = TempDir::new().expect("make a temporary directory");
        let config_file = dir.path().join("alertmanager.yml");
        let config = format!("route: {{receiver: nobody}}\nreceivers: [{{name: nobody}}]\n{lines}");
        std::fs::write(&config_file, config).expect("write the configuration");
        let program = find("prometheus-alertmanager").expect("the test has looked for one");
        let templates = program
            .parent()
            .and_then(Path::parent)
            .expect("it is in bin")
            .join("share/prometheus");
        let mut command = if templates.exists() && !Path::new("/usr/share/prometheus").exists() {
            let mut command = Command::new("unshare");
            command
                .args(["-rm", "sh", "-c", MOUNT, "sh"])
                .args([&templates, &program]);
            command
        } else {
            Command::new(&program)
        };
        command
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!(
                "--storage.path={}",
                dir.path().join("data").display()
            ))
            .args([
                "--web.listen-address=127.0.0.1:0",
                "--cluster.listen-address=",
            ]);
        let mut process = Process::start("alertmanager", &mut command);
        let http = Http::new(process.listening_address());
        wait_until("alertmanager to be ready", || {
            http.try_get("/-/ready")
                .is_ok_and(|answer| answer.status == 200)
        });
        Self {
            http,
            _process: process,
            _dir: dir,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Returns all alerts that are not resolved.
    pub(crate) fn alerts(&self) -> Vec<Value> {
        let alerts = self.http.get("/api/v2/alerts").expect_status(200).json();
        alerts.as_array().expect("a list of alerts").clone()
    }

    /// Sends alerts, as a server with rules does.
    pub(crate) fn post(&self, alerts: &Value) {
        let json = [("Content-Type", "application/json")];
        let body = alerts.to_string();
        self.http
            .post("/api/v2/alerts", &json, body.as_bytes())
            .expect_status(200);
    }

    /// Returns what amtool prints as JSON for a query.
    pub(crate) fn amtool(&self, args: &[&str]) -> Value {
        let url = format!("--alertmanager.url={}", self.http.url(""));
        let output = Command::new("amtool")
            .args(["--output=json", &url])
            .args(args)
            .output()
            .expect("run amtool");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }
}

/// Runs promtool.
pub(crate) fn promtool(args: &[&str]) -> Output {
    Command::new("promtool")
        .args(args)
        .output()
        .expect("run promtool")
}
