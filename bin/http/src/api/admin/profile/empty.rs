//! Profiles that only Go's runtime has: valid, and empty, so that `promtool debug` collects the
//! others.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;
use varve_wire::pprof::{ProfileMessage, ValueTypeMessage};

/// The comment of an empty profile, which `go tool pprof -comments` prints.
const COMMENT: &str = "Varve has no profile of this kind; /debug/pprof/profile is its CPU profile";

/// A profile of Go's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyProfile {
    /// Waiting for locks and channels.
    Block,
    /// Stacks of goroutines.
    Goroutine,
    /// Allocated memory.
    Heap,
    /// Holders of locks.
    Mutex,
    /// Stacks that created threads.
    ThreadCreate,
}

impl EmptyProfile {
    /// The types of its values, each with its unit, as in Go. The last one is that of the period.
    fn value_types(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Block | Self::Mutex => &[("contentions", "count"), ("delay", "nanoseconds")],
            Self::Goroutine => &[("goroutine", "count")],
            Self::Heap => &[
                ("alloc_objects", "count"),
                ("alloc_space", "bytes"),
                ("inuse_objects", "count"),
                ("inuse_space", "bytes"),
            ],
            Self::ThreadCreate => &[("threadcreate", "count")],
        }
    }

    /// Returns the encoded profile.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut string_table = vec![String::new()];
        let mut string = |text: &str| {
            string_table.push(text.to_owned());
            (string_table.len() - 1) as i64
        };
        let mut sample_type = Vec::new();
        for (kind, unit) in self.value_types() {
            let kind = string(kind);
            let unit = string(unit);
            sample_type.push(ValueTypeMessage { kind, unit });
        }
        let comment = vec![string(COMMENT)];
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let message = ProfileMessage {
            period_type: sample_type.last().cloned(),
            sample_type,
            string_table,
            time_nanos: super::message::nanos(now.unwrap_or_default()),
            period: 1,
            comment,
            ..ProfileMessage::default()
        };
        message.encode_to_vec()
    }
}
