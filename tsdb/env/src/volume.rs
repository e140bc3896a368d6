//! The space of a volume.

/// The space of a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Volume {
    /// Used and free space together.
    pub size: u64,
    /// The space that the process may still use.
    pub free: u64,
}
