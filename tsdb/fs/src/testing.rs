//! What tests of several crates share: doubles of the disk and of the clock, and checks of the examples in docs/format.

pub use crate::manual_clock::ManualClock;
pub use crate::memory::{Fault, MemFs, PowerCut};

/// Asserts that a page of docs/format shows the bytes of a file, 16 per line.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn assert_shown(page: &str, bytes: &[u8]) {
    let shown: String = bytes.chunks(16).map(|row| format!("{row:02x?}\n").replace(['[', ',', ']'], "")).collect();
    assert!(page.contains(&shown), "the page does not show\n{shown}");
}
