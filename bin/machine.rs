//! What the machine, or the cgroup that the process is confined to, has to give.

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Memory that is assumed where neither cgroup nor machine say how much there is.
const MEMORY_FALLBACK_BYTES: u64 = 4 << 30;

/// Counts the cores that the process may use; affinity and cgroup quota included.
pub(crate) fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns the bytes of memory that the process may use: the tightest limit of its cgroups, else the machine's memory.
pub(crate) fn memory_bytes() -> u64 {
    let machine = read("/proc/meminfo").and_then(|text| meminfo_total_bytes(&text));
    let limits = cgroup_limit_files().into_iter().filter_map(|file| read(file)?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(MEMORY_FALLBACK_BYTES)
}

/// Lists the files that may hold a memory limit: the process' cgroup and all above it, version 2 and version 1.
fn cgroup_limit_files() -> Vec<PathBuf> {
    let own = read("/proc/self/cgroup").unwrap_or_default();
    own.lines().filter_map(limit_location).flat_map(|(root, group, file)| limit_files(root, group, file)).collect()
}

/// Reads a line of /proc/self/cgroup: `0::/path` is version 2, `5:memory:/path` is version 1.
fn limit_location(line: &str) -> Option<(&'static str, &str, &'static str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    match controllers {
        "" => Some(("/sys/fs/cgroup", group, "memory.max")),
        _ if controllers.split(',').any(|name| name == "memory") => {
            Some(("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"))
        }
        _ => None,
    }
}

fn limit_files(root: &'static str, group: &str, file: &'static str) -> Vec<PathBuf> {
    // In a container the path may be the host's while the root shows the container's own group: `ancestors` ends there.
    Path::new(group.trim_start_matches('/')).ancestors().map(|dir| Path::new(root).join(dir).join(file)).collect()
}

fn meminfo_total_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_are_looked_for_in_all_groups_above() {
        let (root, group, file) = limit_location("0::/a/b").unwrap();
        let files = limit_files(root, group, file);
        let expect = ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"];
        assert!(files.iter().eq(expect.map(Path::new)), "{files:?}");
        assert_eq!(limit_location("4:cpu,memory:/x").unwrap().2, "memory.limit_in_bytes");
        assert_eq!(limit_location("3:cpu:/x"), None);
    }

    #[test]
    fn total_memory_is_read_in_kibibytes() {
        assert_eq!(meminfo_total_bytes("MemFree: 1 kB\nMemTotal:       16 kB\n"), Some(16 * 1024));
        assert_eq!(meminfo_total_bytes("nonsense"), None);
    }
}
