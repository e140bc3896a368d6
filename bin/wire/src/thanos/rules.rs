//! `pkg/rules/rulespb/rpc.proto`.

use crate::protobuf::messages;
use prost::Oneof;

use super::{LabelSet, Timestamp};

messages! {
    /// A request of `Rules/Rules`.
    RulesRequest {
        /// 0: all, 1: alerting rules, 2: recording rules.
        kind: i32 = [int32, tag = 1],
        rule_names: Vec<String> = [string, repeated, tag = 4],
        groups: Vec<String> = [string, repeated, tag = 5],
        files: Vec<String> = [string, repeated, tag = 6],
    }

    RulesResponse {
        group: Option<RuleGroup> = [message, optional, tag = 1],
    }

    RuleGroup {
        name: String = [string, tag = 1],
        file: String = [string, tag = 2],
        rules: Vec<RuleMessage> = [message, repeated, tag = 3],
        interval: f64 = [double, tag = 4],
        evaluation_seconds: f64 = [double, tag = 5],
        last_evaluation: Option<Timestamp> = [message, optional, tag = 6],
        /// 1: errors abort, the only strategy of a rule that reads its own store.
        partial_response_strategy: i32 = [int32, tag = 8],
        limit: i64 = [int64, tag = 9],
    }

    RuleMessage {
        rule: Option<RuleKindMessage> = [oneof = "RuleKindMessage", tags = "1, 2"],
    }
}

#[derive(Clone, PartialEq, Oneof)]
#[allow(
    missing_docs,
    reason = "the names are those of the protocol's description"
)]
pub enum RuleKindMessage {
    #[prost(message, tag = "1")]
    Recording(RecordingRule),
    #[prost(message, tag = "2")]
    Alerting(AlertingRule),
}

messages! {
    RecordingRule {
        name: String = [string, tag = 1],
        query: String = [string, tag = 2],
        labels: Option<LabelSet> = [message, optional, tag = 3],
        health: String = [string, tag = 4],
        last_error: String = [string, tag = 5],
        evaluation_seconds: f64 = [double, tag = 6],
        last_evaluation: Option<Timestamp> = [message, optional, tag = 7],
    }

    AlertingRule {
        /// 0: not evaluated yet, 1: inactive, 2: pending, 3: firing.
        state: i32 = [int32, tag = 1],
        name: String = [string, tag = 2],
        query: String = [string, tag = 3],
        duration_seconds: f64 = [double, tag = 4],
        labels: Option<LabelSet> = [message, optional, tag = 5],
        annotations: Option<LabelSet> = [message, optional, tag = 6],
        alerts: Vec<AlertMessage> = [message, repeated, tag = 7],
        health: String = [string, tag = 8],
        last_error: String = [string, tag = 9],
        evaluation_seconds: f64 = [double, tag = 10],
        last_evaluation: Option<Timestamp> = [message, optional, tag = 11],
        keep_firing_for_seconds: f64 = [double, tag = 12],
    }

    AlertMessage {
        labels: Option<LabelSet> = [message, optional, tag = 1],
        annotations: Option<LabelSet> = [message, optional, tag = 2],
        state: i32 = [int32, tag = 3],
        active_at: Option<Timestamp> = [message, optional, tag = 4],
        value: String = [string, tag = 5],
    }
}
