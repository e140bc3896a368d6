//! Random queries, with late samples, deletes, imports, retention and restarts in between: a cached
//! result equals an uncached one. `VARVE_CACHE_CASES` sets the number of compared queries,
//! `VARVE_CACHE_SEED` the seed.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use varve_env::{Fs, RealFs};
use varve_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};
use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{MatchOp, SampleColumns};
use varve_tsdb::{ImportWriter, WalSync};

use super::*;
use crate::value::{MatrixSeries, Point};

const HOUR_MS: i64 = 3_600_000;
const CASES: u64 = 1500;

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Metrics of floats; `c_total` has counters, `b_bucket` and `d_bucket` classic buckets, `h` native
/// histograms, `x_total` floats and native histograms.
const METRICS: [&str; 7] = [
    "a", "b_total", "c_total", "b_bucket", "d_bucket", "h", "x_total",
];
const RANGES: [&str; 4] = ["1m", "3m", "5m", "20m"];

fn labels(metric: &str, i: u64) -> Labels {
    if metric == "d_bucket" {
        // Four buckets per pod, with different bounds. The native histogram of a pod has the same
        // labels without `le`.
        let pod = i / 4;
        let le = ["1", "2", "4", "+Inf"][i as usize % 4];
        let group = format!("g{}", pod % 2);
        let pod = format!("p{pod}");
        let mut pairs = [
            ("__name__", metric),
            ("g", &*group),
            ("pod", &*pod),
            ("le", le),
        ];
        return Labels::from_unsorted(&mut pairs).unwrap();
    }
    let (group, pod) = (format!("g{}", i % 2), format!("p{i}"));
    let mut pairs = vec![("__name__", metric), ("g", &*group), ("pod", &*pod)];
    // Histograms without the label `pod` have several buckets of one bound.
    let le = ["1", "2", "+Inf", "1.0", "1.00", "Inf"][i as usize / 2 % 6];
    if metric == "b_bucket" {
        pairs.push(("le", le));
    }
    Labels::from_unsorted(&mut pairs).unwrap()
}

/// A panel of a dashboard: a query with a range that moves.
struct Panel {
    query: String,
    step_ms: i64,
    phase_ms: i64,
    n_steps: i64,
}

struct World {
    random: Random,
    dir: TempDir,
    db: Option<Db>,
    engine: Engine,
    now_ms: i64,
    n_imports: u64,
    /// Number of compared results that were joined and have annotations.
    n_annotated_joins: u64,
    panels: Vec<Panel>,
}

impl World {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut world = Self {
            random: Random(seed),
            dir,
            db: None,
            engine: engine(0),
            now_ms: 1000 * HOUR_MS,
            n_imports: 0,
            n_annotated_joins: 0,
            panels: Vec::new(),
        };
        world.restart();
        (0..20).for_each(|_| world.scrape());
        world
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    /// Opens the store again. The cache of the process is lost.
    fn restart(&mut self) {
        self.db = None;
        let options = Options {
            shards: 2,
            wal_logs: 2,
            wal_sync: WalSync::Never,
            background: false,
            retention_ms: Some(6 * HOUR_MS),
            out_of_order_window_ms: HOUR_MS,
            series_idle_ms: HOUR_MS,
            ..Options::default()
        };
        let db = Db::open(self.dir.path(), options).unwrap();
        let matchers = vec![Matcher::new(MatchOp::Regexp, "i", ".*[13579]").unwrap()];
        db.set_retention(
            Some(6 * HOUR_MS),
            None,
            vec![RetentionRule {
                matchers,
                time_ms: Some(2 * HOUR_MS),
            }],
        );
        self.db = Some(db);
        // Small enough for evictions.
        self.engine = engine(self.random.pick(&[1 << 18, 1 << 22]));
    }

    fn value(&mut self) -> f64 {
        match self.random.below(20) {
            0 => 0.0,
            1 => -0.0,
            2 => f64::NAN,
            3 => f64::INFINITY,
            4 => self.random.below(4) as f64,
            _ => self.random.below(1 << 20) as f64 * 0.1,
        }
    }

    fn push(&mut self, batch: &mut WriteBatch, metric: &str, i: u64, timestamp_ms: i64) {
        let handle = self.db().series(&labels(metric, i)).unwrap();
        if self.random.one_in(40) {
            batch.push(
                handle,
                Sample {
                    timestamp_ms,
                    value: f64::from_bits(STALE_NAN_BITS),
                },
                0,
            );
        } else if metric == "h" || metric == "x_total" && self.random.one_in(3) {
            let mut histogram = self.histogram(timestamp_ms);
            if metric == "x_total" && self.random.one_in(2) {
                histogram.schema = CUSTOM_BUCKETS_SCHEMA;
                histogram.custom_bounds = self.random.pick(&[[1.0, 2.0], [1.0, 3.0]]).to_vec();
                histogram.positive_spans[0].offset = 0;
            }
            batch.push_histogram(handle, timestamp_ms, Arc::new(histogram), 0);
        } else {
            let value = match metric {
                "c_total" => (timestamp_ms / 700) as f64,
                // Cumulative counts, some of which are behind those of a lower bound.
                "d_bucket" => {
                    let count = timestamp_ms as f64 / 700.0 * (i % 4 + 1) as f64;
                    let behind = self.random.pick(&[0.0, 0.0, 0.0, 0.1, 70.0, 3e5]);
                    count - behind
                }
                _ => self.value(),
            };
            batch.push(
                handle,
                Sample {
                    timestamp_ms,
                    value,
                },
                0,
            );
        }
    }

    /// Returns a histogram whose counts grow with time, except for resets.
    fn histogram(&mut self, timestamp_ms: i64) -> Histogram {
        let n = (timestamp_ms / 1000 % 100_000) as u64;
        let positive = vec![n / self.random.pick(&[1, 1, 1, 1, 3]), n * 2];
        let (count, zero_count) = (positive.iter().sum(), 0);
        let reset_hint = self.random.pick(&[
            ResetHint::Unknown,
            ResetHint::Unknown,
            ResetHint::NoReset,
            ResetHint::Gauge,
        ]);
        Histogram {
            reset_hint,
            schema: self.random.pick(&[0, 0, 0, 1]),
            sum: self.value(),
            counts: HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset: 1,
                length: 2,
            }],
            ..Histogram::default()
        }
    }

    /// Appends the next samples of some series: some come later, some never, some are new.
    fn scrape(&mut self) {
        self.now_ms += self.random.pick(&[5_000, 15_000, 30_000, 61_000]);
        let mut batch = WriteBatch::default();
        // Series end and others begin as time passes.
        let first = (self.now_ms / HOUR_MS % 50) as u64;
        for metric in METRICS {
            let n_series = if metric == "d_bucket" { 12 } else { 6 };
            for i in first..first + n_series {
                if !self.random.one_in(5) {
                    let jitter_ms = self.random.below(3000) as i64;
                    self.push(&mut batch, metric, i, self.now_ms - jitter_ms);
                }
            }
        }
        self.db().append(&mut batch).unwrap();
    }

    fn late_samples(&mut self) {
        let mut batch = WriteBatch::default();
        let metric = self.random.pick(&METRICS);
        for _ in 0..=self.random.below(3) {
            let (i, age_ms) = (
                self.random.below(60),
                self.random.below(HOUR_MS as u64 + 60_000) as i64,
            );
            self.push(&mut batch, metric, i, self.now_ms - age_ms);
        }
        self.db().append(&mut batch).unwrap();
    }

    fn past_range(&mut self) -> TimeRange {
        let start_ms = self.now_ms - self.random.below(4 * HOUR_MS as u64) as i64;
        TimeRange {
            start_ms,
            end_ms: start_ms + self.random.below(HOUR_MS as u64) as i64,
        }
    }

    fn delete(&mut self) {
        let range = self.past_range();
        let group = self.random.pick(&["g0", "g1"]);
        let matchers = match self.random.below(3) {
            0 => vec![Matcher::equal("g", group)],
            1 => vec![Matcher::equal("__name__", self.random.pick(&METRICS))],
            _ => vec![
                Matcher::equal("__name__", self.random.pick(&METRICS)),
                Matcher::equal("g", group),
            ],
        };
        self.db().delete(matchers, range).unwrap();
    }

    fn import(&mut self) {
        let metric = self.random.pick(&["a", "b_total"]);
        let labels = labels(metric, self.random.below(60));
        let (mut samples, window_ms) = (SampleColumns::default(), 2 * HOUR_MS);
        let range = self.past_range();
        let window_end_ms = range.start_ms.div_euclid(window_ms) * window_ms + window_ms;
        for timestamp_ms in (range.start_ms..range.end_ms.min(window_end_ms)).step_by(17_000) {
            samples.push(Sample {
                timestamp_ms,
                value: self.value(),
            });
        }
        let dir = self.dir.path().join("import");
        std::fs::create_dir_all(&dir).unwrap();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        self.n_imports += 1;
        let pairs: BTreeSet<_> = labels.iter().collect();
        let mut writer =
            ImportWriter::create(&fs, &dir, self.n_imports, range.start_ms, pairs).unwrap();
        writer
            .add(&labels.iter().collect::<Vec<_>>(), &samples)
            .unwrap();
        writer.finish().unwrap();
        self.db().import().unwrap();
    }

    fn selector(&mut self) -> String {
        let metric = self.random.pick(&METRICS);
        let matchers = self.random.pick(&[
            "",
            "",
            "",
            "{g=\"g1\"}",
            "{pod!~\"p[12].*\"}",
            "{pod=\"none\"}",
        ]);
        match self.random.below(30) {
            0 => format!("{{__name__=~\"{metric}|a\",pod!=\"p3\"}}"),
            _ => format!("{metric}{matchers}"),
        }
    }

    fn shift(&mut self) -> String {
        match self.random.below(30) {
            0 => " offset 2m".to_owned(),
            1 => " offset -2m".to_owned(),
            2 => format!(" @ {}", self.now_ms / 1000 - 600),
            3 => self.random.pick(&[" @ start()", " @ end()"]).to_owned(),
            _ => String::new(),
        }
    }

    fn vector(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.random.below(8) {
                0 => format!("timestamp({}{})", self.selector(), self.shift()),
                1..=3 => format!("{}{}", self.selector(), self.shift()),
                _ => {
                    let function = self.random.pick(&[
                        "rate",
                        "increase",
                        "delta",
                        "sum_over_time",
                        "max_over_time",
                    ]);
                    let other = self.random.pick(&[
                        "last_over_time",
                        "count_over_time",
                        "deriv",
                        "changes",
                    ]);
                    let function = self.random.pick(&[function, other, "rate"]);
                    // A rate of a metric that is not called a counter has an annotation.
                    let selector = if self.random.one_in(3) {
                        self.selector()
                    } else {
                        "c_total".to_owned()
                    };
                    format!(
                        "{function}({selector}[{}]{})",
                        self.random.pick(&RANGES),
                        self.shift()
                    )
                }
            };
        }
        let by = self
            .random
            .pick(&["", "by (g) ", "by (pod) ", "without (pod) ", "by (g, le) "]);
        let on = self
            .random
            .pick(&["on (pod) ", "on (pod, g) ", "ignoring (le) ", "", "on (g) "]);
        let operator = self.random.pick(&["+", "/", "*", ">", "== bool", "-"]);
        match self.random.below(24) {
            0..=5 => {
                let op = self.random.pick(&[
                    "sum", "avg", "count", "min", "max", "stddev", "group", "sum", "sum",
                ]);
                format!("{op} {by}({})", self.vector(depth - 1))
            }
            6 => format!("quantile {by}(0.5, {})", self.vector(depth - 1)),
            7 => {
                let op = self
                    .random
                    .pick(&["topk", "bottomk", "limitk", "limit_ratio"]);
                let param = if op == "limit_ratio" { "0.5" } else { "2" };
                format!("{op} {by}({param}, {})", self.vector(depth - 1))
            }
            8 | 9 => format!(
                "{} {operator} {on}{}",
                self.vector(depth - 1),
                self.vector(depth - 1)
            ),
            10 | 11 => {
                let left = self
                    .random
                    .pick(&["group_left", "group_left (g)", "group_right"]);
                format!(
                    "{} * on (pod) {left} {}",
                    self.vector(depth - 1),
                    self.vector(depth - 1)
                )
            }
            12 => {
                let set = self.random.pick(&["and", "or", "unless"]);
                format!(
                    "{} {set} {on}{}",
                    self.vector(depth - 1),
                    self.vector(depth - 1)
                )
            }
            13 => format!("2 {operator} {}", self.vector(depth - 1)).replace("== bool", "+"),
            14 => {
                let function = self.random.pick(&["histogram_count(", "histogram_sum("]);
                format!("{function}sum by (le, g) ({}))", self.vector(depth - 1))
            }
            20 | 21 => self.quantile(depth),
            22 => self.annotated(),
            15 => format!(
                "label_replace({}, \"x\", \"$1\", \"pod\", \"p(.).*\")",
                self.vector(depth - 1)
            ),
            16 => {
                let steps = self.random.pick(&["10m:1m", "10m:", "3m:5m", "7m:90s"]);
                format!(
                    "max_over_time(({})[{steps}]{})",
                    self.vector(depth - 1),
                    self.shift()
                )
            }
            17 => format!(
                "{}({})",
                self.random.pick(&["abs", "absent", "sort", "-"]),
                self.vector(depth - 1)
            ),
            18 => format!("{} + scalar({})", self.vector(depth - 1), self.vector(0)),
            _ => format!("count_values {by}(\"v\", {})", self.vector(depth - 1)),
        }
    }

    /// Returns a quantile of histograms, most of which need raised buckets.
    fn quantile(&mut self, depth: u32) -> String {
        let range = self.random.pick(&RANGES);
        let shift = self.shift();
        let input = match self.random.below(9) {
            0 => format!("sum by (le, g) ({})", self.vector(depth - 1)),
            1 => format!("rate(d_bucket[{range}]) or rate(h[{range}])"),
            2 => self.vector(depth - 1),
            3 => "d_bucket or x_total".to_owned(),
            4 => format!("rate(d_bucket[{range}]{shift})"),
            5 => format!("sum by (le) (d_bucket{shift})"),
            _ => format!("sum by (le, g) (rate(d_bucket[{range}]{shift}))"),
        };
        let quantile = self.random.pick(&["0.9", "0.5", "2", "-1", "NaN"]);
        let varying =
            self.random
                .pick(&["scalar(sum(d_bucket{le=\"1\"}) % 3)", "scalar(a)", "0.9"]);
        let quantile = self.random.pick(&["0.9", "0.5", quantile, varying]);
        match self.random.below(8) {
            0 => format!("histogram_quantiles({input}, \"q\", {quantile}, 0.1)"),
            1 => format!("histogram_fraction(0, 2, {input})"),
            2 => format!(
                "histogram_quantile(0.99, {input}) - histogram_quantile({quantile}, {input})"
            ),
            3 => {
                let selector = self
                    .random
                    .pick(&["d_bucket{g=\"g1\"}", "b_bucket", "d_bucket"]);
                let other = format!("sum by (le, g) (rate({selector}[{range}]))");
                format!(
                    "histogram_quantile({quantile}, {input}) or histogram_quantile(0.5, {other})"
                )
            }
            _ => format!("histogram_quantile({quantile}, {input})"),
        }
    }

    /// Returns an expression that has annotations at some steps.
    fn annotated(&mut self) -> String {
        let range = self.random.pick(&RANGES);
        let metric = self.random.pick(&["h", "x_total", "x_total", "a"]);
        let by = self.random.pick(&["", "by (g) "]);
        let quantile = self.random.pick(&["2", "0.5", "-1", "scalar(a)"]);
        match self.random.below(16) {
            0 => format!("quantile {by}({quantile}, {metric})"),
            1 => format!("quantile_over_time({quantile}, {metric}[{range}])"),
            2 => format!("limit_ratio(2, {metric})"),
            3 => format!("topk {by}(2, {metric})"),
            4 => format!("stddev {by}({metric})"),
            5 => format!("max {by}({metric})"),
            6 => format!("{metric} + 1 - (2 > {metric})"),
            7 => format!("sum {by}({metric}) > on (g) group_right sum by (g, pod) (x_total)"),
            8 => format!("{metric} - on (pod) x_total"),
            9 => format!("delta({metric}[{range}])"),
            10 => format!("irate({metric}[{range}])"),
            11 => format!("sum_over_time({metric}[{range}])"),
            12 => format!("avg {by}({metric})"),
            13 => format!("max_over_time({metric}[{range}])"),
            14 => format!("rate({metric}[{range}]) / rate({metric}[20m])"),
            _ => format!("sum {by}(rate({metric}[{range}]))"),
        }
    }

    fn panel(&mut self) -> Panel {
        let depth = self.random.below(4) as u32;
        let step_ms = self.random.pick(&[10_000, 15_000, 60_000, 120_000]);
        let phase_ms = if self.random.one_in(3) {
            self.random.below(step_ms as u64) as i64
        } else {
            0
        };
        Panel {
            query: self.vector(depth),
            step_ms,
            phase_ms,
            n_steps: self.random.pick(&[1, 3, 20, 61, 121]),
        }
    }

    /// Returns a panel, and the times to evaluate it at: mostly up to now.
    fn query(&mut self) -> (usize, crate::Steps) {
        if self.panels.len() < 12 {
            let panel = self.panel();
            self.panels.push(panel);
        } else if self.random.one_in(25) {
            let (at, panel) = (self.random.below(12) as usize, self.panel());
            self.panels[at] = panel;
        }
        let at = self.random.below(self.panels.len() as u64) as usize;
        let behind = self.random.pick(&[0, 0, 0, 0, 1, 3, 40]);
        let length = self.random.pick(&[0, 0, 0, 0, 5, -7]);
        let &Panel {
            step_ms,
            phase_ms,
            n_steps,
            ..
        } = &self.panels[at];
        let end_ms = (self.now_ms.div_euclid(step_ms) - behind) * step_ms + phase_ms;
        if n_steps == 1 {
            return (at, crate::Steps::instant(end_ms));
        }
        let start_ms = end_ms - (n_steps + length).max(1) * step_ms;
        (at, crate::Steps::range(start_ms, end_ms, step_ms))
    }

    /// Changes the store, or compares a query. Returns `true` if it compared one.
    fn step(&mut self) -> bool {
        match self.random.below(1000) {
            0..150 => self.scrape(),
            150..200 => self.late_samples(),
            200..204 => self.delete(),
            204..207 => self.import(),
            207..209 => drop(self.db().flush().unwrap()),
            209..211 => self.db().compact().unwrap(),
            211 => self.db().compact_fully().unwrap(),
            212 => self.db().confirm_retention().unwrap(),
            213 => self.restart(),
            _ => {
                self.compare();
                return true;
            }
        }
        false
    }

    fn compare(&mut self) {
        let (at, times) = self.query();
        let stats = self.random.pick(&[StatsMode::Off, StatsMode::AsWritten]);
        let request = Request {
            stats,
            ..Request::new(&self.panels[at].query, times)
        };
        let ctx = ReadContext::unbounded();
        let cached = self.engine.run(
            self.db(),
            &ctx,
            &Request {
                use_cache: true,
                ..request.clone()
            },
        );
        let uncached = self.engine.run(self.db(), &ctx, &request);
        if let Ok(result) = &cached
            && let Some(stats) = &result.stats
            && (1..times.n_steps).contains(&stats.n_cached_steps)
            && !result.annotations.is_empty()
        {
            self.n_annotated_joins += 1;
        }
        if !are_same(&cached, &uncached) {
            let (cached, uncached) = (print(&cached), print(&uncached));
            let differs = cached
                .bytes()
                .zip(uncached.bytes())
                .take_while(|(a, b)| a == b)
                .count()
                .saturating_sub(300);
            let part = |text: &str| text.chars().skip(differs).take(900).collect::<String>();
            let mut report = String::new();
            writeln!(
                report,
                "{} at {times:?}, from byte {differs}:",
                request.query
            )
            .unwrap();
            writeln!(
                report,
                "  cached: {}\nuncached: {}",
                part(&cached),
                part(&uncached)
            )
            .unwrap();
            panic!("{report}");
        }
    }
}

/// Prints histograms. A response does not have the hint that no counter was reset, which depends on
/// the start of the evaluation: the first sample has no predecessor.
fn without_hints(printed: &impl std::fmt::Debug) -> String {
    format!("{printed:?}").replace("NoReset", "Unknown")
}

/// Compares two results without printing them, except for native histograms.
fn are_same(a: &Result<QueryResult, Error>, b: &Result<QueryResult, Error>) -> bool {
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(a), Err(b)) => return a.to_string() == b.to_string(),
        _ => return false,
    };
    let is_same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let is_same_matrix = |a: &[Arc<MatrixSeries>], b: &[Arc<MatrixSeries>]| {
        let is_same_point = |(a, b): (&Point, &Point)| {
            a.timestamp_ms == b.timestamp_ms && is_same(a.value, b.value)
        };
        let is_same_series = |(a, b): (&Arc<MatrixSeries>, &Arc<MatrixSeries>)| {
            a.labels == b.labels
                && a.points.len() == b.points.len()
                && a.points.iter().zip(&b.points).all(is_same_point)
                && a.histograms.len() == b.histograms.len()
                && (a.histograms.is_empty()
                    || without_hints(&a.histograms) == without_hints(&b.histograms))
        };
        a.len() == b.len() && a.iter().zip(b).all(is_same_series)
    };
    let is_same_value = match (&a.value, &b.value) {
        (Value::Matrix(a), Value::Matrix(b)) => is_same_matrix(a, b),
        (a, b) => without_hints(a) == without_hints(b),
    };
    is_same_value
        && a.annotations.warnings().eq(b.annotations.warnings())
        && a.annotations.infos().eq(b.annotations.infos())
}

#[test]
fn cached_results_equal_uncached_ones() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (cases, seed) = (
        number("VARVE_CACHE_CASES", CASES),
        number("VARVE_CACHE_SEED", 7),
    );
    let (mut n_compared, mut found) = (0, CacheStats::default());
    let mut n_annotated_joins = 0;
    for part in 0.. {
        // A new store from time to time keeps each one small.
        let mut world = World::new(seed.wrapping_add(part));
        let mut add = |stats: CacheStats| {
            found.n_hits += stats.n_hits;
            found.n_partial_hits += stats.n_partial_hits;
            found.n_misses += stats.n_misses;
            found.n_evicted += stats.n_evicted;
        };
        for _ in 0..20_000 {
            let engine = world.engine.clone();
            let is_compared = world.step();
            n_compared += u64::from(is_compared);
            if !is_compared && engine.cache_stats() != world.engine.cache_stats() {
                add(engine.cache_stats());
            }
            if n_compared == cases {
                break;
            }
        }
        add(world.engine.cache_stats());
        n_annotated_joins += world.n_annotated_joins;
        if n_compared == cases {
            break;
        }
    }
    println!(
        "{n_compared} queries with seed {seed}: {found:?}, {n_annotated_joins} annotated joins"
    );
    // Otherwise the test compares nothing.
    assert!(
        found.n_hits > cases / 200
            && found.n_partial_hits > cases / 100
            && n_annotated_joins > cases / 100,
        "{found:?}, {n_annotated_joins} annotated joins"
    );
}
