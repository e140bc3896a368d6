//! Findings and the relabel rules that drop them.

use crate::findings::{self, Findings};
use crate::inventory::Inventory;
use crate::needs::Needs;
use crate::relabel_rules::{self, RelabelRules};

/// Unused metrics, buckets and labels, and the relabel rules that drop them.
#[derive(Debug, Clone)]
pub struct Advice {
    /// Unused metrics, buckets and labels.
    pub findings: Findings,
    /// The rules that drop them.
    pub rules: RelabelRules,
    /// Number of expressions that were compared with the series.
    pub n_expressions: usize,
}

impl Advice {
    /// Compares series with needs.
    ///
    /// # Errors
    /// If the inventory cannot be read.
    pub fn find<I: Inventory>(
        needs: &Needs,
        inventory: &mut I,
        options: findings::Options,
        rules: relabel_rules::Options,
    ) -> Result<Self, I::Error> {
        let findings = findings::find(needs, inventory, options)?;
        Ok(Self {
            rules: RelabelRules::of(&findings, rules),
            n_expressions: needs.len(),
            findings,
        })
    }
}
