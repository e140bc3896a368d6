//! Settings of the allocator.
//!
//! By default mimalloc retains freed pages for a second, and a thread collects its heap once in ten
//! thousand slow allocations. A store is inactive for minutes after a flush. It also uses huge
//! pages, each of which is resident even if only a few bytes of it are in use. The settings here
//! need a third to a half less memory (docs/decisions/storage/0006-freed-memory.md). mimalloc reads
//! them from the environment before `main`, so the process sets them and executes itself again,
//! with the same process id.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// mimalloc's settings: milliseconds for which freed pages are retained, slow allocations of a
/// thread between two collections, and whether huge pages are used.
const SETTINGS: [(&str, &str); 3] = [
    ("MIMALLOC_PURGE_DELAY", "10"),
    ("MIMALLOC_GENERIC_COLLECT", "1000"),
    ("MIMALLOC_ALLOW_THP", "0"),
];

/// Returns freed memory to the operating system soon, unless the environment has other settings.
/// Call it before any thread is started. If it fails, the process continues and uses more memory.
pub fn release_freed_memory() {
    let unset: Vec<_> = SETTINGS
        .into_iter()
        .filter(|(name, _)| env::var_os(name).is_none())
        .collect();
    if unset.is_empty() {
        name_process();
        return;
    }
    let mut args = env::args_os();
    let Some(name) = args.next() else {
        return;
    };
    // The kernel calls the process `exe` then, after this path, until `name_process`.
    let _failed = Command::new("/proc/self/exe")
        .arg0(name)
        .args(args)
        .envs(unset)
        .exec();
}

/// Gives the process the name of its program, which `ps`, `pgrep` and the kernel's log show.
fn name_process() {
    let path = env::args_os().next().map(PathBuf::from);
    if let Some(name) = path.as_deref().and_then(Path::file_name) {
        // A name has at most 15 bytes: the kernel cuts it.
        let _only_a_name = fs::write("/proc/self/comm", name.as_encoded_bytes());
    }
}
