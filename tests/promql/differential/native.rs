//! Native histograms in remote write 1.0: series of every kind.

use std::collections::BTreeMap;

use crate::harness::{BucketSpan, Histogram, Random, TimeSeries, WriteRequest, series};

/// `prometheus.Histogram.ResetHint`
const GAUGE: i32 = 3;
/// The schema of custom buckets.
const CUSTOM: i32 = -53;

/// The layout of the histograms of a series.
#[derive(Clone, Copy)]
struct Layout {
    schema: i32,
    /// First bucket and number of buckets, on each side of zero.
    positive: (i32, usize),
    negative: (i32, usize),
    bounds: &'static [f64],
    gauge: bool,
}

const PLAIN: Layout = Layout {
    schema: 2,
    positive: (-4, 10),
    negative: (0, 0),
    bounds: &[],
    gauge: false,
};

type Labels = BTreeMap<String, String>;
/// Timestamps and values.
type Samples = Vec<(i64, f64)>;

/// Series of native histograms.
pub(super) struct Natives {
    random: Random,
    series: BTreeMap<Labels, (Samples, Vec<Histogram>)>,
}

impl Natives {
    /// Creates the series, with a histogram every 15 s from `start_ms` to `end_ms`.
    pub(super) fn new(seed: u64, start_ms: i64, end_ms: i64) -> Self {
        let mut natives = Self {
            random: Random::new(seed),
            series: BTreeMap::new(),
        };
        let times: Vec<_> = (start_ms + 2_345..=end_ms).step_by(15_000).collect();
        for job in ["api", "db"] {
            for (instance, schema) in [("host-1:80", 2), ("host-2:80", 2), ("host-10:80", 0)] {
                let labels = |name| [("__name__", name), ("job", job), ("instance", instance)];
                natives.add(
                    &labels("latency_seconds"),
                    &times,
                    Layout { schema, ..PLAIN },
                );
                let both = Layout {
                    negative: (-2, 5),
                    gauge: true,
                    ..PLAIN
                };
                natives.add(&labels("balance"), &times, both);
                let custom = Layout {
                    schema: CUSTOM,
                    positive: (0, 4),
                    bounds: &[0.1, 0.5, 2.0],
                    ..PLAIN
                };
                natives.add(&labels("size_bytes"), &times, custom);
                let half = if job == "api" {
                    &times[..100]
                } else {
                    &times[60..]
                };
                natives.add(
                    &labels("short_seconds"),
                    half,
                    Layout {
                        schema: schema + 1,
                        ..PLAIN
                    },
                );
                natives.add(&labels("changing"), &times[90..], PLAIN);
                let floats = times[..90].iter().enumerate();
                let series = natives
                    .series
                    .get_mut(&map(&labels("changing")))
                    .expect("it was added");
                series.0 = floats
                    .map(|(n, &timestamp_ms)| (timestamp_ms, n as f64 * 2.5))
                    .collect();
            }
        }
        natives
    }

    /// Encodes the body of a write request.
    pub(super) fn to_body(&self) -> Vec<u8> {
        let timeseries = self.series.iter().map(|(labels, (samples, histograms))| {
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| (&**name, &**value))
                .collect();
            TimeSeries {
                histograms: histograms.clone(),
                ..series(&labels, samples)
            }
        });
        WriteRequest::new(timeseries).to_body()
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = &Labels> {
        self.series.keys()
    }

    fn add(&mut self, labels: &[(&str, &str)], times: &[i64], layout: Layout) {
        let (mut positive, mut negative) = (vec![0; layout.positive.1], vec![0; layout.negative.1]);
        let mut zero_count = 0;
        let mut histograms = Vec::new();
        for &timestamp_ms in times {
            let resets = self.random.below(60) == 0 || layout.gauge;
            for count in positive.iter_mut().chain(&mut negative) {
                *count = if resets { 0 } else { *count } + self.random.below(5) as i64;
            }
            if layout.schema != CUSTOM {
                zero_count = if resets { 0 } else { zero_count } + self.random.below(2);
            }
            let count = positive.iter().chain(&negative).sum::<i64>() as u64 + zero_count;
            histograms.push(Histogram {
                count_int: Some(count),
                sum: count as f64 * 0.75,
                schema: layout.schema,
                zero_threshold: if layout.schema == CUSTOM { 0.0 } else { 1e-3 },
                zero_count_int: Some(zero_count),
                negative_spans: span(layout.negative),
                negative_deltas: deltas(&negative),
                positive_spans: span(layout.positive),
                positive_deltas: deltas(&positive),
                reset_hint: if layout.gauge { GAUGE } else { 0 },
                timestamp_ms,
                custom_values: layout.bounds.to_vec(),
                ..Histogram::default()
            });
        }
        assert!(
            self.series
                .insert(map(labels), (Vec::new(), histograms))
                .is_none(),
            "two series have the same labels"
        );
    }
}

fn map(labels: &[(&str, &str)]) -> Labels {
    labels
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn span((offset, length): (i32, usize)) -> Vec<BucketSpan> {
    let span = BucketSpan {
        offset,
        length: u32::try_from(length).expect("a few"),
    };
    (length > 0).then_some(span).into_iter().collect()
}

fn deltas(counts: &[i64]) -> Vec<i64> {
    let before = [0].into_iter().chain(counts.iter().copied());
    counts
        .iter()
        .zip(before)
        .map(|(count, before)| count - before)
        .collect()
}
