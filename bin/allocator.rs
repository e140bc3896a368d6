//! What the allocator does with memory that is not needed.
//!
//! mimalloc keeps freed pages for a while, and gives them back when it is next busy; a store that a flush has just emptied
//! is not busy for the next minutes. And it asks the kernel for huge pages, of which a whole one is resident where a few
//! bytes are in use. Without both, memory is a third to a half less and a processor's time the same or less
//! (docs/decisions/0006-freed-memory.md). The settings are read from the environment before `main`, so the process sets them
//! and becomes itself once more, under the same number.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// mimalloc's settings: milliseconds that freed pages are kept, and whether there are huge pages.
const SETTINGS: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_ALLOW_THP", "0")];

/// Has no memory taken that is not needed, unless the environment says what is to be done. To be called before anything
/// else is started. Where it fails the process goes on as it is: it takes more memory, and nothing else.
pub(crate) fn take_no_more_than_needed() {
    let unset: Vec<_> = SETTINGS.into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    let mut args = env::args_os();
    let Some(name) = args.next().filter(|_| !unset.is_empty()) else { return };
    let _failed = Command::new("/proc/self/exe").arg0(name).args(args).envs(unset).exec();
}
