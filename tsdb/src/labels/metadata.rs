//! Metadata of metric families: type, help, unit.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of metric families with metadata. Above it, the family that was added first is evicted.
pub const METADATA_FAMILIES_MAX: usize = 100_000;
/// Maximum size of a family's metadata, in bytes of its four strings.
pub const METADATA_SIZE_MAX: usize = 1 << 16;

/// Metadata by metric family.
pub type Families = BTreeMap<Arc<str>, Arc<Metadata>>;

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
