//! A child process. Its output is printed if the test fails, and it is killed when its handle is
//! dropped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::wait_for;

/// Maximum number of retained lines of output; the newest are retained.
const LINES_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    output: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a program; `name` is the title of its output.
    pub(crate) fn start(name: &str, command: &mut Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let output = Arc::default();
        let stdout = keep(child.stdout.take().expect("it is piped"), &output);
        let stderr = keep(child.stderr.take().expect("it is piped"), &output);
        Self {
            name: name.to_owned(),
            child,
            output,
            readers: vec![stdout, stderr],
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time of the process so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("read /proc");
        let fields = stat
            .rsplit(") ")
            .next()
            .expect("the name is in parentheses")
            .split(' ');
        // User and system time, in ticks of 10 ms.
        fields
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<f64>().expect("a number") / 100.0)
            .sum()
    }

    /// Returns the largest resident size of the process so far, in bytes.
    pub(crate) fn resident_size_max(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("read /proc");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .expect("a process has a resident size");
        line.trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .expect("VmHWM is a number of kB")
            << 10
    }

    /// Makes [`Self::resident_size_max`] the maximum from now on.
    pub(crate) fn forget_resident_size_max(&self) {
        let path = format!("/proc/{}/clear_refs", self.id());
        std::fs::write(path, "5").expect("reset VmHWM");
    }

    /// Returns the retained output.
    pub(crate) fn output(&self) -> String {
        let lines = self.output.lock().unwrap();
        lines
            .iter()
            .flat_map(|line| [line.as_str(), "\n"])
            .collect()
    }

    /// Returns the complete retained output; the process must have exited.
    pub(crate) fn whole_output(&mut self) -> String {
        self.readers
            .drain(..)
            .for_each(|reader| reader.join().expect("a reader does not panic"));
        self.output()
    }

    /// Waits until the process logs its listening address, and returns it.
    pub(crate) fn listening_address(&mut self) -> SocketAddr {
        let name = self.name.clone();
        wait_for(&format!("{name} to listen"), || {
            assert!(self.is_running(), "{name} has ended:\n{}", self.output());
            self.output
                .lock()
                .unwrap()
                .iter()
                .find_map(|line| listening_address(line))
        })
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("ask for the state of a child")
            .is_none()
    }

    /// Sends SIGKILL, which no process can catch, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill a child");
        self.child.wait().expect("wait for a child");
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Sends a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -\"$1\" \"$0\"", &id, name])
            .status()
            .expect("run sh");
        assert!(sent.success(), "send SIG{name} to {}", self.name);
    }

    /// Waits for the exit.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let what = format!("{} to end", self.name);
        wait_for(&what, || {
            self.child.try_wait().expect("ask for the state of a child")
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- output of {}\n{}---", self.name, self.output());
        }
    }
}

/// Reads a pipe on a thread of its own, so that the process never blocks.
fn keep(pipe: impl Read + Send + 'static, output: &Arc<Mutex<VecDeque<String>>>) -> JoinHandle<()> {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let mut output = output.lock().unwrap();
            if output.len() == LINES_MAX {
                output.pop_front();
            }
            output.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    })
}

/// Returns the address in a log line such as `msg="Listening on" address=127.0.0.1:9090`.
fn listening_address(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.split_once("istening")?.1.split_once("address=")?;
    let address: SocketAddr = address
        .split_whitespace()
        .next()?
        .trim_matches('"')
        .parse()
        .ok()?;
    // Prometheus first logs the requested port, 0.
    (address.port() != 0).then_some(address)
}
