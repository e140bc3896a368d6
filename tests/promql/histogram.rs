//! Native histograms in test scripts: `{{schema:1 count:5 sum:7 buckets:[2 3]}}`, and conversion of classic ones.

use std::collections::BTreeMap;

use varve_tsdb::Labels;
use varve_tsdb::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint};
use varve_tsdb::labels::METRIC_NAME;

use super::sequence::{Item, Sequence, number};

/// A histogram literal.
#[derive(Debug, Clone)]
pub(super) struct Literal {
    pub(super) histogram: Histogram,
    /// It has a counter reset hint, which is compared.
    pub(super) has_hint: bool,
}

impl Literal {
    /// Parses a literal, braces included.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}")).ok_or("not a histogram")?;
        let (mut histogram, mut has_hint) = (Histogram::default(), false);
        let (mut count, mut zero_count, mut sides, mut offsets) = (0.0, 0.0, [Vec::new(), Vec::new()], [0, 0]);
        let mut rest = inner.trim();
        while !rest.is_empty() {
            let (key, after) = rest.split_once(':').ok_or("no value")?;
            let len = match after.find(']').filter(|_| after.starts_with('[')) {
                Some(close) => close + 1,
                None => after.find(' ').unwrap_or(after.len()),
            };
            let value = &after[..len];
            let integer = || value.parse::<i32>().map_err(|_| format!("not an integer: {value}"));
            match key.to_lowercase().as_str() {
                "schema" => histogram.schema = i8::try_from(integer()?).map_err(|error| error.to_string())?,
                "count" => count = number(value)?,
                "sum" => histogram.sum = number(value)?,
                "z_bucket" => zero_count = number(value)?,
                "z_bucket_w" => histogram.zero_threshold = number(value)?,
                "buckets" => sides[0] = list(value)?,
                "n_buckets" => sides[1] = list(value)?,
                "offset" => offsets[0] = integer()?,
                "n_offset" => offsets[1] = integer()?,
                "custom_values" => histogram.custom_bounds = list(value)?,
                "counter_reset_hint" => (histogram.reset_hint, has_hint) = (hint(value)?, true),
                key => return Err(format!("unknown key {key:?}")),
            }
            rest = after[len..].trim_start();
        }
        let [positive, negative] = sides;
        (histogram.positive_spans, histogram.negative_spans) =
            (span(offsets[0], &positive), span(offsets[1], &negative));
        histogram.counts = HistogramCounts::Float { count, zero_count, positive, negative };
        Ok(Self { histogram, has_hint })
    }
}

fn list(text: &str) -> Result<Vec<f64>, String> {
    text.trim_matches(['[', ']']).split_whitespace().map(number).collect()
}

fn span(offset: i32, counts: &[f64]) -> Vec<BucketSpan> {
    let length = counts.len() as u32;
    if length == 0 { Vec::new() } else { vec![BucketSpan { offset, length }] }
}

fn hint(text: &str) -> Result<ResetHint, String> {
    match text {
        "unknown" => Ok(ResetHint::Unknown),
        "reset" => Ok(ResetHint::Reset),
        "not_reset" => Ok(ResetHint::NoReset),
        "gauge" => Ok(ResetHint::Gauge),
        _ => Err(format!("unknown hint {text:?}")),
    }
}

/// A classic histogram at one time.
#[derive(Debug, Default)]
struct Classic {
    /// Bounds, ascending, and cumulative counts.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

/// Converts the classic histograms among series to native ones with custom buckets.
pub(super) fn native_of_classic(series: &[(Labels, Sequence)]) -> Result<Vec<(Labels, Sequence)>, String> {
    let mut histograms: BTreeMap<Labels, BTreeMap<usize, Classic>> = BTreeMap::new();
    for (labels, sequence) in series {
        let name = labels.metric_name();
        let (base, suffix) = name.rsplit_once('_').unwrap_or((name, ""));
        let upper = match suffix {
            "bucket" => match labels.get("le").and_then(|le| le.parse::<f64>().ok()).filter(|le| !le.is_nan()) {
                Some(upper) => upper,
                None => continue,
            },
            "count" | "sum" => f64::NAN,
            _ => continue,
        };
        let of = histograms.entry(labels.filter(|name| name != "le").with(METRIC_NAME, base)).or_default();
        for (at, item) in sequence.values.iter().enumerate() {
            let Some(Item::Float(value)) = *item else { continue };
            let classic: &mut Classic = of.entry(at).or_default();
            match suffix {
                "bucket" if classic.buckets.iter().all(|(known, _)| *known != upper) => {
                    classic.buckets.push((upper, value));
                }
                "bucket" => {}
                "count" => classic.count = Some(value),
                _ => classic.sum = value,
            }
        }
    }
    let native = |(labels, times): (Labels, BTreeMap<usize, Classic>)| {
        let mut sequence = Sequence::default();
        for (at, classic) in times {
            sequence.values.resize(at, None);
            let literal = Literal { histogram: classic.native()?, has_hint: false };
            sequence.values.push(Some(Item::Histogram(literal)));
        }
        Ok((labels, sequence))
    };
    histograms.into_iter().map(native).collect()
}

impl Classic {
    fn native(mut self) -> Result<Histogram, String> {
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let highest = self.buckets.last().map_or(0.0, |(_, count)| *count);
        let count = self.count.unwrap_or(highest);
        if self.buckets.last().is_none_or(|(upper, _)| *upper != f64::INFINITY) {
            self.buckets.push((f64::INFINITY, count));
        }
        let (mut counts, mut before) = (Vec::new(), 0.0);
        for (_, cumulative) in &self.buckets {
            if *cumulative < before {
                return Err(format!("counts decrease: {:?}", self.buckets));
            }
            counts.push(cumulative - before);
            before = *cumulative;
        }
        if before != count {
            return Err(format!("the count {count} differs from that of the last bucket: {:?}", self.buckets));
        }
        self.buckets.pop();
        Ok(Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            sum: self.sum,
            positive_spans: span(0, &counts),
            counts: HistogramCounts::Float { count, zero_count: 0.0, positive: counts, negative: Vec::new() },
            custom_bounds: self.buckets.into_iter().map(|(upper, _)| upper).collect(),
            ..Histogram::default()
        })
    }
}
