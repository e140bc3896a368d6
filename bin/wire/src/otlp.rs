//! Traces as protobuf: `opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest`, without
//! the fields that are never set.

use crate::protobuf::messages;

messages! {
    ExportRequest {
        resource_spans: Vec<ResourceSpans> = [message, repeated, tag = 1],
    }

    ResourceSpans {
        resource: Option<Resource> = [message, optional, tag = 1],
        scope_spans: Vec<ScopeSpans> = [message, repeated, tag = 2],
    }

    Resource {
        attributes: Vec<KeyValue> = [message, repeated, tag = 1],
    }

    ScopeSpans {
        scope: Option<Scope> = [message, optional, tag = 1],
        spans: Vec<Span> = [message, repeated, tag = 2],
    }

    Scope {
        name: String = [string, tag = 1],
        version: String = [string, tag = 2],
    }

    /// A span.
    Span {
        trace_id: Vec<u8> = [bytes = "vec", tag = 1],
        span_id: Vec<u8> = [bytes = "vec", tag = 2],
        parent_span_id: Vec<u8> = [bytes = "vec", tag = 4],
        name: String = [string, tag = 5],
        kind: i32 = [int32, tag = 6],
        start_time_unix_nano: u64 = [fixed64, tag = 7],
        end_time_unix_nano: u64 = [fixed64, tag = 8],
        attributes: Vec<KeyValue> = [message, repeated, tag = 9],
        status: Option<Status> = [message, optional, tag = 15],
    }

    KeyValue {
        key: String = [string, tag = 1],
        value: Option<AnyValue> = [message, optional, tag = 2],
    }

    /// A text or a number: one of them is set.
    AnyValue {
        text: Option<String> = [string, optional, tag = 1],
        number: Option<i64> = [int64, optional, tag = 3],
    }

    Status {
        message: String = [string, tag = 2],
        code: i32 = [int32, tag = 3],
    }
}

impl Span {
    /// `SPAN_KIND_INTERNAL`.
    pub const INTERNAL: i32 = 1;
    /// `SPAN_KIND_SERVER`.
    pub const SERVER: i32 = 2;
}

impl Status {
    /// The status of a failed span.
    pub fn error(message: String) -> Self {
        const ERROR: i32 = 2;
        Self {
            message,
            code: ERROR,
        }
    }
}

impl KeyValue {
    /// Returns a pair.
    pub fn new(key: &str, value: impl Into<AnyValue>) -> Self {
        Self {
            key: key.to_owned(),
            value: Some(value.into()),
        }
    }
}

impl From<&str> for AnyValue {
    fn from(text: &str) -> Self {
        Self {
            text: Some(text.to_owned()),
            number: None,
        }
    }
}

impl From<i64> for AnyValue {
    fn from(number: i64) -> Self {
        Self {
            text: None,
            number: Some(number),
        }
    }
}
