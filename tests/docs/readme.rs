//! The commands of README.md, run as they are printed, with real Prometheus programs.
//!
//! They run in a process and network namespace of their own: `pgrep` finds only their servers, and
//! their ports are free. `cargo run --release --` is the tested program.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use varve_oracle::missing;

use super::blocks::{blocks, can_isolate, programs, repository_path};

/// Until the output of a command is as printed.
const PATIENCE: Duration = Duration::from_secs(180);
/// The exit code of checks that found only violations of conventions.
const LINT: i32 = 3;
/// "Two minutes after Prometheus started, kill Varve".
const BEFORE_KILL: Duration = Duration::from_secs(120);
/// A command of a block, and the lines that the page prints below it.
#[derive(Debug, Default)]
struct Step {
    command: String,
    printed: Vec<String>,
}

/// A shell in namespaces of its own. All its processes end with it.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Returns the commands of a block of the language `console`.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step {
                command: command.to_owned(),
                printed: Vec::new(),
            }),
            (None, Some(step)) if step.command.ends_with('\\') && step.printed.is_empty() => {
                step.command = format!("{}\n{line}", step.command);
            }
            (None, Some(step)) if !line.is_empty() => step.printed.push(line.to_owned()),
            _ => {}
        }
    }
    steps
}

/// Returns lines in order, with `#` for each number but a value of a result without labels: times,
/// CPU seconds and the number of CPUs differ from run to run.
fn comparable(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let mut all: Vec<String> = lines
        .into_iter()
        .filter(|line| !line.as_ref().trim().is_empty())
        .map(|line| {
            let line = line.as_ref().trim_end();
            let fixed = if line.starts_with("{} => ") {
                line.find('@').unwrap_or(line.len())
            } else {
                0
            };
            let (fixed, rest) = line.split_at(fixed);
            let mut masked = fixed.to_owned();
            for c in rest.chars() {
                match c {
                    '0'..='9' | '.' if masked.ends_with('#') => {}
                    '0'..='9' => masked.push('#'),
                    c => masked.push(c),
                }
            }
            masked
        })
        .collect();
    all.sort();
    all
}

impl Shell {
    fn start(dir: &Path, path: &str) -> Self {
        let mut child = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(["bash", "--norc"])
            .current_dir(dir)
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a shell");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut shell = Self {
            child,
            input,
            output,
        };
        shell.expect("ip link set lo up");
        shell
    }

    /// Runs a command and returns its exit code and what it printed, which may end without a line
    /// feed.
    fn run(&mut self, command: &str) -> (i32, String) {
        writeln!(
            self.input,
            "{{ {command}\n}} 2>&1; printf '\\nended: %s\\n' $?"
        )
        .expect("write");
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            let n_read = self.output.read_line(&mut line).expect("read");
            assert!(n_read > 0, "the shell ended after {command}: {printed}");
            match line.strip_prefix("ended: ") {
                Some(code) => return (code.trim().parse().expect("a number"), printed),
                None => printed.push_str(&line),
            }
        }
    }

    /// Runs a command, which must succeed.
    fn expect(&mut self, command: &str) -> String {
        let (code, printed) = self.run(command);
        assert_eq!(code, 0, "{command}: {printed}");
        printed
    }

    /// Runs a command in the background.
    fn spawn(&mut self, command: &str, log: &str) {
        let (code, printed) = self.run(&format!("{command} >{log} 2>&1 &"));
        assert_eq!(code, 0, "{command}: {printed}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command until its output is as printed.
fn run_until_alike(shell: &mut Shell, step: &Step) {
    let started = Instant::now();
    loop {
        let (code, printed) = shell.run(&step.command);
        let is_alike = comparable(printed.lines()) == comparable(&step.printed);
        // Names of Prometheus' own metrics do not follow all conventions that the command checks.
        let has_run = code == 0 || (code == LINT && step.command.contains(" check metrics "));
        if has_run && (step.printed.is_empty() || is_alike) {
            return;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{step:?} printed, with exit code {code}:\n{printed}"
        );
        thread::sleep(Duration::from_secs(1));
    }
}

/// Waits until a log has the messages of the printed lines.
fn check_log(dir: &Path, log: &str, step: &Step) {
    let started = Instant::now();
    for line in &step.printed {
        let Some((_, message)) = line.split_once("msg=\"") else {
            continue;
        };
        let message = message.split('"').next().unwrap_or(message);
        while !fs::read_to_string(dir.join(log)).is_ok_and(|text| text.contains(message)) {
            assert!(started.elapsed() < PATIENCE, "{log} has no {message:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Starts a server of another user of the machine, newer than that of the page.
fn start_other_server(shell: &mut Shell, dir: &Path) {
    let flags = "--storage.tsdb.path=other --web.listen-address=127.0.0.1:0";
    shell.spawn(&format!("varve serve {flags}"), "other.log");
    let step = Step {
        command: String::new(),
        printed: vec!["msg=\"Server is ready to receive web requests.\"".to_owned()],
    };
    check_log(dir, "other.log", &step);
}

#[test]
fn the_commands_of_the_readme_work_as_printed() {
    let exporter = "prometheus-node-exporter";
    if missing(&["prometheus", "promtool", exporter]) || !can_isolate() {
        return;
    }
    let page = fs::read_to_string(repository_path("README.md")).expect("read the README");
    let [dir, bin] = [(); 2].map(|()| TempDir::new().expect("make a directory"));
    symlink(repository_path("docs"), dir.path().join("docs")).expect("link the docs");
    let path = programs(bin.path());
    let mut shell = Shell::start(dir.path(), &path);
    let (mut n_run, mut n_not_run, mut n_servers) = (0, 0, 0);
    let mut prometheus_started = None;
    for block in blocks(&page) {
        if block.not_run.is_some() {
            n_not_run += 1;
            continue;
        }
        n_run += 1;
        if block.language == "yaml" {
            let name = block
                .before
                .rsplit('`')
                .nth(1)
                .expect("its text names the file");
            fs::write(dir.path().join(name), &block.text).expect("write the file");
            continue;
        }
        assert_eq!(block.language, "console", "{}", block.text);
        if block.before.ends_with("if no server has it open:") {
            shell.expect("kill -INT $(pgrep -nx varve); while pgrep -x varve; do sleep 0.1; done");
        }
        for step in steps(&block.text) {
            if step.command.ends_with(" -- serve") {
                n_servers += 1;
                let log = format!("serve-{n_servers}.log");
                shell.spawn(&step.command, &log);
                check_log(dir.path(), &log, &step);
            } else if let Some(command) = step.command.strip_suffix(" &") {
                shell.spawn(command, "background.log");
                prometheus_started = Some(Instant::now());
            } else {
                let is_kill = step.command.starts_with("kill ");
                if is_kill {
                    let started = prometheus_started.expect("Prometheus has started");
                    thread::sleep(BEFORE_KILL.saturating_sub(started.elapsed()));
                    start_other_server(&mut shell, dir.path());
                }
                run_until_alike(&mut shell, &step);
                if is_kill {
                    // The command has not killed it.
                    shell.expect("kill $(cat other/lock)");
                }
            }
        }
    }
    println!("{n_run} blocks run, {n_not_run} are marked as not run");
    assert!(
        n_run == 8 && n_servers == 2 && n_not_run == 1,
        "{n_run} {n_servers} {n_not_run}"
    );
}
