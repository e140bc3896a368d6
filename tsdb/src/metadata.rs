//! What senders tell about metric families: type, help, unit.

/// Metadata of a metric family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// The type as OpenMetrics writes it: `counter`, `gauge`, `histogram`, `unknown`, ...
    pub kind: String,
    /// What the metric means.
    pub help: String,
    /// Its unit, often empty.
    pub unit: String,
}
