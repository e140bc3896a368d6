//! Cores and memory of the machine, or of the cgroup of the process; limit of open files; settings
//! of the allocator; small files.

pub mod allocator;
pub mod files;
pub mod process;

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The memory that is assumed if neither cgroup nor machine report it.
const MEMORY_FALLBACK_BYTES: u64 = 4 << 30;

/// Maximum number of shards that a server chooses.
const SHARDS_MAX: usize = 256;

/// Returns the number of cores that the process may use, by affinity and cgroup quota.
pub fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns the number of shards that a server chooses.
pub fn shards() -> usize {
    cores().next_power_of_two().min(SHARDS_MAX)
}

/// Returns the name of the machine, or an empty string if the system reports none.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

/// Raises the number of files that the process may open to the maximum that the system grants.
/// Returns the limit that now holds; `None` if there is none.
pub fn raise_open_files_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    ) {
        tracing::warn!(?current, ?maximum, %error, "could not raise the limit of open files");
        return current;
    }
    maximum
}

/// The memory that the process may use.
#[derive(Debug, Clone)]
pub struct Memory {
    bounds: Vec<Bound>,
}

/// The memory in use, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Memory in use.
    pub used_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

#[derive(Debug, Clone)]
struct Bound {
    limit_bytes: u64,
    what: Bounded,
}

/// What a limit applies to.
#[derive(Debug, Clone)]
enum Bounded {
    /// The process.
    Process,
    /// All processes of a cgroup.
    Group {
        version: &'static Version,
        dir: PathBuf,
    },
}

/// The file names of a cgroup version.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    root: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` for file pages, which the kernel can reclaim.
    files: [&'static str; 2],
}

const VERSION_1: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};
const VERSION_2: Version = Version {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    files: ["inactive_file ", "active_file "],
};

impl Memory {
    /// Finds the limits: those of the process' cgroups and all their ancestors, and the machine's
    /// memory.
    pub fn find() -> Self {
        let machine = read("/proc/meminfo")
            .and_then(|text| meminfo_total_bytes(&text))
            .unwrap_or(MEMORY_FALLBACK_BYTES);
        Self::given(machine)
    }

    /// Returns a configured limit of the process, and the lower ones of its cgroups.
    pub fn given(limit_bytes: u64) -> Self {
        let own = read("/proc/self/cgroup").unwrap_or_default();
        let groups = own
            .lines()
            .filter_map(group_of_line)
            .flat_map(|(version, group)| bounds_of(version, group));
        // In cgroup v1 an unset limit is a huge number.
        let groups = groups.filter(|bound| bound.limit_bytes < limit_bytes);
        let process = Bound {
            limit_bytes,
            what: Bounded::Process,
        };
        Self {
            bounds: groups.chain([process]).collect(),
        }
    }

    /// Returns the lowest limit.
    pub fn limit_bytes(&self) -> u64 {
        self.bounds
            .iter()
            .map(|bound| bound.limit_bytes)
            .min()
            .unwrap_or(MEMORY_FALLBACK_BYTES)
    }

    /// Returns `part / n_parts` of the lowest limit.
    pub fn share(&self, part: u64, n_parts: u64) -> usize {
        usize::try_from(self.limit_bytes() / n_parts * part).unwrap_or(usize::MAX)
    }

    /// Returns the usage that is closest to its limit; `None` if the system does not report it.
    pub fn usage(&self) -> Option<MemoryUsage> {
        let usages = self
            .bounds
            .iter()
            .filter_map(|Bound { limit_bytes, what }| {
                Some(MemoryUsage {
                    used_bytes: what.used_bytes()?,
                    limit_bytes: *limit_bytes,
                })
            });
        usages.max_by(|a, b| a.share().total_cmp(&b.share()))
    }
}

impl MemoryUsage {
    fn share(self) -> f64 {
        self.used_bytes as f64 / self.limit_bytes.max(1) as f64
    }
}

impl Bounded {
    fn used_bytes(&self) -> Option<u64> {
        match self {
            Self::Process => process_bytes(&read("/proc/self/status")?),
            Self::Group { version, dir } => {
                let used: u64 = read(dir.join(version.usage))?.trim().parse().ok()?;
                let stat = read(dir.join("memory.stat")).unwrap_or_default();
                Some(used.saturating_sub(file_bytes(version, &stat)))
            }
        }
    }
}

/// Parses a line of /proc/self/cgroup: `0::/path` is version 2, `5:memory:/path` is version 1.
fn group_of_line(line: &str) -> Option<(&'static Version, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next()?;
    let group = fields.next()?;
    match controllers {
        "" => Some((&VERSION_2, group)),
        _ => controllers
            .split(',')
            .any(|name| name == "memory")
            .then_some((&VERSION_1, group)),
    }
}

/// Returns the limits of a group and its ancestors.
fn bounds_of(version: &'static Version, group: &str) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for dir in dirs_of(version, group) {
        let limit = read(dir.join(version.limit)).unwrap_or_default();
        if let Ok(limit_bytes) = limit.trim().parse() {
            bounds.push(Bound {
                limit_bytes,
                what: Bounded::Group { version, dir },
            });
        }
    }
    bounds
}

fn dirs_of(version: &Version, group: &str) -> Vec<PathBuf> {
    // In a container the path may be the host's, while the mount shows the container's group as
    // root: `ancestors` ends there.
    Path::new(group.trim_start_matches('/'))
        .ancestors()
        .map(|dir| Path::new(version.root).join(dir))
        .collect()
}

/// Returns the file pages in the memory of a group.
fn file_bytes(version: &Version, stat: &str) -> u64 {
    let mut bytes = 0;
    for name in version.files {
        let found = stat
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        bytes += found.unwrap_or(0);
    }
    bytes
}

/// Returns the private memory of a process.
fn process_bytes(status: &str) -> Option<u64> {
    let anonymous_kib = process::status_kib(status, "RssAnon:")?;
    let shared_kib = process::status_kib(status, "RssShmem:").unwrap_or(0);
    Some((anonymous_kib + shared_kib) * 1024)
}

fn meminfo_total_bytes(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_of_all_ancestors_are_found() {
        let (version, group) = group_of_line("0::/a/b").unwrap();
        let expect = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"];
        assert!(dirs_of(version, group).iter().eq(expect.map(Path::new)));
        assert_eq!(
            group_of_line("4:cpu,memory:/x").unwrap().0.limit,
            "memory.limit_in_bytes"
        );
        assert_eq!(group_of_line("3:cpu:/x"), None);
    }

    #[test]
    fn file_pages_are_not_counted_as_used() {
        let stat = "anon 5\ninactive_file 30\nactive_file 4\ntotal_inactive_file 100\n";
        assert_eq!(
            (file_bytes(&VERSION_2, stat), file_bytes(&VERSION_1, stat)),
            (34, 100)
        );
        let status =
            "VmRSS:\t  90 kB\nRssAnon:\t      16 kB\nRssFile:\t  8 kB\nRssShmem:\t  1 kB\n";
        assert_eq!(process_bytes(status), Some(17 * 1024));
    }

    #[test]
    fn the_usage_closest_to_its_limit_counts() {
        let memory = Memory::find();
        assert!(memory.limit_bytes() > 1 << 20);
        let usage = memory.usage().unwrap();
        assert!(usage.used_bytes > 0 && usage.limit_bytes >= memory.limit_bytes());
        assert_eq!(Memory::given(5).limit_bytes(), 5);
    }

    #[test]
    fn total_memory_is_parsed_in_kibibytes() {
        assert_eq!(
            meminfo_total_bytes("MemFree: 1 kB\nMemTotal:       16 kB\n"),
            Some(16 * 1024)
        );
        assert_eq!(meminfo_total_bytes("nonsense"), None);
    }
}
