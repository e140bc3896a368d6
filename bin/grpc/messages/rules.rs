//! `pkg/rules/rulespb/rpc.proto`.

use prost::{Message, Oneof};

use super::{LabelSet, Timestamp};

/// A request of `Rules/Rules`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct RulesRequest {
    /// 0: all, 1: alerting rules, 2: recording rules.
    #[prost(int32, tag = "1")]
    pub(in crate::grpc) kind: i32,
    #[prost(string, repeated, tag = "3")]
    pub(in crate::grpc) selectors: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(in crate::grpc) rule_names: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(in crate::grpc) groups: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub(in crate::grpc) files: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct RulesResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) group: Option<RuleGroup>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct RuleGroup {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::grpc) file: String,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::grpc) rules: Vec<RuleMessage>,
    #[prost(double, tag = "4")]
    pub(in crate::grpc) interval: f64,
    #[prost(double, tag = "5")]
    pub(in crate::grpc) evaluation_seconds: f64,
    #[prost(message, optional, tag = "6")]
    pub(in crate::grpc) last_evaluation: Option<Timestamp>,
    /// 1: errors abort, the only strategy of a rule that reads its own store.
    #[prost(int32, tag = "8")]
    pub(in crate::grpc) partial_response_strategy: i32,
    #[prost(int64, tag = "9")]
    pub(in crate::grpc) limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct RuleMessage {
    #[prost(oneof = "RuleKindMessage", tags = "1, 2")]
    pub(in crate::grpc) rule: Option<RuleKindMessage>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(in crate::grpc) enum RuleKindMessage {
    #[prost(message, tag = "1")]
    Recording(RecordingRule),
    #[prost(message, tag = "2")]
    Alerting(AlertingRule),
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct RecordingRule {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::grpc) query: String,
    #[prost(message, optional, tag = "3")]
    pub(in crate::grpc) labels: Option<LabelSet>,
    #[prost(string, tag = "4")]
    pub(in crate::grpc) health: String,
    #[prost(string, tag = "5")]
    pub(in crate::grpc) last_error: String,
    #[prost(double, tag = "6")]
    pub(in crate::grpc) evaluation_seconds: f64,
    #[prost(message, optional, tag = "7")]
    pub(in crate::grpc) last_evaluation: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct AlertingRule {
    /// 1: inactive, 2: pending, 3: firing.
    #[prost(int32, tag = "1")]
    pub(in crate::grpc) state: i32,
    #[prost(string, tag = "2")]
    pub(in crate::grpc) name: String,
    #[prost(string, tag = "3")]
    pub(in crate::grpc) query: String,
    #[prost(double, tag = "4")]
    pub(in crate::grpc) duration_seconds: f64,
    #[prost(message, optional, tag = "5")]
    pub(in crate::grpc) labels: Option<LabelSet>,
    #[prost(message, optional, tag = "6")]
    pub(in crate::grpc) annotations: Option<LabelSet>,
    #[prost(message, repeated, tag = "7")]
    pub(in crate::grpc) alerts: Vec<AlertMessage>,
    #[prost(string, tag = "8")]
    pub(in crate::grpc) health: String,
    #[prost(string, tag = "9")]
    pub(in crate::grpc) last_error: String,
    #[prost(double, tag = "10")]
    pub(in crate::grpc) evaluation_seconds: f64,
    #[prost(message, optional, tag = "11")]
    pub(in crate::grpc) last_evaluation: Option<Timestamp>,
    #[prost(double, tag = "12")]
    pub(in crate::grpc) keep_firing_for_seconds: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct AlertMessage {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) labels: Option<LabelSet>,
    #[prost(message, optional, tag = "2")]
    pub(in crate::grpc) annotations: Option<LabelSet>,
    #[prost(int32, tag = "3")]
    pub(in crate::grpc) state: i32,
    #[prost(message, optional, tag = "4")]
    pub(in crate::grpc) active_at: Option<Timestamp>,
    #[prost(string, tag = "5")]
    pub(in crate::grpc) value: String,
}
