//! A cgroup with a memory limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::wait_until;

/// A cgroup that is removed on drop; the processes in it must have ended.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    dir: PathBuf,
}

/// A version of cgroups: the root, the file of the limit, and the file that counts kills.
struct Version {
    root: &'static str,
    limit: &'static str,
    kills: &'static str,
}

const VERSION_1: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    kills: "memory.oom_control",
};
const VERSION_2: Version = Version {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    kills: "memory.events",
};

impl MemoryGroup {
    /// Creates a group below the group of this process. Returns `None` and prints why the test is
    /// skipped if that is not permitted.
    pub(crate) fn make(limit_bytes: u64) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let made = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, group) = (fields.next()?, fields.next()?);
            let version = match controllers {
                "" => VERSION_2,
                _ if controllers.split(',').any(|name| name == "memory") => VERSION_1,
                _ => return None,
            };
            Self::below(
                &Path::new(version.root).join(group.trim_start_matches('/')),
                &version,
                limit_bytes,
            )
        });
        if made.is_none() {
            varve_oracle::unsupported("cannot create a cgroup with a memory limit");
        }
        made
    }

    fn below(own: &Path, version: &Version, limit_bytes: u64) -> Option<Self> {
        let thread = std::thread::current()
            .name()
            .unwrap_or("test")
            .replace("::", "-");
        let group = Self {
            dir: own.join(format!("varve-{}-{thread}", std::process::id())),
        };
        fs::create_dir(&group.dir).ok()?;
        let limit = group.dir.join(version.limit);
        fs::write(&limit, limit_bytes.to_string()).ok()?;
        let is_set = fs::read_to_string(limit).ok()?.trim() == limit_bytes.to_string();
        (is_set && group.dir.join(version.kills).exists()).then_some(group)
    }

    /// Wraps a command: its process enters the group before it executes the program.
    pub(crate) fn wrap(&self, program: &Command) -> Command {
        const ENTER: &str = r#"echo $$ > "$1/cgroup.procs" && shift && exec "$@""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", ENTER, "sh"])
            .arg(&self.dir)
            .arg(program.get_program())
            .args(program.get_args());
        command
    }

    /// Returns the number of processes of the group that the OOM killer killed.
    pub(crate) fn n_killed(&self) -> u64 {
        let files =
            [VERSION_1, VERSION_2].map(|version| fs::read_to_string(self.dir.join(version.kills)));
        let text = files
            .into_iter()
            .find_map(Result::ok)
            .expect("a group counts its kills");
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("a line of kills")
            .trim()
            .parse()
            .expect("a number")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A process leaves its group shortly after it was waited for.
            wait_until("the cgroup to be empty", || {
                fs::remove_dir(&self.dir).is_ok() || !self.dir.exists()
            });
        }
    }
}
