//! Printing of results.

use std::fmt::Display;
use std::io::Write as _;

use anyhow::{Context as _, Result};

/// Prints to standard output. `println!` would panic on a closed pipe
/// (`varve-bench write ... | head -1`).
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn print(text: impl Display) -> Result<()> {
    write!(std::io::stdout(), "{text}").context("write to standard output")
}

/// Returns bytes in MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
