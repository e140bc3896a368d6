//! The settings of uploads that types of buckets share: the size of a part, and retries.

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};

use crate::limits::MIB;

/// Allowed sizes of a part of a multipart upload, in bytes. S3 sets the minimum. The maximum bounds
/// the memory of a part.
pub(super) const PART_SIZES: RangeInclusive<u64> = 5 * MIB..=64 * MIB;
/// Default size of a part in bytes. Larger objects are sent in parts.
pub(super) const PART_SIZE_DEFAULT: u64 = 16 * MIB;
/// Maximum of `max_retries`.
const RETRIES_MAX: u32 = 20;
/// Default of `max_retries`.
pub(super) const RETRIES_DEFAULT: u32 = 6;

/// Returns the size of a part; 0 stands for the default.
pub(super) fn check_part_size(configured: u64) -> Result<u64> {
    let part_size = if configured == 0 {
        PART_SIZE_DEFAULT
    } else {
        configured
    };
    ensure!(
        PART_SIZES.contains(&part_size),
        "part_size {part_size} is not between {} and {} bytes",
        PART_SIZES.start(),
        PART_SIZES.end()
    );
    Ok(part_size)
}

/// Returns the maximum number of retries; 0 stands for the default.
pub(super) fn check_retries(configured: u32) -> Result<u32> {
    let retries_max = if configured == 0 {
        RETRIES_DEFAULT
    } else {
        configured
    };
    ensure!(
        retries_max <= RETRIES_MAX,
        "max_retries {retries_max} exceeds the maximum of {RETRIES_MAX}"
    );
    Ok(retries_max)
}
