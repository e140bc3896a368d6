//! [`TenantLabels`]: the tenant of a write request, as a part of keys.

use std::fmt;
use std::fmt::Write as _;

/// The labels by which the server tells tenants of write requests apart: the forced labels of a
/// token, and the label of a router's tenant, which relabel rules may change. None for a sender
/// without tenant.
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

/// Returns `true` if a sender may add an entry to a table that all senders share: its tenant has
/// `n_own` entries, and `n_free` more fit. A tenant may have at most as many entries as it leaves
/// free, so that none fills the table. A sender without tenant may fill it.
///
/// Source: A. Choudhury and E. Hahne, *Dynamic queue length thresholds for shared-memory packet
/// switches*, 1998.
#[must_use]
pub fn may_add(has_tenant: bool, n_own: usize, n_free: usize) -> bool {
    n_free > 0 && (!has_tenant || n_own < n_free)
}

impl fmt::Display for TenantLabels {
    /// Prints `{team="a"}`, and nothing without a tenant. Values are escaped as in the text format
    /// of metrics. A part of a file format: docs/format/ha.md.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        for (idx, (name, value)) in self.iter().enumerate() {
            let separator = if idx == 0 { "{" } else { ", " };
            write!(f, "{separator}{name}=\"")?;
            for c in value.chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    c => f.write_char(c)?,
                }
            }
            f.write_char('"')?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text depended on what Rust's `Debug` escapes.
    #[test]
    fn the_text_escapes_three_characters() {
        let labels = [("team", "a"), ("zone", "q\"b\\n\nt\té'\u{301}\u{200b}")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            TenantLabels::new(&labels).to_string(),
            "{team=\"a\", zone=\"q\\\"b\\\\n\\nt\té'\u{301}\u{200b}\"}"
        );
        assert_eq!(TenantLabels::default().to_string(), "");
    }
}
