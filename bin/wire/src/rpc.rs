//! `google.rpc.Status` and its details, and the response of
//! `opentelemetry.proto.collector.metrics.v1.MetricsService/Export`.

use crate::protobuf::messages;

/// The path of `MetricsService/Export`.
pub const EXPORT_PATH: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

messages! {
    /// An error.
    RpcStatus {
        code: i32 = [int32, tag = 1],
        message: String = [string, tag = 2],
        details: Vec<Any> = [message, repeated, tag = 3],
    }

    /// `google.protobuf.Any`: a message with the name of its type.
    Any {
        type_url: String = [string, tag = 1],
        value: Vec<u8> = [bytes = "vec", tag = 2],
    }

    /// `google.rpc.RetryInfo`.
    RetryInfo {
        retry_delay: Option<Duration> = [message, optional, tag = 1],
    }

    /// `google.protobuf.Duration`.
    Duration {
        seconds: i64 = [int64, tag = 1],
        nanos: i32 = [int32, tag = 2],
    }

    ExportMetricsResponse {
        partial_success: Option<PartialSuccess> = [message, optional, tag = 1],
    }

    PartialSuccess {
        rejected_data_points: i64 = [int64, tag = 1],
        error_message: String = [string, tag = 2],
    }
}
