//! The messages of a profile.

use super::remote_write::messages;

messages! {
    Profile {
        sample: Vec<Sample> = [message, repeated, tag = 2],
        location: Vec<Location> = [message, repeated, tag = 4],
        function: Vec<Function> = [message, repeated, tag = 5],
        string_table: Vec<String> = [string, repeated, tag = 6],
        duration_nanos: i64 = [int64, tag = 10],
        period: i64 = [int64, tag = 12],
    }

    Sample {
        location_id: Vec<u64> = [uint64, repeated, tag = 1],
        value: Vec<i64> = [int64, repeated, tag = 2],
    }

    Location {
        id: u64 = [uint64, tag = 1],
        line: Vec<Line> = [message, repeated, tag = 4],
    }

    Line {
        function_id: u64 = [uint64, tag = 1],
    }

    Function {
        id: u64 = [uint64, tag = 1],
        name: i64 = [int64, tag = 2],
    }
}
