//! Explanations of alerts: /api/v1/rules/explain and `varve rules explain`.

use std::collections::BTreeMap;

use crate::schema;

schema! {
    /// Explanations of the alerting rules of a name.
    pub struct Explanations {
        rules: Vec<Explanation>,
    }
}

schema! {
    /// Why the alerts of a rule fire or do not.
    pub struct Explanation {
        file: String,
        group: String,
        name: String,
        query: String,
        /// Time of the evaluation in milliseconds.
        time_ms: i64,
        /// The reason, in one sentence.
        reason: String,
        /// `unknown`, `inactive`, `pending` or `firing`: the most severe alert now.
        state: String,
        /// Error of the last evaluation. Empty if there was none.
        last_error: String,
        /// The expression and its parts, in pre-order.
        steps: Vec<ExplainedStep>,
        /// Pending and firing alerts now, at most 100.
        alerts: Vec<ExplainedAlert>,
    }
}

schema! {
    /// A part of an expression.
    pub struct ExplainedStep {
        /// The whole expression has depth 0.
        depth: u64,
        expr: String,
        /// Number of series of its result.
        series: u64,
        /// Some of them.
        examples: Vec<ExampleSeries>,
    }
}

schema! {
    /// A series and its value.
    pub struct ExampleSeries {
        labels: BTreeMap<String, String>,
        value: String,
    }
}

schema! {
    /// An alert.
    pub struct ExplainedAlert {
        labels: BTreeMap<String, String>,
        state: String,
        value: String,
        active_at_ms: i64,
        /// Time until a pending alert fires, in milliseconds.
        fires_in_ms: i64,
    }
}
