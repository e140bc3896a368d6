//! Metadata of metric families: type, help, unit.

/// Maximum number of metric families with metadata.
pub const METADATA_FAMILIES_MAX: usize = 100_000;
/// Maximum size of a family's metadata, in bytes of its four strings.
pub const METADATA_SIZE_MAX: usize = 1 << 16;

/// Metadata of a metric family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// The type as in OpenMetrics: `counter`, `gauge`, `histogram`, `unknown`, ...
    pub kind: String,
    /// The help text.
    pub help: String,
    /// The unit, often empty.
    pub unit: String,
}
