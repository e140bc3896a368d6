//! A Varve server on a free port with its own data directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use tempfile::TempDir;

use super::cgroup::MemoryGroup;
use super::http::{Access, Http};
use super::process::Process;
use super::wait_until;

/// A running `varve serve`; it is killed and its data removed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    http: Http,
    dir: TempDir,
}

impl Server {
    /// Starts a server and waits until it is ready. Without self-scrape unless a flag enables it,
    /// so that the store contains only what the test writes.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_as(flags, &Access::default())
    }

    /// As [`Self::start`], on a data directory that `fill` creates.
    pub(crate) fn start_on(flags: &[&str], fill: impl FnOnce(&Path)) -> Self {
        let (dir, data_dir) = new_data_dir();
        fill(&data_dir);
        Self::run(&mut serve_command(&data_dir, flags), dir, Http::new)
    }

    /// As [`Self::start`], for a server with TLS or authentication.
    pub(crate) fn start_as(flags: &[&str], access: &Access) -> Self {
        Self::start_with(flags, |address| Http::of(address, access))
    }

    /// As [`Self::start`], for another build of the program.
    pub(crate) fn start_program(program: &Path, flags: &[&str]) -> Self {
        let (dir, data_dir) = new_data_dir();
        let mut other = Command::new(program);
        other.args(serve_command(&data_dir, flags).get_args());
        Self::run(&mut other, dir, Http::new)
    }

    /// As [`Self::start`], with another client.
    pub(crate) fn start_with(flags: &[&str], http: impl FnOnce(SocketAddr) -> Http) -> Self {
        let (dir, data_dir) = new_data_dir();
        Self::run(&mut serve_command(&data_dir, flags), dir, http)
    }

    /// Starts a server whose data directory is a tmpfs of the given size, which ends with the
    /// process. Returns `None` if the system cannot mount one.
    pub(crate) fn start_on_small_disk(size: &str, flags: &[&str]) -> Option<Self> {
        let (dir, data_dir) = new_data_dir();
        Self::run_beside_small_disk(size, &data_dir.clone(), (dir, data_dir), flags)
    }

    /// As [`Self::start_on_small_disk`], with the tmpfs in another directory. [`Self::root`] leads
    /// to it.
    pub(crate) fn start_beside_small_disk(size: &str, disk: &Path, flags: &[&str]) -> Option<Self> {
        Self::run_beside_small_disk(size, disk, new_data_dir(), flags)
    }

    fn run_beside_small_disk(
        size: &str,
        disk: &Path,
        (dir, data_dir): (TempDir, PathBuf),
        flags: &[&str],
    ) -> Option<Self> {
        const MOUNT: &str = r#"mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@""#;
        std::fs::create_dir_all(disk).expect("make a directory");
        let unshare = |program: &Command| {
            let mut command = Command::new("unshare");
            command
                .args(["-rm", "sh", "-c", MOUNT, "sh", size])
                .arg(disk)
                .arg(program.get_program());
            command.args(program.get_args());
            command
        };
        if !unshare(&Command::new("true"))
            .status()
            .is_ok_and(|status| status.success())
        {
            varve_oracle::unsupported(&format!("cannot mount a disk of {size}"));
            return None;
        }
        Some(Self::run(
            &mut unshare(&serve_command(&data_dir, flags)),
            dir,
            Http::new,
        ))
    }

    /// Starts a server in a cgroup.
    pub(crate) fn start_in(group: &MemoryGroup, flags: &[&str]) -> Self {
        let (dir, data_dir) = new_data_dir();
        Self::run(
            &mut group.wrap(&serve_command(&data_dir, flags)),
            dir,
            Http::new,
        )
    }

    /// Runs a command that starts a server with its data in `dir`, and waits until it is ready.
    fn run(command: &mut Command, dir: TempDir, http: impl FnOnce(SocketAddr) -> Http) -> Self {
        let (process, http) = wait_for_ready(Process::start("varve", command), http);
        Self { process, http, dir }
    }

    /// Starts a server on the same directory; the old one must have exited.
    pub(crate) fn restart(&mut self, flags: &[&str]) {
        assert!(!self.process.is_running(), "two servers on one directory");
        let process = Process::start("varve", &mut serve_command(&self.data_dir(), flags));
        (self.process, self.http) = wait_for_ready(process, Http::new);
    }

    /// As [`Self::restart`], but returns as soon as the server listens.
    pub(crate) fn restart_at_once(&mut self, flags: &[&str]) {
        assert!(!self.process.is_running(), "two servers on one directory");
        self.process = Process::start("varve", &mut serve_command(&self.data_dir(), flags));
        self.http = Http::new(self.process.listening_address());
    }

    /// As [`Self::restart`], but kills the server after `life`, ready or not.
    pub(crate) fn restart_and_kill(&mut self, flags: &[&str], life: Duration) {
        assert!(!self.process.is_running(), "two servers on one directory");
        self.process = Process::start("varve", &mut serve_command(&self.data_dir(), flags));
        std::thread::sleep(life);
        self.process.kill();
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.process.terminate()
    }

    /// Waits for the exit of the process.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Sends a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    pub(crate) fn log(&self) -> String {
        self.process.output()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns one of the server's metrics, such as `varve_requests_active{class="query"}`.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.http.get("/metrics").expect_status(200).text();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("{series} is not in\n{text}"))
            .parse()
            .expect("a metric's value is a number")
    }

    /// Returns a path as the process sees it, in its mount namespace.
    pub(crate) fn root(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{}/root{}",
            self.process.id(),
            path.display()
        ))
    }

    /// Changes the size of the disk of [`Self::start_beside_small_disk`].
    pub(crate) fn resize_disk(&self, disk: &Path, size: &str) {
        let mut command = Command::new("nsenter");
        command.args([
            "--preserve-credentials",
            "-U",
            "-m",
            "-t",
            &self.process.id().to_string(),
        ]);
        command
            .args(["mount", "-o", &format!("remount,size={size}")])
            .arg(disk);
        assert!(
            command.status().expect("run nsenter").success(),
            "{command:?}"
        );
    }

    /// Returns the size of the reserve for a full disk.
    pub(crate) fn reserve_size(&self) -> u64 {
        std::fs::metadata(self.root(&self.data_dir().join("wal/reserve")))
            .map_or(0, |metadata| metadata.len())
    }

    /// Returns the resident size of the process in bytes.
    pub(crate) fn resident_size(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))
            .expect("read /proc");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("a process has a resident size");
        let kib: u64 = line
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("VmRSS is a number of kB");
        kib << 10
    }
}

/// Returns a temporary directory and the path of the data directory in it.
pub(crate) fn new_data_dir() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("make a temporary directory");
    let data_dir = dir.path().join("data");
    (dir, data_dir)
}

fn wait_for_ready(mut process: Process, http: impl FnOnce(SocketAddr) -> Http) -> (Process, Http) {
    let http = http(process.listening_address());
    wait_until("varve to be ready", || {
        assert!(
            process.is_running(),
            "varve has exited:\n{}",
            process.output()
        );
        http.try_get("/-/ready")
            .is_ok_and(|answer| answer.status == 200)
    });
    (process, http)
}

/// Returns the command that starts a server, on a free port unless a flag has another.
pub(crate) fn serve_command(data_dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.arg("serve");
    for default in [
        "--web.listen-address=127.0.0.1:0",
        "--self-scrape-interval=0",
    ] {
        let (name, _) = default.split_once('=').expect("a flag with a value");
        if !flags.iter().any(|flag| flag.starts_with(name)) {
            command.arg(default);
        }
    }
    command
        .arg(format!("--storage.tsdb.path={}", data_dir.display()))
        .args(flags);
    command
}

/// Starts a server that is expected to fail, and returns its exit status and output.
pub(crate) fn try_serve(data_dir: &Path, flags: &[&str]) -> (ExitStatus, String) {
    let mut process = Process::start("varve", &mut serve_command(data_dir, flags));
    let status = process.wait();
    (status, process.whole_output())
}
