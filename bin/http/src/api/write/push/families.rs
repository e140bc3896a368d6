//! Delimited messages of metric families as text of OpenMetrics 2.0, which has a line for each
//! metric, and native histograms. The receiver stores this text as any other.
//!
//! Memory: one metric is decoded at a time. The message of its family, the metric and the text are
//! charged before they are allocated. Exemplars and start timestamps are left out.

use std::fmt::Write as _;

use prost::Message;
use varve_context::{Charge, Limit, MemoryBudget};
use varve_ingest::{Malformed, WriteError};
use varve_wire::prometheus::exposition::LabelMessage;
use varve_wire::prometheus::pushed::{
    PushedFamily, PushedHistogram, PushedMetric, PushedSummary, PushedValue,
};
use varve_wire::prometheus::types::SpanMessage;

/// Bytes in memory per byte of a message: an empty inner message has two bytes.
const BYTES_PER_BYTE: usize = 32;
/// Maximum bytes of the message of a metric.
const METRIC_SIZE_MAX: usize = 1 << 20;
/// The last line of a text.
const END: &str = "# EOF\n";

/// The numbers of the types in messages.
mod kind {
    pub(super) const COUNTER: i32 = 0;
    pub(super) const GAUGE: i32 = 1;
    pub(super) const SUMMARY: i32 = 2;
    pub(super) const HISTOGRAM: i32 = 4;
    pub(super) const GAUGE_HISTOGRAM: i32 = 5;
}

/// The text of a body, whose memory is charged.
#[derive(Debug)]
pub(super) struct Text {
    text: String,
    size_max: usize,
    charge: Charge,
}

/// Returns the text of a body of delimited messages, at most `size_max` bytes.
///
/// # Errors
/// If a message is malformed, a metric or the text is too large, or there is no memory.
pub(super) fn to_text(
    body: &[u8],
    size_max: usize,
    memory: &MemoryBudget,
) -> Result<Text, WriteError> {
    let mut text = Text {
        text: String::new(),
        size_max,
        charge: memory.charge(),
    };
    let mut rest = body;
    while !rest.is_empty() {
        let offset = body.len() - rest.len();
        let added = next_message(&mut rest)
            .map_err(FamilyError::Malformed)
            .and_then(|message| text.add_message(message, memory));
        added.map_err(|error| match error {
            FamilyError::Malformed(reason) => Malformed::Message { offset, reason }.into(),
            FamilyError::Write(error) => error,
        })?;
    }
    text.reserve(END.len())?;
    text.text.push_str(END);
    Ok(text)
}

/// Removes a message with its length from the start of a body.
fn next_message<'b>(body: &mut &'b [u8]) -> Result<&'b [u8], String> {
    let size = prost::decode_length_delimiter(&mut *body).map_err(|error| error.to_string())?;
    let Some((message, rest)) = body.split_at_checked(size) else {
        return Err(format!("the body ends before {size} bytes"));
    };
    *body = rest;
    Ok(message)
}

/// Why a family was not added.
enum FamilyError {
    /// It, or one of its metrics, is malformed.
    Malformed(String),
    /// Another reason.
    Write(WriteError),
}

impl From<WriteError> for FamilyError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl Text {
    pub(super) fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Adds the family of a message.
    fn add_message(&mut self, message: &[u8], memory: &MemoryBudget) -> Result<(), FamilyError> {
        let mut charge = memory.charge();
        charge
            .grow(BYTES_PER_BYTE * message.len())
            .map_err(WriteError::from)?;
        let family = PushedFamily::decode(message)
            .map_err(|error| FamilyError::Malformed(error.to_string()))?;
        self.add_family(&family, memory)
    }

    fn add_family(
        &mut self,
        family: &PushedFamily,
        memory: &MemoryBudget,
    ) -> Result<(), FamilyError> {
        self.reserve(2 * (2 * family.name.len() + family.help.len()) + 64)?;
        let kind = match family.kind {
            kind::COUNTER => "counter",
            kind::GAUGE => "gauge",
            kind::SUMMARY => "summary",
            kind::HISTOGRAM => "histogram",
            kind::GAUGE_HISTOGRAM => "gaugehistogram",
            _ => "unknown",
        };
        let name = quoted(&family.name, b"_:");
        self.push(format_args!("# TYPE {name} {kind}\n"));
        if !family.help.is_empty() {
            let help = escaped(&family.help);
            self.push(format_args!("# HELP {name} {help}\n"));
        }
        for encoded in &family.metric {
            let size = encoded.len();
            if size > METRIC_SIZE_MAX {
                return Err(FamilyError::Write(WriteError::TooLarge {
                    what: "size in bytes of a metric",
                    size: size as u64,
                    limit: METRIC_SIZE_MAX as u64,
                    bound: Limit::Other("pushed metric size"),
                }));
            }
            let mut charge = memory.charge();
            charge
                .grow(BYTES_PER_BYTE * size)
                .map_err(WriteError::from)?;
            // The name of the metric, and its longest number for each byte.
            self.reserve(BYTES_PER_BYTE * size + 2 * name.len() + 256)?;
            let metric = PushedMetric::decode(&**encoded)
                .map_err(|error| FamilyError::Malformed(error.to_string()))?;
            self.add_metric(&name, family.kind, &metric);
        }
        Ok(())
    }

    /// Reserves `size` more bytes of text, and charges them.
    fn reserve(&mut self, size: usize) -> Result<(), WriteError> {
        let needed = self.text.len() + size;
        if needed <= self.text.capacity() {
            return Ok(());
        }
        if needed > self.size_max {
            return Err(WriteError::TooLarge {
                what: "size in bytes of the text of a pushed message",
                size: needed as u64,
                limit: self.size_max as u64,
                bound: Limit::Other("pushed text size"),
            });
        }
        let capacity = needed.next_power_of_two();
        // The old text and the new one exist at the same time.
        self.charge.grow(capacity)?;
        let before = self.text.capacity();
        self.text.reserve_exact(capacity - self.text.len());
        self.charge.shrink(before);
        Ok(())
    }

    fn push(&mut self, part: std::fmt::Arguments<'_>) {
        let _never_fails = self.text.write_fmt(part);
    }

    /// Adds the line of a metric of a type.
    fn add_metric(&mut self, name: &str, kind: i32, metric: &PushedMetric) {
        self.add_name(name, &metric.label);
        match kind {
            kind::SUMMARY => self.add_summary(&metric.summary.clone().unwrap_or_default()),
            kind::HISTOGRAM => self.add_histogram(metric, ["count", "sum"]),
            kind::GAUGE_HISTOGRAM => self.add_histogram(metric, ["gcount", "gsum"]),
            _ => {
                let values = [&metric.counter, &metric.gauge, &metric.untyped];
                let value: Option<&PushedValue> = values.into_iter().flatten().next();
                let value = value.map_or(0.0, |value| value.value);
                self.push(format_args!(" {}", number(value)));
            }
        }
        if let Some(ms) = metric.timestamp_ms.filter(|&ms| ms != 0) {
            self.push(format_args!(" {}", ms as f64 / 1000.0));
        }
        self.text.push('\n');
    }

    /// Adds the name of a metric with its labels. A name that is not legacy is a label without a
    /// name.
    fn add_name(&mut self, name: &str, labels: &[LabelMessage]) {
        let is_quoted = name.starts_with('"');
        if !is_quoted {
            self.text.push_str(name);
        }
        self.text.push('{');
        if is_quoted {
            self.text.push_str(name);
        }
        for (idx, label) in labels.iter().enumerate() {
            if idx > 0 || is_quoted {
                self.text.push(',');
            }
            let label_name = quoted(label.name.as_deref().unwrap_or_default(), b"_");
            let value = escaped(label.value.as_deref().unwrap_or_default());
            self.push(format_args!("{label_name}=\"{value}\""));
        }
        self.text.push('}');
    }

    fn add_summary(&mut self, summary: &PushedSummary) {
        let PushedSummary {
            sample_count,
            sample_sum,
            quantile,
        } = summary;
        self.push(format_args!(
            " {{count:{sample_count},sum:{},quantile:[",
            number(*sample_sum)
        ));
        for (idx, entry) in quantile.iter().enumerate() {
            let separator = if idx > 0 { "," } else { "" };
            let quantile = number(entry.quantile);
            let value = number(entry.value);
            self.push(format_args!("{separator}{quantile}:{value}"));
        }
        self.text.push_str("]}");
    }

    /// Adds the value of a histogram with the names of its count and its sum.
    fn add_histogram(&mut self, metric: &PushedMetric, [count_name, sum_name]: [&str; 2]) {
        let histogram = metric.histogram.clone().unwrap_or_default();
        let count =
            Counts::of(&histogram).number(histogram.sample_count, histogram.sample_count_float);
        let sum = number(histogram.sample_sum);
        self.push(format_args!(" {{{count_name}:{count},{sum_name}:{sum}"));
        let is_native = is_native(&histogram);
        if is_native {
            self.add_native_buckets(&histogram);
        }
        if !is_native || !histogram.bucket.is_empty() {
            self.add_classic_buckets(&histogram, &count);
        }
        self.text.push('}');
    }

    fn add_classic_buckets(&mut self, histogram: &PushedHistogram, count: &str) {
        let counts = Counts::of(histogram);
        self.text.push_str(",bucket:[");
        let mut has_infinite = false;
        for (idx, bucket) in histogram.bucket.iter().enumerate() {
            let separator = if idx > 0 { "," } else { "" };
            let bound = number(bucket.upper_bound);
            let count = counts.number(bucket.cumulative_count, bucket.cumulative_count_float);
            self.push(format_args!("{separator}{bound}:{count}"));
            has_infinite = bucket.upper_bound == f64::INFINITY;
        }
        // Go's library leaves this bucket out.
        if !has_infinite {
            let separator = if histogram.bucket.is_empty() { "" } else { "," };
            self.push(format_args!("{separator}+Inf:{count}"));
        }
        self.text.push(']');
    }

    fn add_native_buckets(&mut self, histogram: &PushedHistogram) {
        let zero_count =
            Counts::of(histogram).number(histogram.zero_count, histogram.zero_count_float);
        self.push(format_args!(
            ",schema:{},zero_threshold:{},zero_count:{zero_count}",
            histogram.schema,
            number(histogram.zero_threshold)
        ));
        let PushedHistogram {
            negative_span,
            negative_delta,
            negative_count,
            positive_span,
            positive_delta,
            positive_count,
            ..
        } = histogram;
        if !negative_span.is_empty() {
            self.add_spans("negative", negative_span, negative_delta, negative_count);
        }
        if !positive_span.is_empty() {
            self.add_spans("positive", positive_span, positive_delta, positive_count);
        }
    }

    /// Adds spans with their counts: as differences, or, if there are none, as floats.
    fn add_spans(&mut self, side: &str, spans: &[SpanMessage], deltas: &[i64], floats: &[f64]) {
        self.push(format_args!(",{side}_spans:["));
        for (idx, span) in spans.iter().enumerate() {
            let separator = if idx > 0 { "," } else { "" };
            let SpanMessage { offset, length } = span;
            self.push(format_args!("{separator}{offset}:{length}"));
        }
        self.push(format_args!("],{side}_buckets:["));
        let mut count: i64 = 0;
        for (idx, delta) in deltas.iter().enumerate() {
            let separator = if idx > 0 { "," } else { "" };
            count = count.wrapping_add(*delta);
            self.push(format_args!("{separator}{count}"));
        }
        if deltas.is_empty() {
            for (idx, count) in floats.iter().enumerate() {
                let separator = if idx > 0 { "," } else { "" };
                self.push(format_args!("{separator}{count:?}"));
            }
        }
        self.text.push(']');
    }
}

/// The type of the counts of a histogram.
#[derive(Debug, Clone, Copy)]
enum Counts {
    Integers,
    Floats,
}

impl Counts {
    fn of(histogram: &PushedHistogram) -> Self {
        if histogram.sample_count_float > 0.0 {
            Self::Floats
        } else {
            Self::Integers
        }
    }

    /// Returns the one of two counts that has the type. A float has a fraction.
    fn number(self, integer: u64, float: f64) -> String {
        match self {
            Self::Integers => integer.to_string(),
            Self::Floats => format!("{float:?}"),
        }
    }
}

/// Returns `true` if a histogram has native buckets, as Prometheus decides it.
fn is_native(histogram: &PushedHistogram) -> bool {
    !histogram.positive_span.is_empty()
        || !histogram.negative_span.is_empty()
        || histogram.zero_threshold > 0.0
        || histogram.zero_count > 0
        || histogram.zero_count_float > 0.0
}

/// Returns a number as text.
fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else if value == f64::NEG_INFINITY {
        "-Inf".to_owned()
    } else {
        format!("{value:?}")
    }
}

/// Returns a name, in quotes unless it has only letters, `others`, and behind the first character
/// digits.
fn quoted(name: &str, others: &[u8]) -> String {
    let is_legacy = name.bytes().enumerate().all(|(idx, byte)| {
        byte.is_ascii_alphabetic() || others.contains(&byte) || idx > 0 && byte.is_ascii_digit()
    });
    if is_legacy && !name.is_empty() {
        name.to_owned()
    } else {
        format!("\"{}\"", escaped(name))
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests;
