//! Texts that are checked: files and standard input.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Result, ensure};

/// Maximum size of a file and of standard input.
pub(super) const INPUT_SIZE_MAX: u64 = 256 << 20;

/// Reads a text file.
pub(super) fn read(path: &Path) -> Result<String> {
    let size = std::fs::metadata(path)?.len();
    ensure!(
        size <= INPUT_SIZE_MAX,
        "{size} bytes exceed the limit of {INPUT_SIZE_MAX}"
    );
    Ok(std::fs::read_to_string(path)?)
}

/// Reads a text from standard input.
pub(super) fn standard_input() -> Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .take(INPUT_SIZE_MAX + 1)
        .read_to_string(&mut text)?;
    ensure!(
        text.len() as u64 <= INPUT_SIZE_MAX,
        "the input is longer than {INPUT_SIZE_MAX} bytes"
    );
    Ok(text)
}
