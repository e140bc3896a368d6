//! [`TenantLabels`]: the tenant of a write request, as a part of keys.

use std::fmt;

/// The labels that the server sets on all series of a write request: those of its tenant. None for
/// a sender without tenant.
///
/// It is part of the key of each table whose keys a sender chooses, so that two tenants that send
/// the same text have entries of their own. `tests/tidy` has the list of these tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantLabels(Vec<(String, String)>);

impl TenantLabels {
    /// Creates the tenant with these labels.
    #[must_use]
    pub fn new(labels: &[(String, String)]) -> Self {
        Self(labels.to_vec())
    }

    /// Returns `true` without a tenant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value that a label has on all series of the tenant, if it is one of its labels.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(own, _)| own == name)?;
        Some(value)
    }

    /// Iterates over the labels.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Display for TenantLabels {
    /// Prints `{team="a"}`, and nothing without a tenant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        for (idx, (name, value)) in self.iter().enumerate() {
            let separator = if idx == 0 { "{" } else { ", " };
            write!(f, "{separator}{name}={value:?}")?;
        }
        f.write_str("}")
    }
}
