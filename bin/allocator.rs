//! What the allocator does with freed memory.
//!
//! mimalloc keeps freed pages for a while, and gives them back when it is next busy; a store that a flush has just emptied
//! is not busy for the next minutes. Without waiting, memory after a flush is less than half and a processor's time the
//! same (docs/decisions/0006-freed-memory.md). The setting is read from the environment before `main`, so the process sets
//! it and becomes itself once more, under the same number.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// mimalloc's setting: milliseconds that freed pages are kept.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// Has freed memory given back at once, unless the environment says what is to be done. To be called before anything else
/// is started. Where it fails the process goes on as it is: it takes more memory, and nothing else.
pub(crate) fn give_back_at_once() {
    let mut args = env::args_os();
    let (None, Some(name)) = (env::var_os(PURGE_DELAY), args.next()) else { return };
    let _failed = Command::new("/proc/self/exe").arg0(name).args(args).env(PURGE_DELAY, "0").exec();
}
