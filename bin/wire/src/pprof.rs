//! A profile: `perftools.profiles.Profile` of
//! github.com/google/pprof/blob/main/proto/profile.proto.

use crate::protobuf::messages;

messages! {
    ProfileMessage {
        sample_type: Vec<ValueTypeMessage> = [message, repeated, tag = 1],
        sample: Vec<SampleMessage> = [message, repeated, tag = 2],
        location: Vec<LocationMessage> = [message, repeated, tag = 4],
        function: Vec<FunctionMessage> = [message, repeated, tag = 5],
        /// All strings. The first one is empty; other messages refer to strings by their position.
        string_table: Vec<String> = [string, repeated, tag = 6],
        time_nanos: i64 = [int64, tag = 9],
        duration_nanos: i64 = [int64, tag = 10],
        period_type: Option<ValueTypeMessage> = [message, optional, tag = 11],
        period: i64 = [int64, tag = 12],
        /// Positions of texts for people.
        comment: Vec<i64> = [int64, repeated, tag = 13],
    }

    ValueTypeMessage {
        kind: i64 = [int64, tag = 1],
        unit: i64 = [int64, tag = 2],
    }

    SampleMessage {
        /// The stack, innermost location first.
        location_id: Vec<u64> = [uint64, repeated, tag = 1],
        value: Vec<i64> = [int64, repeated, tag = 2],
        label: Vec<SampleLabelMessage> = [message, repeated, tag = 3],
    }

    SampleLabelMessage {
        key: i64 = [int64, tag = 1],
        text: i64 = [int64, tag = 2],
    }

    LocationMessage {
        id: u64 = [uint64, tag = 1],
        /// An address, as the functions that are inlined there, innermost first.
        line: Vec<LineMessage> = [message, repeated, tag = 4],
    }

    LineMessage {
        function_id: u64 = [uint64, tag = 1],
        line: i64 = [int64, tag = 2],
    }

    FunctionMessage {
        id: u64 = [uint64, tag = 1],
        name: i64 = [int64, tag = 2],
        system_name: i64 = [int64, tag = 3],
        filename: i64 = [int64, tag = 4],
    }
}
