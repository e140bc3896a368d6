//! The data of both servers: fifty minutes of realistic and of unusual series.
//!
//! Counters that reset, gauges, gaps, irregular intervals, staleness markers, series that begin
//! late or end early, classic histograms (some of them broken), info metrics, the same labels under
//! different names, names and values in many scripts, and unusual floats.
//!
//! Series are in ascending order of labels: Prometheus then assigns their ids in that order, and
//! sums in it.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use varve_model::staleness::STALE_NAN_BITS;

use super::native::Natives;
use crate::harness::{Random, WriteRequest, series};

/// Length of the data. Less than an hour: an empty head accepts samples in any order within it.
pub(super) const SPAN_MS: i64 = 50 * 60 * 1000;

/// Interval of regular samples.
const INTERVAL_MS: i64 = 15_000;

const STALE: f64 = f64::from_bits(STALE_NAN_BITS);

type Labels = BTreeMap<String, String>;
type Samples = Vec<(i64, f64)>;

/// What the generator knows about a metric.
#[derive(Debug, Default)]
pub(super) struct Metric {
    pub(super) name: String,
    /// It has native histograms.
    pub(super) native: bool,
    /// The values of each label but the name.
    pub(super) labels: BTreeMap<String, BTreeSet<String>>,
}

pub(super) struct Dataset {
    pub(super) start_ms: i64,
    random: Random,
    series: BTreeMap<Labels, Samples>,
    natives: Option<Natives>,
}

impl Dataset {
    pub(super) fn new(seed: u64, start_ms: i64) -> Self {
        let mut dataset = Self {
            start_ms,
            random: Random::new(seed),
            series: BTreeMap::new(),
            natives: None,
        };
        dataset.counters();
        dataset.gauges();
        dataset.odd_floats();
        dataset.gaps();
        dataset.histograms();
        dataset.infos();
        dataset.texts();
        dataset
    }

    /// Creates data that is mostly native histograms.
    pub(super) fn of_natives(seed: u64, start_ms: i64) -> Self {
        let natives = Some(Natives::new(seed, start_ms, start_ms + SPAN_MS));
        let mut dataset = Self {
            start_ms,
            random: Random::new(seed),
            series: BTreeMap::new(),
            natives,
        };
        dataset.gauges();
        dataset
    }

    /// Returns the bodies of the write requests.
    pub(super) fn bodies(&self) -> impl Iterator<Item = Vec<u8>> {
        iter::once(self.write_request().to_body())
            .chain(self.natives.as_ref().map(Natives::to_body))
    }

    pub(super) fn end_ms(&self) -> i64 {
        self.start_ms + SPAN_MS
    }

    fn write_request(&self) -> WriteRequest {
        WriteRequest::new(self.series.iter().map(|(labels, samples)| {
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            series(&labels, samples)
        }))
    }

    pub(super) fn n_samples(&self) -> usize {
        self.series.values().map(Vec::len).sum()
    }

    pub(super) fn metrics(&self) -> Vec<Metric> {
        let mut metrics: BTreeMap<&str, Metric> = BTreeMap::new();
        let natives = self.natives.iter().flat_map(Natives::labels);
        for (labels, native) in self
            .series
            .keys()
            .map(|labels| (labels, false))
            .chain(natives.map(|labels| (labels, true)))
        {
            let name = &labels["__name__"];
            let new = || Metric {
                name: name.clone(),
                native,
                ..Metric::default()
            };
            let metric = metrics.entry(name).or_insert_with(new);
            for (name, value) in labels.iter().filter(|(name, _)| *name != "__name__") {
                metric
                    .labels
                    .entry(name.clone())
                    .or_default()
                    .insert(value.clone());
            }
        }
        metrics.into_values().collect()
    }

    fn unit(&mut self) -> f64 {
        self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Adds a series with a sample every fifteen seconds; `value` receives the index of the sample.
    fn regular(
        &mut self,
        labels: &[(&str, &str)],
        value: impl FnMut(&mut Self, usize) -> Option<f64>,
    ) {
        let offset_ms = self.random.below(INTERVAL_MS as u64) as i64;
        let times = (self.start_ms + offset_ms..=self.end_ms())
            .step_by(INTERVAL_MS as usize)
            .collect();
        self.at_times(labels, times, value);
    }

    fn at_times(
        &mut self,
        labels: &[(&str, &str)],
        times: Vec<i64>,
        mut value: impl FnMut(&mut Self, usize) -> Option<f64>,
    ) {
        let samples = times
            .into_iter()
            .enumerate()
            .filter_map(|(n, time_ms)| Some((time_ms, value(self, n)?)));
        let samples = samples.collect();
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        let labels = labels
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert!(
            self.series.insert(labels, samples).is_none(),
            "two series have the same labels"
        );
    }

    fn counters(&mut self) {
        for job in ["api", "db"] {
            for instance in INSTANCES {
                for (code, method) in [
                    ("200", "get"),
                    ("200", "post"),
                    ("404", "get"),
                    ("500", "post"),
                ] {
                    let mut count = 0.0;
                    self.regular(
                        &[
                            ("__name__", "http_requests_total"),
                            ("job", job),
                            ("instance", instance),
                            ("code", code),
                            ("method", method),
                        ],
                        |data, _| {
                            count = if data.chance(0.02) {
                                0.0
                            } else {
                                count + data.random.below(20) as f64
                            };
                            Some(count)
                        },
                    );
                }
                for mode in ["idle", "user", "system"] {
                    let mut seconds = 1e4 * self.unit();
                    self.regular(
                        &[
                            ("__name__", "cpu_seconds_total"),
                            ("job", job),
                            ("instance", instance),
                            ("mode", mode),
                        ],
                        |data, _| {
                            seconds = if data.chance(0.01) {
                                0.25
                            } else {
                                seconds + 15.0 * data.unit()
                            };
                            (!data.chance(0.05)).then_some(seconds)
                        },
                    );
                }
            }
        }
    }

    fn gauges(&mut self) {
        for job in ["api", "db", "node"] {
            for instance in INSTANCES {
                let labels = |name| [("__name__", name), ("job", job), ("instance", instance)];
                self.regular(&labels("memory_bytes"), |data, _| {
                    Some((data.unit() * 1e10).floor())
                });
                self.regular(&labels("memory_limit_bytes"), |_, _| Some(8e9));
                self.regular(&labels("queue_length"), |data, _| {
                    Some(data.random.below(4) as f64)
                });
                let mut alive = true;
                self.regular(&labels("up"), |data, _| {
                    let before = std::mem::replace(&mut alive, !data.chance(0.1));
                    match (before, alive) {
                        (_, true) => Some(1.0),
                        (true, false) => Some(0.0),
                        (false, false) => Some(STALE),
                    }
                });
                for sensor in ["1", "2", "10"] {
                    let mut celsius = 0.0;
                    self.regular(
                        &[
                            ("__name__", "temperature_celsius"),
                            ("job", job),
                            ("instance", instance),
                            ("sensor", sensor),
                        ],
                        |data, _| {
                            celsius += data.unit() - 0.5;
                            Some(celsius)
                        },
                    );
                }
            }
        }
    }

    fn odd_floats(&mut self) {
        let odd: [(&str, &[f64]); 9] = [
            ("nan", &[f64::NAN]),
            ("inf", &[f64::INFINITY]),
            ("-inf", &[f64::NEG_INFINITY]),
            ("-0", &[-0.0, 0.0]),
            (
                "mixed",
                &[
                    1.0,
                    f64::NAN,
                    -2.5,
                    f64::INFINITY,
                    3.0,
                    f64::NEG_INFINITY,
                    0.1,
                    -0.0,
                ],
            ),
            ("some nan", &[1.5, f64::NAN, 2.5, 3.5]),
            ("huge", &[f64::MAX, 1e308, -1e300, f64::MAX]),
            ("tiny", &[1e-300, 2.5e-290, -2.5e-300, 1e-295]),
            ("cancelling", &[1e16, 1.0, -1e16, 0.1, 1e100, 3.0, -1e100]),
        ];
        for (kind, values) in odd {
            self.regular(
                &[("__name__", "odd_floats"), ("job", "api"), ("kind", kind)],
                |_, n| Some(values[n % values.len()]),
            );
        }
    }

    fn gaps(&mut self) {
        let (start_ms, end_ms) = (self.start_ms, self.end_ms());
        let minutes = |from: i64, to: i64, every_ms: usize| {
            (start_ms + from * 60_000..=start_ms + to * 60_000)
                .step_by(every_ms)
                .collect::<Vec<_>>()
        };
        let sparse = [
            ("late", minutes(30, 50, 15_000)),
            ("early", minutes(0, 12, 15_000)),
            ("middle", minutes(15, 25, 7_000)),
            (
                "twice",
                [minutes(3, 10, 20_000), minutes(40, 45, 20_000)].concat(),
            ),
            ("rare", minutes(0, 50, 270_000)),
            ("too rare", minutes(0, 50, 420_000)),
            ("once", vec![start_ms + 25 * 60_000 + 1]),
            ("fast", minutes(20, 24, 500)),
        ];
        for (kind, times) in sparse {
            let last = times.len() - 1;
            self.at_times(
                &[("__name__", "sparse"), ("job", "node"), ("kind", kind)],
                times,
                |data, n| {
                    // Half of them end with a staleness marker.
                    let ends = n == last && kind.len() % 2 == 0;
                    Some(if ends {
                        STALE
                    } else {
                        data.random.below(1000) as f64 / 8.0
                    })
                },
            );
        }
        for (instance, spread_ms) in INSTANCES.into_iter().zip([1_000, 30_000, 100_000]) {
            let mut times = vec![start_ms];
            while times[times.len() - 1] <= end_ms {
                times.push(times[times.len() - 1] + 1 + self.random.below(spread_ms * 2) as i64);
            }
            times.pop();
            self.at_times(
                &[
                    ("__name__", "irregular"),
                    ("job", "node"),
                    ("instance", instance),
                ],
                times,
                |data, n| Some(n as f64 + data.unit()),
            );
        }
    }

    fn histograms(&mut self) {
        for job in ["api", "db"] {
            for instance in INSTANCES {
                self.histogram(job, instance);
            }
        }
        // Invalid bounds, decreasing buckets, no unbounded bucket.
        for (kind, bounds) in [
            ("malformed", &["0.1", "x", "+Inf"][..]),
            ("decreasing", &["1", "2", "4", "8", "+Inf"]),
            ("bounded", &["1", "2"]),
            ("negative", &["-5", "-1", "0", "1", "+Inf"]),
            ("lonely", &["+Inf"]),
        ] {
            for (at, le) in bounds.iter().enumerate() {
                self.regular(
                    &[("__name__", "broken_bucket"), ("kind", kind), ("le", le)],
                    |data, n| {
                        let disorder = if kind == "decreasing" {
                            data.random.below(20) as f64
                        } else {
                            0.0
                        };
                        Some(n as f64 * (at + 1) as f64 + disorder)
                    },
                );
            }
            self.regular(&[("__name__", "broken_bucket"), ("kind", kind)], |_, n| {
                Some(n as f64)
            });
        }
    }

    fn histogram(&mut self, job: &str, instance: &str) {
        const BOUNDS: [&str; 6] = ["0.005", "0.05", "0.25", "1", "1e1", "+Inf"];
        let labels = |name| vec![("__name__", name), ("job", job), ("instance", instance)];
        let offset_ms = self.random.below(INTERVAL_MS as u64) as i64;
        let times: Vec<_> = (self.start_ms + offset_ms..=self.end_ms())
            .step_by(INTERVAL_MS as usize)
            .collect();
        let mut counts = [0.0; BOUNDS.len()];
        let mut history = Vec::new();
        for _ in &times {
            let mut sum = 0.0;
            for count in &mut counts {
                sum += self.random.below(5) as f64;
                *count += sum;
            }
            history.push(counts);
        }
        for (at, le) in BOUNDS.into_iter().enumerate() {
            let bucket = [labels("request_seconds_bucket"), vec![("le", le)]].concat();
            self.at_times(&bucket, times.clone(), |_, n| Some(history[n][at]));
        }
        self.at_times(&labels("request_seconds_count"), times.clone(), |_, n| {
            Some(history[n][BOUNDS.len() - 1])
        });
        self.at_times(&labels("request_seconds_sum"), times, |_, n| {
            Some(history[n][2] * 0.3)
        });
    }

    fn infos(&mut self) {
        for job in ["api", "db"] {
            for (instance, version) in INSTANCES.into_iter().zip(["1.0", "1.1", ""]) {
                let identity = [("job", job), ("instance", instance)];
                let named = |name| [&[("__name__", name)], &identity[..]].concat();
                let build = [
                    named("build_info"),
                    vec![("version", version), ("branch", "main")],
                ]
                .concat();
                self.regular(&build, |_, _| Some(1.0));
                // The cluster changes in the middle.
                for (cluster, half) in [("east", 0), ("west", 1)] {
                    let target = [
                        named("target_info"),
                        vec![("cluster", cluster), ("job_label", job)],
                    ]
                    .concat();
                    self.regular(&target, |_, n| match (n / 100 == half, n) {
                        (true, _) => Some(1.0),
                        (false, 100) => Some(STALE),
                        _ => None,
                    });
                }
            }
        }
    }

    fn texts(&mut self) {
        let texts = ["", "日本", "a\"b\\c", "new\nline", "😀", "é"];
        for (at, text) in texts.into_iter().enumerate() {
            self.regular(
                &[
                    ("__name__", "mésure.grad"),
                    ("straße", text),
                    ("job", "node"),
                ],
                |data, _| Some(at as f64 + (data.unit() * 8.0).floor() / 8.0),
            );
        }
    }
}

const INSTANCES: [&str; 3] = ["host-1:80", "host-2:80", "host-10:80"];
