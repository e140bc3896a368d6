//! Histograms as text: label values of `count_values`, and the syntax of test scripts.

use std::fmt;

use varve_model::histogram::{Histogram, HistogramCounts, ResetHint};
use varve_promql::decimal::{General, Plain};

use super::buckets::Buckets;
use super::float_histogram::{Bucket, FloatHistogram};

/// Maximum number of buckets, including empty ones, in a test expression. Further buckets are
/// omitted.
const PRINTED_BUCKETS_MAX: usize = 10_000;

impl fmt::Display for FloatHistogram {
    /// Writes `{count:3, sum:2.5, [-0.001,0.001]:1, (1,2]:2}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, general)
    }
}

impl fmt::Display for Bucket {
    /// Writes `(1,2]:3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, general)
    }
}

/// Formats a stored histogram like Prometheus' tools: like a [`FloatHistogram`], but integer counts
/// never have an exponent.
#[must_use]
pub fn print_stored(histogram: &Histogram) -> String {
    let print_count: fn(f64) -> String = match histogram.counts {
        HistogramCounts::Integer { .. } => |count| Plain(count).to_string(),
        HistogramCounts::Float { .. } => general,
    };
    let mut out = String::new();
    FloatHistogram::from(histogram)
        .write(&mut out, print_count)
        .expect("writing to a string cannot fail");
    out
}

/// Formats a float with an exponent if that is shorter.
fn general(value: f64) -> String {
    General(value).to_string()
}

impl Bucket {
    fn write(&self, out: &mut dyn fmt::Write, print_count: fn(f64) -> String) -> fmt::Result {
        let open = if self.lower_inclusive { '[' } else { '(' };
        let close = if self.upper_inclusive { ']' } else { ')' };
        write!(
            out,
            "{open}{},{}{close}:{}",
            General(self.lower),
            General(self.upper),
            print_count(self.count)
        )
    }
}

impl FloatHistogram {
    fn write(&self, out: &mut dyn fmt::Write, print_count: fn(f64) -> String) -> fmt::Result {
        write!(
            out,
            "{{count:{}, sum:{}",
            print_count(self.count),
            General(self.sum)
        )?;
        let negative = self
            .negative
            .iter()
            .rev()
            .map(|(index, count)| self.negative_bucket(index, count));
        let positive = self
            .positive
            .iter()
            .map(|(index, count)| self.positive_bucket(index, count));
        let lower = -self.zero_threshold;
        let upper = self.zero_threshold;
        let count = if self.is_custom() {
            0.0
        } else {
            self.zero_count
        };
        let zero = Bucket {
            lower,
            upper,
            lower_inclusive: true,
            upper_inclusive: true,
            count,
        };
        for bucket in negative
            .chain([zero])
            .chain(positive)
            .filter(|bucket| bucket.count != 0.0)
        {
            out.write_str(", ")?;
            bucket.write(out, print_count)?;
        }
        out.write_str("}")
    }
}

impl FloatHistogram {
    /// Returns the histogram in the syntax of test scripts:
    /// `{{schema:1 count:3 sum:2.5 buckets:[1 2]}}`.
    #[must_use]
    pub fn test_expression(&self) -> String {
        let mut items = Vec::new();
        if self.schema != 0 {
            items.push(format!("schema:{}", self.schema));
        }
        let numbers = [
            ("count", self.count),
            ("sum", self.sum),
            ("z_bucket", self.zero_count),
            ("z_bucket_w", self.zero_threshold),
        ];
        items.extend(
            numbers
                .iter()
                .filter(|(_, number)| *number != 0.0)
                .map(|(key, n)| format!("{key}:{}", General(*n))),
        );
        if self.is_custom() {
            items.push(format!("custom_values:[{}]", joined(self.custom_bounds())));
        }
        match self.reset_hint {
            ResetHint::Unknown => {}
            ResetHint::Reset => items.push("counter_reset_hint:reset".to_owned()),
            ResetHint::NoReset => items.push("counter_reset_hint:not_reset".to_owned()),
            ResetHint::Gauge => items.push("counter_reset_hint:gauge".to_owned()),
        }
        for (prefix, buckets) in [("", &self.positive), ("n_", &self.negative)] {
            let (offset, counts) = dense(buckets);
            if offset != 0 {
                items.push(format!("{prefix}offset:{offset}"));
            }
            if !counts.is_empty() {
                items.push(format!("{prefix}buckets:[{}]", joined(&counts)));
            }
        }
        format!("{{{{{}}}}}", items.join(" "))
    }
}

fn joined(numbers: &[f64]) -> String {
    let numbers: Vec<_> = numbers.iter().map(|&number| general(number)).collect();
    numbers.join(" ")
}

/// Returns the index of the first bucket with observations, and the counts from that bucket on,
/// including empty ones.
fn dense(buckets: &Buckets) -> (i32, Vec<f64>) {
    let mut populated = buckets.iter().filter(|&(_, count)| count != 0.0).peekable();
    let Some(&(first, _)) = populated.peek() else {
        return (0, Vec::new());
    };
    let mut counts = Vec::new();
    for (index, count) in populated {
        let offset =
            usize::try_from(i64::from(index) - i64::from(first)).unwrap_or(PRINTED_BUCKETS_MAX);
        if offset >= PRINTED_BUCKETS_MAX {
            break;
        }
        counts.resize(offset, 0.0);
        counts.push(count);
    }
    (first, counts)
}

#[cfg(test)]
mod tests {
    use super::super::float_histogram::span;
    use super::*;

    #[test]
    fn integer_counts_of_stored_histograms_have_no_exponent() {
        let [count, zero_count] = [12_345_678_u32; 2];
        let positive = Vec::new();
        let negative = Vec::new();
        let integer = HistogramCounts::Integer {
            count: count.into(),
            zero_count: zero_count.into(),
            positive,
            negative,
        };
        let positive = Vec::new();
        let negative = Vec::new();
        let float = HistogramCounts::Float {
            count: count.into(),
            zero_count: zero_count.into(),
            positive,
            negative,
        };
        for (counts, expect) in [
            (integer, "{count:12345678, sum:1e+07, [-0.5,0.5]:12345678}"),
            (
                float,
                "{count:1.2345678e+07, sum:1e+07, [-0.5,0.5]:1.2345678e+07}",
            ),
        ] {
            let histogram = Histogram {
                zero_threshold: 0.5,
                sum: 1e7,
                counts,
                ..Histogram::default()
            };
            assert_eq!(print_stored(&histogram), expect);
        }
    }

    #[test]
    fn histograms_have_the_format_of_prometheus() {
        let mut histogram = FloatHistogram::from(&Histogram {
            reset_hint: ResetHint::Gauge,
            schema: 1,
            zero_threshold: 0.001,
            sum: 2.5,
            counts: HistogramCounts::Integer {
                count: 9,
                zero_count: 1,
                positive: vec![1, 0, 2],
                negative: vec![5],
            },
            positive_spans: vec![span(2, 1), span(1, 2)],
            negative_spans: vec![span(0, 1)],
            ..Histogram::default()
        });
        let expect = "{count:9, sum:2.5, [-1,-0.7071067811865475):5, [-0.001,0.001]:1, \
                      (1.414213562373095,2]:1, (4,5.65685424949238]:2}";
        assert_eq!(histogram.to_string(), expect);
        let expect = "{{schema:1 count:9 sum:2.5 z_bucket:1 z_bucket_w:0.001 counter_reset_hint:gauge offset:2 \
                      buckets:[1 0 0 2] n_buckets:[5]}}";
        assert_eq!(histogram.test_expression(), expect);
        histogram.multiply(0.0);
        assert_eq!(histogram.to_string(), "{count:0, sum:0}");
    }
}
