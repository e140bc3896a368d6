//! Test support that several crates share: doubles of the disk and of the clock, copies and random
//! damage of directories, and checks of the examples and generated tables in docs.

use std::path::Path;

use crate::fs::Fs as _;
pub use crate::manual_clock::ManualClock;
pub use crate::memory::{Fault, MemFs, PowerCut};

/// Asserts that a page of docs/format shows the bytes of a file, 16 per line.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn assert_shown(page: &str, bytes: &[u8]) {
    let shown: String = bytes
        .chunks(16)
        .map(|row| format!("{row:02x?}\n").replace(['[', ',', ']'], ""))
        .collect();
    assert!(page.contains(&shown), "the page does not show\n{shown}");
}

/// Asserts that a page of docs has a table that is generated from the code. It is between two
/// comments: `<!-- generated: NAME -->` and `<!-- end -->`.
///
/// With `VARVE_UPDATE_DOCS=1` in the environment, writes the table into the page first.
///
/// # Panics
/// If the page has another table, or no such comments.
#[track_caller]
pub fn assert_generated(page: &Path, name: &str, table: &str) {
    let start = format!("<!-- generated: {name} -->\n");
    let end = "<!-- end -->";
    let generated = format!("\n{table}\n");
    let text = std::fs::read_to_string(page).expect("read the page");
    let Some((before, rest)) = text.split_once(&start) else {
        panic!("{} has no {start:?}", page.display());
    };
    let (found, after) = rest.split_once(end).expect("the table has an end");

    if std::env::var_os("VARVE_UPDATE_DOCS").is_some() {
        let updated = [before, &start, &generated, end, after].concat();
        std::fs::write(page, updated).expect("write the page");
        return;
    }
    assert!(
        found == generated,
        "{} is not up to date: run the test with VARVE_UPDATE_DOCS=1. The table is\n{table}",
        page.display()
    );
}

impl MemFs {
    /// Creates a disk with a directory that survives a power cut.
    ///
    /// # Panics
    /// If the path has more than one part.
    #[must_use]
    pub fn with_dir(path: &str) -> Self {
        let fs = Self::new();
        fs.create_dir(Path::new(path)).expect("the root exists");
        fs.sync_dir(Path::new("/"))
            .expect("an empty disk has no faults");
        fs
    }
}

/// Copies a directory of the operating system with everything in it.
///
/// # Panics
/// If a file cannot be read or written.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("create a directory");
    for entry in std::fs::read_dir(from).expect("list a directory") {
        let path = entry.expect("list a directory").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("copy a file");
        }
    }
}

/// Returns a generator of numbers below its argument, for damage.
pub fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move |end: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end.max(1)
    }
}
