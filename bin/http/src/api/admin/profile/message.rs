//! A profile as protobuf.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, UNIX_EPOCH};

use pprof::{Report, Symbol};
use prost::Message;
use varve_wire::pprof::{
    FunctionMessage, LineMessage, LocationMessage, ProfileMessage, SampleLabelMessage,
    SampleMessage, ValueTypeMessage,
};

/// Returns the encoded profile. Its samples have a count, a CPU time, and the name of their thread.
pub(super) fn encode(report: &Report) -> Vec<u8> {
    let timing = &report.timing;
    let period_nanos = 1_000_000_000 / i64::from(timing.frequency.max(1));
    let mut tables = Tables::default();
    let count = ValueTypeMessage {
        kind: tables.string("samples"),
        unit: tables.string("count"),
    };
    let cpu_time = ValueTypeMessage {
        kind: tables.string("cpu"),
        unit: tables.string("nanoseconds"),
    };
    let thread_key = tables.string("thread");

    let mut samples = Vec::with_capacity(report.data.len());
    for (stack, &n_samples) in &report.data {
        let n_samples = i64::try_from(n_samples).unwrap_or(i64::MAX);
        let mut location_ids = Vec::with_capacity(stack.frames.len());
        for symbols in &stack.frames {
            location_ids.push(tables.location(symbols));
        }
        samples.push(SampleMessage {
            location_id: location_ids,
            value: vec![n_samples, n_samples.saturating_mul(period_nanos)],
            label: vec![SampleLabelMessage {
                key: thread_key,
                text: tables.string(&stack.thread_name),
            }],
        });
    }

    let started = timing.start_time.duration_since(UNIX_EPOCH);
    let message = ProfileMessage {
        sample_type: vec![count, cpu_time.clone()],
        sample: samples,
        location: location_messages(tables.locations),
        function: function_messages(tables.functions),
        string_table: string_table(tables.strings),
        time_nanos: nanos(started.unwrap_or_default()),
        duration_nanos: nanos(timing.duration),
        period_type: Some(cpu_time),
        period: period_nanos,
        comment: Vec::new(),
    };
    message.encode_to_vec()
}

pub(super) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn location_messages(locations: Ids<Vec<(u64, i64)>>) -> Vec<LocationMessage> {
    let mut messages = Vec::new();
    for (lines, id) in locations.into_values() {
        let line = lines
            .into_iter()
            .map(|(function_id, line)| LineMessage { function_id, line })
            .collect();
        messages.push(LocationMessage { id, line });
    }
    messages
}

fn function_messages(functions: Ids<(i64, i64)>) -> Vec<FunctionMessage> {
    let mut messages = Vec::new();
    for ((name, filename), id) in functions.into_values() {
        messages.push(FunctionMessage {
            id,
            name,
            system_name: name,
            filename,
        });
    }
    messages
}

/// Returns all strings, the empty one first.
fn string_table(strings: Ids<String>) -> Vec<String> {
    let mut table = vec![String::new()];
    for (text, _id) in strings.into_values() {
        table.push(text);
    }
    table
}

/// What samples refer to.
#[derive(Default)]
struct Tables {
    strings: Ids<String>,
    /// Names and files.
    functions: Ids<(i64, i64)>,
    /// Functions and lines.
    locations: Ids<Vec<(u64, i64)>>,
}

impl Tables {
    /// Returns the position of a string in the table, in which the empty string is the first.
    fn string(&mut self, text: &str) -> i64 {
        if text.is_empty() {
            0
        } else {
            self.strings.id(text.to_owned()).cast_signed()
        }
    }

    fn location(&mut self, symbols: &[Symbol]) -> u64 {
        let mut lines = Vec::with_capacity(symbols.len());
        for symbol in symbols {
            let name = self.string(&symbol.name());
            let filename = self.string(&symbol.filename());
            let function_id = self.functions.id((name, filename));
            lines.push((function_id, i64::from(symbol.lineno())));
        }
        self.locations.id(lines)
    }
}

/// Distinct values with ids from 1.
struct Ids<T>(HashMap<T, u64>);

impl<T> Default for Ids<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Ids<T> {
    /// Returns the id of a value, which is added if it is new.
    fn id(&mut self, value: T) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(value).or_insert(next)
    }

    /// Returns the values in the order of their ids.
    fn into_values(self) -> Vec<(T, u64)> {
        let mut values: Vec<(T, u64)> = self.0.into_iter().collect();
        values.sort_by_key(|(_, id)| *id);
        values
    }
}
