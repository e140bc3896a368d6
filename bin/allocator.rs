//! What the allocator does with freed memory, and with pages that nothing is in.
//!
//! mimalloc keeps freed pages for a while, and gives them back when it is next busy; a store that a flush has just emptied
//! is not busy for the next minutes. And it asks for huge pages: the kernel then backs two megabytes where a few of their
//! pages are in use, some time after they were taken, so that memory grows while nothing is asked for. Without either,
//! memory is about half and a processor's time the same (docs/decisions/0006-freed-memory.md). The settings are read from
//! the environment before `main`, so the process sets them and becomes itself once more, under the same number.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// mimalloc's settings: milliseconds that freed pages are kept, and whether huge pages are used.
const SETTINGS: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_ALLOW_THP", "0")];

/// Has memory taken as it is needed and given back at once, as far as the environment does not say what is to be done. To be
/// called before anything else is started. Where it fails the process goes on as it is: it takes more memory, and nothing else.
pub(crate) fn give_back_at_once() {
    let missing: Vec<_> = SETTINGS.into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    let mut args = env::args_os();
    let (false, Some(name)) = (missing.is_empty(), args.next()) else { return };
    let _failed = Command::new("/proc/self/exe").arg0(name).args(args).envs(missing).exec();
}
