//! Conversion of classic histograms to native ones.

use std::collections::BTreeMap;

use varve_model::Labels;
use varve_model::histogram::{CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts};
use varve_model::labels::METRIC_NAME;

use varve_rules::unit_test::sequence::{Item, Literal, Sequence, span};

/// A classic histogram at one time.
#[derive(Debug, Default)]
struct Classic {
    /// Bounds, ascending, and cumulative counts.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

/// Converts the classic histograms among series to native ones with custom buckets.
pub(super) fn native_of_classic(
    series: &[(Labels, Sequence)],
) -> Result<Vec<(Labels, Sequence)>, String> {
    let mut histograms: BTreeMap<Labels, BTreeMap<usize, Classic>> = BTreeMap::new();
    for (labels, sequence) in series {
        let name = labels.metric_name();
        let (base, suffix) = name.rsplit_once('_').unwrap_or((name, ""));
        let upper = match suffix {
            "bucket" => match labels
                .get("le")
                .and_then(|le| le.parse::<f64>().ok())
                .filter(|le| !le.is_nan())
            {
                Some(upper) => upper,
                None => continue,
            },
            "count" | "sum" => f64::NAN,
            _ => continue,
        };
        let of = histograms
            .entry(labels.filter(|name| name != "le").with(METRIC_NAME, base))
            .or_default();
        for (at, item) in sequence.values.iter().enumerate() {
            let Some(Item::Float(value)) = *item else {
                continue;
            };
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
            let literal = Literal {
                histogram: classic.native()?,
                has_hint: false,
            };
            sequence
                .values
                .push(Some(Item::Histogram(Box::new(literal))));
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
        if self
            .buckets
            .last()
            .is_none_or(|(upper, _)| *upper != f64::INFINITY)
        {
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
            return Err(format!(
                "the count {count} differs from that of the last bucket: {:?}",
                self.buckets
            ));
        }
        self.buckets.pop();
        Ok(Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            sum: self.sum,
            positive_spans: span(0, &counts),
            counts: HistogramCounts::Float {
                count,
                zero_count: 0.0,
                positive: counts,
                negative: Vec::new(),
            },
            custom_bounds: self.buckets.into_iter().map(|(upper, _)| upper).collect(),
            ..Histogram::default()
        })
    }
}
