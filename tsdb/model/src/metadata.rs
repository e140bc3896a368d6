//! Metadata of metric families: type, help, unit.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tenant::TenantLabels;

/// Maximum number of metric families with metadata. Above it, a family of the tenant with the most
/// metadata is evicted.
pub const METADATA_FAMILIES_MAX: usize = 100_000;
/// Maximum size of a family's metadata, in bytes of its four strings.
pub const METADATA_SIZE_MAX: usize = 1 << 16;

/// Metadata by the [text of a family's key](FamilyKey::text).
pub type Families = BTreeMap<Arc<str>, Arc<Metadata>>;

/// The key of a metric family: its name, and the labels of the tenant that described it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyKey<'a> {
    /// The name.
    pub name: &'a str,
    /// Names and values of the labels of the tenant, each after a separator. Empty for a sender
    /// without tenant.
    pub tenant: &'a str,
}

/// The character between the strings of a key. A family whose name contains it has no metadata.
pub const FAMILY_KEY_SEPARATOR: char = '\0';

impl<'a> FamilyKey<'a> {
    /// Returns the key as text: the name, and for a tenant the names and values of its labels. In
    /// the order of texts, the keys of one name follow each other.
    #[must_use]
    pub fn text(name: &'a str, tenant: &TenantLabels) -> Cow<'a, str> {
        // Fast path: no tenant.
        if tenant.is_empty() {
            return Cow::Borrowed(name);
        }
        let mut text = name.to_owned();
        for (label, value) in tenant.iter() {
            for part in [label, value] {
                text.push(FAMILY_KEY_SEPARATOR);
                text.push_str(part);
            }
        }
        Cow::Owned(text)
    }

    /// Parses a text.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        let end = text.find(FAMILY_KEY_SEPARATOR).unwrap_or(text.len());
        let (name, tenant) = text.split_at(end);
        Self { name, tenant }
    }

    /// Returns the value of a label of the tenant.
    #[must_use]
    pub fn tenant_label(self, name: &str) -> Option<&'a str> {
        // The first separator has nothing before it.
        let mut parts = self.tenant.split(FAMILY_KEY_SEPARATOR).skip(1);
        while let Some(label) = parts.next() {
            let value = parts.next().unwrap_or_default();
            if label == name {
                return Some(value);
            }
        }
        None
    }
}

/// The type of a metric family, with Prometheus' numbers: those of remote write and of the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricType {
    /// Any other type, or none.
    #[default]
    Unknown = 0,
    /// A number that only rises, except for resets.
    Counter = 1,
    /// A number that rises and falls.
    Gauge = 2,
    /// A histogram.
    Histogram = 3,
    /// A histogram whose counts rise and fall.
    GaugeHistogram = 4,
    /// A summary.
    Summary = 5,
    /// Information as labels, with the value 1.
    Info = 6,
    /// States of which each is true or false.
    StateSet = 7,
}

impl MetricType {
    /// All types, in the order of their numbers.
    const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Counter,
        Self::Gauge,
        Self::Histogram,
        Self::GaugeHistogram,
        Self::Summary,
        Self::Info,
        Self::StateSet,
    ];

    /// Returns the type with a number; unknown if there is none.
    #[must_use]
    pub fn from_number(number: i32) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|number| Self::ALL.get(number))
            .copied()
            .unwrap_or_default()
    }

    /// Parses a name, or `untyped`, the old name of `unknown`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = if name == "untyped" {
            Self::Unknown.name()
        } else {
            name
        };
        Self::ALL
            .into_iter()
            .find(|metric_type| metric_type.name() == name)
    }

    /// Returns the name in OpenMetrics and in the HTTP API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }

    /// Returns the suffixes that the series of a classic histogram or a summary add to the name of
    /// their family.
    #[must_use]
    pub fn series_suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Histogram | Self::GaugeHistogram => {
                &["_bucket", "_count", "_sum", "_gcount", "_gsum"]
            }
            Self::Summary => &["_count", "_sum"],
            _ => &[],
        }
    }
}

/// Metadata of a metric family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// The type, by [its name](MetricType::name).
    pub kind: String,
    /// The help text.
    pub help: String,
    /// The unit, often empty.
    pub unit: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_families_have_the_labels_of_the_tenant() {
        let labels = [("team", "a"), ("zone", "")].map(|(name, value)| (name.into(), value.into()));
        let text = FamilyKey::text("up", &TenantLabels::new(&labels));
        let key = FamilyKey::parse(&text);
        assert_eq!((key.name, key.tenant), ("up", "\0team\0a\0zone\0"));
        assert_eq!(
            ["team", "zone", "a", ""].map(|name| key.tenant_label(name)),
            [Some("a"), Some(""), None, None]
        );
        let key = FamilyKey::parse("up");
        assert_eq!((key.name, key.tenant), ("up", ""));
        assert_eq!(key.tenant_label("team"), None);
    }

    #[test]
    fn types_have_prometheus_numbers_and_names() {
        for (number, metric_type) in (0..).zip(MetricType::ALL) {
            assert_eq!(
                (metric_type as i32, MetricType::from_number(number)),
                (number, metric_type)
            );
            assert_eq!(MetricType::parse(metric_type.name()), Some(metric_type));
        }
        assert_eq!(
            [-1, 8, i32::MAX].map(MetricType::from_number),
            [MetricType::Unknown; 3]
        );
        assert_eq!(
            ["untyped", "Counter", ""].map(MetricType::parse),
            [Some(MetricType::Unknown), None, None]
        );
    }
}
