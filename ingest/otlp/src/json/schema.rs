//! The messages of a request, with the names of their fields in JSON.

/// The fields of a message.
pub(super) struct Message(pub(super) &'static [Field]);

pub(super) struct Field {
    /// Names in lowerCamelCase and, if it differs, in snake_case.
    pub(super) names: &'static [&'static str],
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) is_repeated: bool,
}

pub(super) enum Kind {
    String,
    Bool,
    Double,
    /// An unsigned and a signed integer of a fixed size.
    Fixed64,
    Sfixed64,
    /// Varints.
    Uint32,
    Uint64,
    Int64,
    Sint32,
    /// The names of the values 0, 1, ...
    Enum(&'static [&'static str]),
    Base64,
    /// The id of a trace or span with this number of bytes.
    Hex(usize),
    Message(&'static Message),
}

const fn one(names: &'static [&'static str], number: u32, kind: Kind) -> Field {
    Field {
        names,
        number,
        kind,
        is_repeated: false,
    }
}

const fn list(names: &'static [&'static str], number: u32, kind: Kind) -> Field {
    Field {
        names,
        number,
        kind,
        is_repeated: true,
    }
}

pub(super) static REQUEST: Message = Message(&[list(
    &["resourceMetrics", "resource_metrics"],
    1,
    Kind::Message(&RESOURCE_METRICS),
)]);
static RESOURCE_METRICS: Message = Message(&[
    one(&["resource"], 1, Kind::Message(&RESOURCE)),
    list(
        &["scopeMetrics", "scope_metrics"],
        2,
        Kind::Message(&SCOPE_METRICS),
    ),
]);
static RESOURCE: Message = Message(&[list(&["attributes"], 1, Kind::Message(&KEY_VALUE))]);
static SCOPE_METRICS: Message = Message(&[
    one(&["scope"], 1, Kind::Message(&SCOPE)),
    list(&["metrics"], 2, Kind::Message(&METRIC)),
    one(&["schemaUrl", "schema_url"], 3, Kind::String),
]);
static SCOPE: Message = Message(&[
    one(&["name"], 1, Kind::String),
    one(&["version"], 2, Kind::String),
    list(&["attributes"], 3, Kind::Message(&KEY_VALUE)),
]);
static METRIC: Message = Message(&[
    one(&["name"], 1, Kind::String),
    one(&["description"], 2, Kind::String),
    one(&["unit"], 3, Kind::String),
    one(&["gauge"], 5, Kind::Message(&NUMBERS)),
    one(&["sum"], 7, Kind::Message(&NUMBERS)),
    one(&["histogram"], 9, Kind::Message(&HISTOGRAMS)),
    one(
        &["exponentialHistogram", "exponential_histogram"],
        10,
        Kind::Message(&EXPONENTIALS),
    ),
    one(&["summary"], 11, Kind::Message(&SUMMARIES)),
]);
const TEMPORALITY: Field = one(
    &["aggregationTemporality", "aggregation_temporality"],
    2,
    Kind::Enum(&[
        "AGGREGATION_TEMPORALITY_UNSPECIFIED",
        "AGGREGATION_TEMPORALITY_DELTA",
        "AGGREGATION_TEMPORALITY_CUMULATIVE",
    ]),
);
const fn points(message: &'static Message) -> Field {
    list(&["dataPoints", "data_points"], 1, Kind::Message(message))
}
static NUMBERS: Message = Message(&[
    points(&NUMBER_POINT),
    TEMPORALITY,
    one(&["isMonotonic", "is_monotonic"], 3, Kind::Bool),
]);
static HISTOGRAMS: Message = Message(&[points(&HISTOGRAM_POINT), TEMPORALITY]);
static EXPONENTIALS: Message = Message(&[points(&EXPONENTIAL_POINT), TEMPORALITY]);
static SUMMARIES: Message = Message(&[points(&SUMMARY_POINT)]);
const START: Field = one(
    &["startTimeUnixNano", "start_time_unix_nano"],
    2,
    Kind::Fixed64,
);
const TIME: Field = one(&["timeUnixNano", "time_unix_nano"], 3, Kind::Fixed64);
const fn attributes(number: u32) -> Field {
    list(&["attributes"], number, Kind::Message(&KEY_VALUE))
}
const fn exemplars(number: u32) -> Field {
    list(&["exemplars"], number, Kind::Message(&EXEMPLAR))
}
static NUMBER_POINT: Message = Message(&[
    START,
    TIME,
    one(&["asDouble", "as_double"], 4, Kind::Double),
    exemplars(5),
    one(&["asInt", "as_int"], 6, Kind::Sfixed64),
    attributes(7),
    one(&["flags"], 8, Kind::Uint32),
]);
static HISTOGRAM_POINT: Message = Message(&[
    START,
    TIME,
    one(&["count"], 4, Kind::Fixed64),
    one(&["sum"], 5, Kind::Double),
    list(&["bucketCounts", "bucket_counts"], 6, Kind::Fixed64),
    list(&["explicitBounds", "explicit_bounds"], 7, Kind::Double),
    exemplars(8),
    attributes(9),
    one(&["flags"], 10, Kind::Uint32),
]);
static EXPONENTIAL_POINT: Message = Message(&[
    attributes(1),
    START,
    TIME,
    one(&["count"], 4, Kind::Fixed64),
    one(&["sum"], 5, Kind::Double),
    one(&["scale"], 6, Kind::Sint32),
    one(&["zeroCount", "zero_count"], 7, Kind::Fixed64),
    one(&["positive"], 8, Kind::Message(&BUCKETS)),
    one(&["negative"], 9, Kind::Message(&BUCKETS)),
    one(&["flags"], 10, Kind::Uint32),
    exemplars(11),
    one(&["zeroThreshold", "zero_threshold"], 14, Kind::Double),
]);
static BUCKETS: Message = Message(&[
    one(&["offset"], 1, Kind::Sint32),
    list(&["bucketCounts", "bucket_counts"], 2, Kind::Uint64),
]);
static SUMMARY_POINT: Message = Message(&[
    START,
    TIME,
    one(&["count"], 4, Kind::Fixed64),
    one(&["sum"], 5, Kind::Double),
    list(
        &["quantileValues", "quantile_values"],
        6,
        Kind::Message(&QUANTILE),
    ),
    attributes(7),
    one(&["flags"], 8, Kind::Uint32),
]);
static QUANTILE: Message = Message(&[
    one(&["quantile"], 1, Kind::Double),
    one(&["value"], 2, Kind::Double),
]);
static EXEMPLAR: Message = Message(&[
    one(&["timeUnixNano", "time_unix_nano"], 2, Kind::Fixed64),
    one(&["asDouble", "as_double"], 3, Kind::Double),
    one(&["spanId", "span_id"], 4, Kind::Hex(8)),
    one(&["traceId", "trace_id"], 5, Kind::Hex(16)),
    one(&["asInt", "as_int"], 6, Kind::Sfixed64),
    list(
        &["filteredAttributes", "filtered_attributes"],
        7,
        Kind::Message(&KEY_VALUE),
    ),
]);
static KEY_VALUE: Message = Message(&[
    one(&["key"], 1, Kind::String),
    one(&["value"], 2, Kind::Message(&ANY_VALUE)),
]);
static ANY_VALUE: Message = Message(&[
    one(&["stringValue", "string_value"], 1, Kind::String),
    one(&["boolValue", "bool_value"], 2, Kind::Bool),
    one(&["intValue", "int_value"], 3, Kind::Int64),
    one(&["doubleValue", "double_value"], 4, Kind::Double),
    one(
        &["arrayValue", "array_value"],
        5,
        Kind::Message(&ARRAY_VALUE),
    ),
    one(
        &["kvlistValue", "kvlist_value"],
        6,
        Kind::Message(&KEY_VALUE_LIST),
    ),
    one(&["bytesValue", "bytes_value"], 7, Kind::Base64),
]);
static ARRAY_VALUE: Message = Message(&[list(&["values"], 1, Kind::Message(&ANY_VALUE))]);
static KEY_VALUE_LIST: Message = Message(&[list(&["values"], 1, Kind::Message(&KEY_VALUE))]);

/// Returns the type that a field expects.
pub(super) fn expected(kind: &Kind) -> &'static str {
    match kind {
        Kind::String => "a string",
        Kind::Base64 => "a string in base64",
        Kind::Hex(_) => "the hexadecimal id of a trace or span",
        Kind::Enum(_) => "a number or the name of a value",
        Kind::Bool => "a boolean",
        Kind::Message(_) => "an object",
        _ => "a number",
    }
}
