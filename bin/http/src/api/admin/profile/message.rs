//! A profile as protobuf.

use std::collections::HashMap;
use std::hash::Hash;
use std::iter::once;
use std::time::{Duration, UNIX_EPOCH};

use pprof::{Report, Symbol};
use prost::Message;
use varve_wire::pprof::{
    FunctionMessage, LineMessage, LocationMessage, ProfileMessage, SampleLabelMessage,
    SampleMessage, ValueTypeMessage,
};

/// Returns the encoded profile. Its samples have a count, a CPU time, and the name of their thread.
pub(super) fn encode(report: &Report) -> Vec<u8> {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let period = 1_000_000_000 / i64::from(report.timing.frequency.max(1));
    let mut tables = Tables::default();
    let [samples, count, cpu, nanoseconds, thread] =
        ["samples", "count", "cpu", "nanoseconds", "thread"].map(|text| tables.string(text));
    let cpu_time = ValueTypeMessage {
        kind: cpu,
        unit: nanoseconds,
    };
    let sample = report.data.iter().map(|(stack, &n_samples)| {
        let n_samples = i64::try_from(n_samples).unwrap_or(i64::MAX);
        SampleMessage {
            location_id: stack
                .frames
                .iter()
                .map(|symbols| tables.location(symbols))
                .collect(),
            value: vec![n_samples, n_samples.saturating_mul(period)],
            label: vec![SampleLabelMessage {
                key: thread,
                text: tables.string(&stack.thread_name),
            }],
        }
    });
    let sample = sample.collect();
    let Tables {
        strings,
        functions,
        locations,
    } = tables;
    let line = |(function_id, line)| LineMessage { function_id, line };
    let location = |(lines, id): (Vec<_>, _)| LocationMessage {
        id,
        line: lines.into_iter().map(line).collect(),
    };
    let function = |((name, filename), id)| FunctionMessage {
        id,
        name,
        system_name: name,
        filename,
    };
    let strings = strings.into_values().into_iter().map(|(text, _)| text);
    let message = ProfileMessage {
        sample_type: vec![
            ValueTypeMessage {
                kind: samples,
                unit: count,
            },
            cpu_time.clone(),
        ],
        sample,
        location: locations.into_values().into_iter().map(location).collect(),
        function: functions.into_values().into_iter().map(function).collect(),
        string_table: once(String::new()).chain(strings).collect(),
        time_nanos: report
            .timing
            .start_time
            .duration_since(UNIX_EPOCH)
            .map_or(0, nanos),
        duration_nanos: nanos(report.timing.duration),
        period_type: Some(cpu_time),
        period,
    };
    message.encode_to_vec()
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
            self.strings.of(text.to_owned()).cast_signed()
        }
    }

    fn location(&mut self, symbols: &[Symbol]) -> u64 {
        let lines = symbols.iter().map(|symbol| {
            let name = self.string(&symbol.name());
            let filename = self.string(&symbol.filename());
            (
                self.functions.of((name, filename)),
                i64::from(symbol.lineno()),
            )
        });
        let lines = lines.collect();
        self.locations.of(lines)
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
    fn of(&mut self, value: T) -> u64 {
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
