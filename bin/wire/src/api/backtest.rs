//! When the alerts of a rule file would have fired: /api/v1/rules/backtest and `varve rules
//! backtest`.

use std::collections::BTreeMap;

use crate::schema;

schema! {
    /// When the alerts of a rule file would have fired.
    pub struct Backtest {
        rules: Vec<BacktestedRule>,
        /// `true` if there are more periods of firing than returned.
        is_truncated: bool,
        warnings: Vec<String>,
    }
}

schema! {
    /// When the alerts of a rule would have fired.
    pub struct BacktestedRule {
        group: String,
        name: String,
        query: String,
        evaluations: u64,
        failures: u64,
        /// Error of the last failure. Empty if there was none.
        last_error: String,
        firings: Vec<Firing>,
    }
}

schema! {
    /// A period in which an alert fires.
    pub struct Firing {
        labels: BTreeMap<String, String>,
        active_at_ms: i64,
        fired_at_ms: i64,
        /// 0 if it fires at the end of the range.
        resolved_at_ms: i64,
    }
}
