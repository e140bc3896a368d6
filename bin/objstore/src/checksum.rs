//! SHA-256 of files and objects, in hexadecimal.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result};
use data_encoding::HEXLOWER;
use ring::digest::{self, SHA256};

use crate::limits::MIB;

/// A checksum of bytes that arrive in pieces.
pub(super) struct Checksum(digest::Context);

impl Checksum {
    pub(super) fn new() -> Self {
        Self(digest::Context::new(&SHA256))
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> String {
        HEXLOWER.encode(self.0.finish().as_ref())
    }
}

/// Returns the checksum of bytes.
pub(super) fn checksum(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&SHA256, bytes).as_ref())
}

/// Returns the checksum of a file.
///
/// # Errors
/// If it cannot be read.
pub fn file_checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("open {path:?}"))?;
    let mut checksum = Checksum::new();
    let mut bytes = vec![0; MIB as usize];
    loop {
        match file
            .read(&mut bytes)
            .with_context(|| format!("read {path:?}"))?
        {
            0 => return Ok(checksum.finish()),
            size => checksum.add(&bytes[..size]),
        }
    }
}
