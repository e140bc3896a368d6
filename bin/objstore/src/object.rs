//! An object of a bucket.

use anyhow::{Result, ensure};

use crate::limits::LISTED_MAX;

/// An object of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The key, below the prefix of the bucket.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
}

/// Fails if a bucket lists more than [`LISTED_MAX`] objects.
pub(crate) fn check_listed(objects: &[Object]) -> Result<()> {
    ensure!(
        objects.len() <= LISTED_MAX,
        "more than {LISTED_MAX} objects"
    );
    Ok(())
}
