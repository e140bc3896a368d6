//! Composite values of OpenMetrics 2.0: `{count:3,sum:6.0,bucket:[0.1:1,+Inf:3]}`.
//!
//! What is valid is what the parser of Prometheus 3.16 accepts (`model/textparse/openmetrics2parse.go`),
//! apart from numbers with underscores or hexadecimal digits.
//!
//! Bounds: each list has at most [`HISTOGRAM_BUCKETS_MAX`] entries, and a histogram as many buckets.

use varve_model::histogram::{
    BucketSpan, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts, ResetHint,
};
use varve_model::metadata::MetricType;

use super::cursor::{Cursor, excerpt};
use super::line::{CompositeSample, CompositeSeries, CompositeValue};
use super::number::float;

/// Parses a composite value, up to its closing brace. `kind` is the type of the metric.
///
/// # Errors
/// The reason why the value is invalid.
pub(super) fn parse(cursor: &mut Cursor<'_>, kind: MetricType) -> Result<CompositeValue, String> {
    match kind {
        MetricType::Histogram => histogram(&Fields::parse(cursor, &HISTOGRAM_FIELDS)?, &COUNTER),
        MetricType::GaugeHistogram => {
            histogram(&Fields::parse(cursor, &GAUGE_HISTOGRAM_FIELDS)?, &GAUGE)
        }
        MetricType::Summary => summary(&Fields::parse(cursor, &SUMMARY_FIELDS)?),
        _ => Err(format!(
            "a composite value needs # TYPE histogram, gaugehistogram or summary of its metric \
             before it; the type is {}",
            kind.name()
        )),
    }
}

/// The fields of a composite value, as text.
struct Fields<'a> {
    values: Vec<(&'static str, &'a str)>,
}

/// What a histogram of counters and one of gauges have in different ways.
struct Kind {
    count: &'static str,
    sum: &'static str,
    count_series: CompositeSeries,
    sum_series: CompositeSeries,
    reset_hint: ResetHint,
}

/// A bound or a quantile, and its value.
struct Entry {
    bound: f64,
    value: f64,
}

impl<'a> Fields<'a> {
    /// Reads the fields with their braces. The format allows no spaces.
    fn parse(cursor: &mut Cursor<'a>, allowed: &[&'static str]) -> Result<Self, String> {
        let mut values: Vec<(&'static str, &'a str)> = Vec::with_capacity(allowed.len());
        cursor.expect('{', "a composite value")?;
        while !cursor.eat('}') {
            if !values.is_empty() {
                cursor.expect(',', "the next field")?;
            }
            let end = cursor.rest.find([':', ',', '}', ' ']);
            let written = cursor.split(end.unwrap_or(cursor.rest.len()));
            let Some(&name) = allowed.iter().find(|&&name| name == written) else {
                return Err(format!("unknown field {:?}", excerpt(written)));
            };
            if values.iter().any(|&(other, _)| other == name) {
                return Err(format!("second field {name}"));
            }
            cursor.expect(':', name)?;
            values.push((name, field_value(cursor, name)?));
        }
        Ok(Self { values })
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.values.iter().find(|(other, _)| *other == name)?;
        Some(value)
    }

    fn required(&self, name: &str) -> Result<&'a str, String> {
        self.get(name).ok_or_else(|| format!("no field {name}"))
    }

    fn number(&self, name: &str) -> Result<f64, String> {
        let text = self.required(name)?;
        float(text).ok_or_else(|| format!("invalid {name} {:?}", excerpt(text)))
    }

    /// Returns a number that cannot be negative.
    fn count(&self, name: &str) -> Result<f64, String> {
        let count = self.number(name)?;
        if count < 0.0 {
            return Err(format!("negative {name} {count}"));
        }
        Ok(count)
    }

    /// Returns the items of a list: none if the field is missing. As in Prometheus, empty items are
    /// skipped.
    fn items(&self, name: &str) -> Result<impl Iterator<Item = &'a str>, String> {
        let text = self.get(name).unwrap_or("[]");
        let inner = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
            .ok_or_else(|| format!("{name} is not a list in brackets"))?;
        let items = inner.split(',').filter(|item| !item.is_empty());
        let n_items = items.clone().count();
        if n_items > HISTOGRAM_BUCKETS_MAX {
            return Err(format!(
                "{name} has {n_items} items, the limit is {HISTOGRAM_BUCKETS_MAX}"
            ));
        }
        Ok(items)
    }

    /// Returns the pairs of a list, whose bounds must ascend.
    fn entries(&self, name: &str) -> Result<Vec<Entry>, String> {
        let mut entries: Vec<Entry> = Vec::new();
        for item in self.items(name)? {
            let parsed = item.rsplit_once(':').and_then(|(bound, value)| {
                Some(Entry {
                    bound: float(bound)?,
                    value: float(value)?,
                })
            });
            let Some(entry) = parsed.filter(|entry| !entry.bound.is_nan()) else {
                return Err(format!("invalid {name} {:?}", excerpt(item)));
            };
            if let Some(last) = entries.last()
                && entry.bound <= last.bound
            {
                return Err(format!("{name} {} follows {}", entry.bound, last.bound));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn spans(&self, name: &str) -> Result<Vec<BucketSpan>, String> {
        let mut spans = Vec::new();
        for item in self.items(name)? {
            let span = item.split_once(':').and_then(|(offset, length)| {
                Some(BucketSpan {
                    offset: offset.parse().ok()?,
                    length: length.parse().ok()?,
                })
            });
            spans.push(span.ok_or_else(|| format!("invalid span {:?} of {name}", excerpt(item)))?);
        }
        Ok(spans)
    }

    fn floats(&self, name: &str) -> Result<Vec<f64>, String> {
        let mut counts = Vec::new();
        for item in self.items(name)? {
            let count = float(item);
            counts.push(count.ok_or_else(|| invalid_count(item, name))?);
        }
        Ok(counts)
    }

    /// Returns integers. A negative one wraps to a value above `i64::MAX`, which
    /// [`Histogram::validate`] rejects.
    fn integers(&self, name: &str) -> Result<Vec<u64>, String> {
        let mut counts = Vec::new();
        for item in self.items(name)? {
            let count: i64 = item.parse().map_err(|_| invalid_count(item, name))?;
            counts.push(count.cast_unsigned());
        }
        Ok(counts)
    }

    /// Returns `true` if an item of a list is written as a float.
    fn has_floats(&self, name: &str) -> bool {
        let text = self.get(name).unwrap_or_default();
        text.contains(['.', 'e', 'E'])
    }
}

/// Reads a number, or a list in brackets.
fn field_value<'a>(cursor: &mut Cursor<'a>, name: &str) -> Result<&'a str, String> {
    if cursor.rest.starts_with('[') {
        let end = cursor.rest.find(']');
        let end = end.ok_or_else(|| format!("unterminated list {name}"))?;
        return Ok(cursor.split(end + 1));
    }
    let end = cursor.rest.find([',', '}', '[', ']', ' ']);
    let value = cursor.split(end.unwrap_or(cursor.rest.len()));
    if value.is_empty() {
        return Err(format!("field {name} has no value"));
    }
    Ok(value)
}

fn invalid_count(item: &str, name: &str) -> String {
    format!("invalid count {:?} of {name}", excerpt(item))
}

/// Returns what the fields of a histogram say. Both kinds of buckets are kept if a line has both,
/// as Prometheus does with `scrape_native_histograms` and `always_scrape_classic_histograms`: an
/// import has no second chance to store what it drops.
fn histogram(fields: &Fields<'_>, kind: &Kind) -> Result<CompositeValue, String> {
    let is_native = fields.get(SCHEMA).is_some();
    let mut value = CompositeValue::default();
    if is_native {
        value.histogram = Some(native(fields, kind)?);
    }
    if !is_native || fields.get(BUCKET).is_some() {
        value.samples = classic(fields, kind)?;
    }
    Ok(value)
}

fn native(fields: &Fields<'_>, kind: &Kind) -> Result<Histogram, String> {
    let schema = fields.required(SCHEMA)?;
    let schema: i8 = schema
        .parse()
        .ok()
        .filter(|schema| (SCHEMA_MIN..=SCHEMA_MAX).contains(schema))
        .ok_or_else(|| {
            format!(
                "schema is {:?}, not {SCHEMA_MIN} to {SCHEMA_MAX}",
                excerpt(schema)
            )
        })?;
    let count = fields.count(kind.count)?;
    let sum = fields.number(kind.sum)?;
    let zero_threshold = fields.number(ZERO_THRESHOLD)?;
    let zero_count = fields.count(ZERO_COUNT)?;

    let is_float = !is_whole(count)
        || !is_whole(zero_count)
        || fields.has_floats(POSITIVE_BUCKETS)
        || fields.has_floats(NEGATIVE_BUCKETS);
    let counts = if is_float {
        HistogramCounts::Float {
            count,
            zero_count,
            positive: fields.floats(POSITIVE_BUCKETS)?,
            negative: fields.floats(NEGATIVE_BUCKETS)?,
        }
    } else {
        HistogramCounts::Integer {
            count: count as u64,
            zero_count: zero_count as u64,
            positive: fields.integers(POSITIVE_BUCKETS)?,
            negative: fields.integers(NEGATIVE_BUCKETS)?,
        }
    };
    let histogram = Histogram {
        reset_hint: kind.reset_hint,
        schema,
        zero_threshold,
        sum,
        counts,
        positive_spans: fields.spans(POSITIVE_SPANS)?,
        negative_spans: fields.spans(NEGATIVE_SPANS)?,
        custom_bounds: Vec::new(),
    };

    if !histogram.fits() {
        let n_spans = histogram.positive_spans.len() + histogram.negative_spans.len();
        return Err(format!(
            "the histogram has {} buckets and {n_spans} spans, the limit of each is \
             {HISTOGRAM_BUCKETS_MAX}",
            histogram.n_buckets()
        ));
    }
    histogram
        .validate()
        .map_err(|invalid| invalid.to_string())?;
    Ok(histogram)
}

/// Returns `true` if a number is an integer of 64 bits.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number < u64::MAX as f64
}

fn classic(fields: &Fields<'_>, kind: &Kind) -> Result<Vec<CompositeSample>, String> {
    let mut samples = vec![
        CompositeSample {
            series: kind.count_series,
            value: fields.number(kind.count)?,
        },
        CompositeSample {
            series: kind.sum_series,
            value: fields.number(kind.sum)?,
        },
    ];
    fields.required(BUCKET)?;
    let buckets = fields.entries(BUCKET)?;
    if buckets.last().map(|bucket| bucket.bound) != Some(f64::INFINITY) {
        return Err(format!("{BUCKET} does not end with +Inf"));
    }
    for Entry { bound, value } in buckets {
        if value < 0.0 && kind.reset_hint != ResetHint::Gauge {
            return Err(format!("negative count {value} of {BUCKET} {bound}"));
        }
        samples.push(CompositeSample {
            series: CompositeSeries::Bucket(bound),
            value,
        });
    }
    Ok(samples)
}

fn summary(fields: &Fields<'_>) -> Result<CompositeValue, String> {
    let mut samples = vec![
        CompositeSample {
            series: COUNTER.count_series,
            value: fields.number(COUNTER.count)?,
        },
        CompositeSample {
            series: COUNTER.sum_series,
            value: fields.number(COUNTER.sum)?,
        },
    ];
    fields.required(QUANTILE)?;
    for Entry { bound, value } in fields.entries(QUANTILE)? {
        if !(0.0..=1.0).contains(&bound) {
            return Err(format!("{QUANTILE} {bound} is not within 0 and 1"));
        }
        samples.push(CompositeSample {
            series: CompositeSeries::Quantile(bound),
            value,
        });
    }
    Ok(CompositeValue {
        histogram: None,
        samples,
    })
}

const COUNTER: Kind = Kind {
    count: "count",
    sum: "sum",
    count_series: CompositeSeries::Count,
    sum_series: CompositeSeries::Sum,
    reset_hint: ResetHint::Unknown,
};
const GAUGE: Kind = Kind {
    count: "gcount",
    sum: "gsum",
    count_series: CompositeSeries::GaugeCount,
    sum_series: CompositeSeries::GaugeSum,
    reset_hint: ResetHint::Gauge,
};

const SCHEMA: &str = "schema";
const ZERO_THRESHOLD: &str = "zero_threshold";
const ZERO_COUNT: &str = "zero_count";
const NEGATIVE_SPANS: &str = "negative_spans";
const NEGATIVE_BUCKETS: &str = "negative_buckets";
const POSITIVE_SPANS: &str = "positive_spans";
const POSITIVE_BUCKETS: &str = "positive_buckets";
const BUCKET: &str = "bucket";
const QUANTILE: &str = "quantile";
const HISTOGRAM_FIELDS: [&str; 10] = [
    COUNTER.count,
    COUNTER.sum,
    SCHEMA,
    ZERO_THRESHOLD,
    ZERO_COUNT,
    NEGATIVE_SPANS,
    NEGATIVE_BUCKETS,
    POSITIVE_SPANS,
    POSITIVE_BUCKETS,
    BUCKET,
];
const GAUGE_HISTOGRAM_FIELDS: [&str; 10] = [
    GAUGE.count,
    GAUGE.sum,
    SCHEMA,
    ZERO_THRESHOLD,
    ZERO_COUNT,
    NEGATIVE_SPANS,
    NEGATIVE_BUCKETS,
    POSITIVE_SPANS,
    POSITIVE_BUCKETS,
    BUCKET,
];
const SUMMARY_FIELDS: [&str; 3] = [COUNTER.count, COUNTER.sum, QUANTILE];

/// The schemas that the specification does not reserve.
const SCHEMA_MIN: i8 = -4;
const SCHEMA_MAX: i8 = 8;
