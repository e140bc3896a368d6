//! Random queries: typed, so nearly all of them are valid, and about the data, so most have a
//! result.
//!
//! A seed always generates the same queries. Parts of PromQL that Prometheus 3.5, the oldest
//! compared release, does not have are not generated.

use varve_query::Steps;

use super::dataset::{Dataset, Metric};
use super::vocabulary::{
    ARITHMETIC, CALENDAR, COMPARISONS, DURATIONS, FOLDS, MAPS, NUMBERS, OF_HISTOGRAMS, OVER_RANGE,
    QUANTILES, ROUNDED_ARITHMETIC, ROUNDED_MAPS, SELECTORS_BY_NAME, SHIFTS, STEPS,
};
use crate::harness::Random;

/// A query and its times.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) query: String,
    pub(super) times: Steps,
}

pub(super) struct Generator {
    random: Random,
    metrics: Vec<Metric>,
    start_ms: i64,
    end_ms: i64,
    /// Number of enclosing subqueries.
    n_subqueries: usize,
    /// Selectors may have `@`.
    may_be_fixed: bool,
}

/// Maximum nesting of subqueries: each multiplies the steps.
const SUBQUERIES_MAX: usize = 2;

impl Generator {
    pub(super) fn new(seed: u64, dataset: &Dataset) -> Self {
        let (metrics, start_ms, end_ms) = (dataset.metrics(), dataset.start_ms, dataset.end_ms());
        Self {
            random: Random::new(seed),
            metrics,
            start_ms,
            end_ms,
            n_subqueries: 0,
            may_be_fixed: true,
        }
    }

    pub(super) fn question(&mut self) -> Question {
        let depth = 1 + self.below(4);
        let query = match self.below(20) {
            0 => self.scalar(depth),
            1..3 => self.rounded(depth),
            _ => self.vector(depth),
        };
        if self.one_in(2) {
            let time_ms = self.time_ms();
            // Only instant queries may return ranges.
            let query = if self.one_in(15) {
                self.matrix(depth.min(2))
            } else {
                query
            };
            return Question {
                query,
                times: Steps::instant(time_ms),
            };
        }
        let start_ms = self.time_ms();
        let step_ms = [1_000, 15_000, 60_000, 97_123, 10_500, 300_000, 30_000][self.below(7)];
        let end_ms =
            start_ms + step_ms * self.below(25) as i64 + self.below(step_ms as usize) as i64;
        Question {
            query,
            times: Steps::range(start_ms, end_ms, step_ms),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }

    /// Returns a time that is mostly within the data, and a whole second half of the time.
    fn time_ms(&mut self) -> i64 {
        let span_ms = self.end_ms - self.start_ms;
        let at = match self.below(20) {
            0 => -120_000 + self.below(120_000) as i64,
            1 => span_ms + self.below(400_000) as i64,
            _ => span_ms / 10 + self.below(span_ms as usize * 9 / 10) as i64,
        };
        let time_ms = self.start_ms + at;
        if self.one_in(2) {
            time_ms / 1000 * 1000
        } else {
            time_ms
        }
    }

    fn seconds(time_ms: i64) -> String {
        format!("{}.{:03}", time_ms / 1000, time_ms % 1000)
    }

    /// Generates a vector whose values may differ in their last digits.
    fn rounded(&mut self, depth: usize) -> String {
        let inner = self.vector(depth - 1);
        match self.below(5) {
            0 => format!(
                "({inner}) {} {}",
                self.of(&ROUNDED_ARITHMETIC),
                self.scalar(depth - 1)
            ),
            1 => format!(
                "{} {} ({inner})",
                self.scalar(depth - 1),
                self.of(&ROUNDED_ARITHMETIC)
            ),
            // Go's reduction of large angles is less exact.
            2 => format!("{}(({inner}) % 100)", self.of(&["sin", "cos", "tan"])),
            _ => format!("{}({inner})", self.of(&ROUNDED_MAPS)),
        }
    }

    // Types.

    fn scalar(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.of(&NUMBERS).to_owned();
        }
        match self.below(10) {
            0..4 => self.of(&NUMBERS).to_owned(),
            4 => "time()".to_owned(),
            5 => "pi()".to_owned(),
            6 | 7 => {
                let inner = self.one_series(depth - 1);
                format!("scalar({inner})")
            }
            8 => format!("-({})", self.scalar(depth - 1)),
            _ => {
                let (lhs, rhs) = (self.scalar(depth - 1), self.scalar(depth - 1));
                let op = if self.one_in(4) {
                    format!("{} bool", self.of(&COMPARISONS))
                } else {
                    self.of(&ARITHMETIC).to_owned()
                };
                format!("({lhs} {op} {rhs})")
            }
        }
    }

    /// Generates a vector that mostly has one series.
    fn one_series(&mut self, depth: usize) -> String {
        let fold = self.of(&FOLDS);
        format!("{fold}({})", self.vector(depth))
    }

    fn vector(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.selector();
        }
        match self.below(100) {
            0..8 => self.selector(),
            8..32 => self.over_range(depth),
            32..54 => self.aggregation(depth),
            54..74 => self.binary(depth),
            74..79 => self.set_operation(depth),
            79..88 => self.call(depth),
            88..91 => self.relabeled(depth),
            91..95 => self.of_buckets(depth),
            95 => self.absent(depth),
            96 => self.info(),
            97 => format!("-{}", self.parenthesised(depth - 1)),
            98 => format!("vector({})", self.scalar(depth - 1)),
            _ => self.parenthesised(depth - 1),
        }
    }

    fn parenthesised(&mut self, depth: usize) -> String {
        format!("({})", self.vector(depth))
    }

    fn matrix(&mut self, depth: usize) -> String {
        let range = self.of(&DURATIONS);
        let inner = if depth == 0 || self.n_subqueries == SUBQUERIES_MAX || self.below(3) > 0 {
            format!("{}[{range}]", self.plain_selector())
        } else {
            self.n_subqueries += 1;
            let (inner, step) = (self.vector(depth - 1), self.of(&STEPS));
            self.n_subqueries -= 1;
            format!("({inner})[{range}:{step}]")
        };
        inner + &self.modifiers()
    }

    // Selectors.

    fn selector(&mut self) -> String {
        self.plain_selector() + &self.modifiers()
    }

    fn modifiers(&mut self) -> String {
        let mut modifiers = String::new();
        if self.one_in(8) {
            modifiers += &format!(" offset {}", self.of(&SHIFTS));
        }
        if self.may_be_fixed && self.one_in(12) {
            let at = match self.below(3) {
                0 => "start()".to_owned(),
                1 => "end()".to_owned(),
                _ => Self::seconds(self.time_ms()),
            };
            modifiers = if self.one_in(2) {
                format!("{modifiers} @ {at}")
            } else {
                format!(" @ {at}{modifiers}")
            };
        }
        modifiers
    }

    fn plain_selector(&mut self) -> String {
        if self.one_in(40) {
            return self.of(&SELECTORS_BY_NAME).to_owned();
        }
        let metric = self.metric();
        let matchers = match self.below(6) {
            0..3 => Vec::new(),
            3 | 4 => vec![self.matcher(metric)],
            _ => vec![self.matcher(metric), self.matcher(metric)],
        };
        print_selector(&self.metrics[metric].name, &matchers)
    }

    /// Returns a metric, mostly one with native histograms if there are any.
    fn metric(&mut self) -> usize {
        let natives: Vec<_> = (0..self.metrics.len())
            .filter(|&at| self.metrics[at].native)
            .collect();
        // Without native histograms the queries of a seed stay the same.
        if natives.is_empty() || self.one_in(4) {
            self.below(self.metrics.len())
        } else {
            natives[self.below(natives.len())]
        }
    }

    fn matcher(&mut self, metric: usize) -> String {
        let labels = &self.metrics[metric].labels;
        let (n_labels, label) = (
            labels.len(),
            self.random.below(labels.len() as u64) as usize,
        );
        assert!(n_labels > 0, "every metric has a label");
        let (name, values) = self.metrics[metric]
            .labels
            .iter()
            .nth(label)
            .expect("it is below their number");
        let values: Vec<_> = values.iter().cloned().collect();
        let name = quoted_if_needed(name);
        let value = &values[self.below(values.len())];
        let prefix: String = value.chars().take(1).collect();
        match self.below(9) {
            0..3 => format!("{name}={value:?}"),
            3 => format!("{name}!={value:?}"),
            4 => format!("{name}=~{:?}", format!("{}.*", escape(&prefix))),
            5 => format!("{name}!~{:?}", format!("{}|x.+", escape(value))),
            6 => format!(
                "{name}=~{:?}",
                format!("{}|(?i:{})", escape(&values[0]), escape(value))
            ),
            7 => format!("{name}=~\".+\""),
            _ => format!("{name}!=\"\""),
        }
    }

    // Functions.

    fn over_range(&mut self, depth: usize) -> String {
        let matrix = self.matrix(depth - 1);
        match self.below(30) {
            0 => format!("quantile_over_time({}, {matrix})", self.of(&QUANTILES)),
            1 => format!("quantile_over_time({}, {matrix})", self.scalar(depth - 1)),
            2 => format!("predict_linear({matrix}, {})", self.scalar(depth - 1)),
            3 => format!("absent_over_time({matrix})"),
            4 => {
                let factors = ["0.5, 0.5", "0.1, 0.9", "0.9, 0.3", "0.5, 1", "0, 0.5"];
                format!(
                    "double_exponential_smoothing({matrix}, {})",
                    self.of(&factors)
                )
            }
            _ => format!("{}({matrix})", self.of(&OVER_RANGE)),
        }
    }

    fn call(&mut self, depth: usize) -> String {
        if self.one_in(20) {
            return format!("{}()", self.of(&CALENDAR));
        }
        let inner = self.vector(depth - 1);
        match self.below(16) {
            0 => format!("round({inner}, {})", self.scalar(depth - 1)),
            1 => format!(
                "clamp({inner}, {}, {})",
                self.scalar(depth - 1),
                self.scalar(depth - 1)
            ),
            2 => format!("clamp_min({inner}, {})", self.scalar(depth - 1)),
            3 => format!("clamp_max({inner}, {})", self.scalar(depth - 1)),
            4 => format!("{}({inner})", self.of(&CALENDAR)),
            5 => format!("timestamp({inner})"),
            6 => format!("timestamp({})", self.selector()),
            7 => {
                let labels = self.of(&[
                    "\"instance\"",
                    "\"kind\", \"job\"",
                    "\"sensor\"",
                    "\"mode\"",
                ]);
                format!(
                    "{}({inner}, {labels})",
                    self.of(&["sort_by_label", "sort_by_label_desc"])
                )
            }
            8 if self.one_in(4) || self.metrics.iter().any(|metric| metric.native) => {
                format!("{}({inner})", self.of(&OF_HISTOGRAMS))
            }
            _ => format!("{}({inner})", self.of(&MAPS)),
        }
    }

    fn relabeled(&mut self, depth: usize) -> String {
        let inner = self.vector(depth - 1);
        let args = self.of(&[
            r#""host", "$1", "instance", "(.*):.*""#,
            r#""instance", "${1}x$2", "instance", "(h.*-)(.*)""#,
            r#""job", "", "job", "api""#,
            r#""new", "value", "nothing", """#,
            r#""__name__", "renamed_$1", "__name__", "(.*)_.*""#,
            r#""new", "$name-$$-$9", "instance", "(?P<name>[a-z]+).*""#,
            r#""straße", "$1!", "straße", "(.).*""#,
            r#""kind", "same", "kind", ".*""#,
        ]);
        let joined = self.of(&[
            r#""joined", "-", "job", "instance""#,
            r#""instance", "", "job", "nothing""#,
            r#""job", ",", "le""#,
            r#""__name__", "_", "job", "__name__""#,
            r#""empty", "x""#,
        ]);
        if self.one_in(3) {
            format!("label_join({inner}, {joined})")
        } else {
            format!("label_replace({inner}, {args})")
        }
    }

    fn of_buckets(&mut self, depth: usize) -> String {
        let mut metric = self
            .of(&[
                "request_seconds_bucket",
                "request_seconds_bucket",
                "broken_bucket",
            ])
            .to_owned();
        if self.metrics.iter().any(|metric| metric.native) {
            let native = self.metric();
            metric.clone_from(&self.metrics[native].name);
        }
        let range = self.of(&["5m", "2m", "10m"]);
        let buckets = match self.below(6) {
            0 => metric,
            1 => format!("rate({metric}[{range}])"),
            2 => format!("sum by (le) (rate({metric}[{range}]))"),
            3 => format!("sum by (job, le, kind) (increase({metric}[{range}]))"),
            4 => format!("sum without (instance) ({metric}{})", self.modifiers()),
            _ => self.vector(depth - 1),
        };
        if self.one_in(4) {
            let bounds = self.of(&[
                "0, 0.1",
                "0.005, 1",
                "-Inf, 0.3",
                "0.2, +Inf",
                "NaN, 1",
                "2, 1",
                "-3, 0.5",
            ]);
            return format!("histogram_fraction({bounds}, {buckets})");
        }
        let q = if self.one_in(4) {
            self.scalar(depth - 1)
        } else {
            self.of(&QUANTILES).to_owned()
        };
        format!("histogram_quantile({q}, {buckets})")
    }

    fn absent(&mut self, depth: usize) -> String {
        match self.below(3) {
            0 => format!("absent({})", self.vector(depth - 1)),
            1 => "absent(nothing{job=\"api\", instance!=\"x\", kind=~\"y\"})".to_owned(),
            _ => format!("absent(sparse{{kind=\"middle\"}}{})", self.modifiers()),
        }
    }

    fn info(&mut self) -> String {
        let base = self.of(&[
            "http_requests_total",
            "rate(cpu_seconds_total[5m])",
            "memory_bytes",
            "up{job=\"api\"}",
        ]);
        let data = self.of(&[
            "",
            ", {cluster=~\".+\"}",
            ", {cluster=\"east\"}",
            ", {__name__=\"build_info\"}",
            ", {__name__=~\"(build|target)_info\", version=~\".*\"}",
            ", {nothing=\"x\"}",
        ]);
        format!("info({base}{data})")
    }

    // Aggregations.

    fn aggregation(&mut self, depth: usize) -> String {
        let grouping = self.grouping();
        let inner = self.vector(depth - 1);
        // Prometheus does not resolve `@` in parameters.
        let may_be_fixed = std::mem::replace(&mut self.may_be_fixed, false);
        let (op, param) = match self.below(14) {
            0 => (
                self.of(&["topk", "bottomk"]),
                Some(
                    self.of(&["1", "2", "3", "100", "0", "-1", "2.7"])
                        .to_owned(),
                ),
            ),
            1 => ("quantile", Some(self.of(&QUANTILES).to_owned())),
            2 => ("quantile", Some(self.scalar(depth - 1))),
            3 => (
                "count_values",
                Some(self.of(&["\"value\"", "\"job\"", "\"wért\""]).to_owned()),
            ),
            4 => ("limitk", Some(self.of(&["1", "2", "5", "0"]).to_owned())),
            5 => (
                "limit_ratio",
                Some(
                    self.of(&["0.5", "-0.5", "0.1", "-0.9", "1", "0", "3", "-3"])
                        .to_owned(),
                ),
            ),
            _ => (self.of(&FOLDS), None),
        };
        self.may_be_fixed = may_be_fixed;
        let param = param.map_or_else(String::new, |param| format!("{param}, "));
        if self.one_in(2) {
            format!("{op}{grouping} ({param}{inner})")
        } else {
            format!("{op}({param}{inner}){grouping}")
        }
    }

    fn grouping(&mut self) -> String {
        let labels = self.labels();
        match self.below(5) {
            0 | 1 => String::new(),
            2 | 3 => format!(" by ({labels})"),
            _ => format!(" without ({labels})"),
        }
    }

    fn labels(&mut self) -> &'static str {
        self.of(&[
            "job",
            "instance",
            "job, instance",
            "",
            "kind",
            "mode, code",
            "le",
            "job, nothing",
            "__name__, job",
            "sensor, method",
            "\"straße\"",
        ])
    }

    // Operators.

    fn binary(&mut self, depth: usize) -> String {
        let comparison = self.one_in(3);
        let op = if comparison {
            self.of(&COMPARISONS)
        } else {
            self.of(&ARITHMETIC)
        };
        let op = if comparison && self.one_in(2) {
            format!("{op} bool")
        } else {
            op.to_owned()
        };
        match self.below(12) {
            0 | 1 => format!(
                "({}) {op} {}",
                self.vector(depth - 1),
                self.scalar(depth - 1)
            ),
            2 | 3 => format!(
                "{} {op} ({})",
                self.scalar(depth - 1),
                self.vector(depth - 1)
            ),
            // The same series on both sides.
            4 | 5 => {
                let side = self.vector(depth - 1);
                format!("({side}) {op} ({side})")
            }
            6 => format!(
                "({}) {op} ({})",
                self.vector(depth - 1),
                self.vector(depth - 1)
            ),
            7 => {
                let [lhs, rhs] = ["memory_bytes", "memory_limit_bytes"].map(str::to_owned);
                let [lhs, rhs] = [lhs + &self.modifiers(), rhs + &self.modifiers()];
                format!("{lhs} {op} {rhs}")
            }
            8 | 9 => self.grouped_pair(depth, &op),
            _ => self.many_to_one(depth, &op),
        }
    }

    /// Generates an operator between two aggregations by the same labels.
    fn grouped_pair(&mut self, depth: usize, op: &str) -> String {
        let labels = self.of(&["job", "job, instance", "instance"]);
        let [a, b] = [self.of(&FOLDS), self.of(&FOLDS)];
        let (lhs, rhs) = (self.vector(depth - 1), self.vector(depth - 1));
        let matching = match self.below(3) {
            0 => String::new(),
            1 => format!(" on ({labels})"),
            _ => " ignoring (code, mode, nothing)".to_owned(),
        };
        format!("{a} by ({labels}) ({lhs}) {op}{matching} {b} by ({labels}) ({rhs})")
    }

    fn many_to_one(&mut self, depth: usize, op: &str) -> String {
        let labels = self.of(&["job", "job, instance", "instance", ""]);
        let (many, fold, one) = (
            self.vector(depth - 1),
            self.of(&FOLDS),
            self.vector(depth - 1),
        );
        let one = if self.one_in(3) && labels == "job, instance" {
            self.of(&["build_info", "target_info", "memory_limit_bytes"])
                .to_owned()
        } else {
            format!("{fold} by ({labels}) ({one})")
        };
        let include = self.of(&["", "", "version", "cluster, branch", "nothing", "job"]);
        // A label cannot both match and be included.
        let include = if include == "job" && labels.contains("job") {
            ""
        } else {
            include
        };
        match self.below(3) {
            0 => format!("{one} {op} on ({labels}) group_right ({include}) ({many})"),
            1 => format!(
                "({many}) {op} ignoring (code, mode, method, sensor, le) group_left ({include}) {one}"
            ),
            _ => format!("({many}) {op} on ({labels}) group_left ({include}) {one}"),
        }
    }

    fn set_operation(&mut self, depth: usize) -> String {
        let (lhs, rhs) = (self.vector(depth - 1), self.vector(depth - 1));
        let labels = self.labels();
        let matching = match self.below(4) {
            0 | 1 => String::new(),
            2 => format!(" on ({labels})"),
            _ => format!(" ignoring ({labels})"),
        };
        let op = self.of(&["and", "or", "unless", "or"]);
        format!("({lhs}) {op}{matching} ({rhs})")
    }
}

/// Formats a selector; names that are not identifiers are quoted.
fn print_selector(name: &str, matchers: &[String]) -> String {
    let quoted = quoted_if_needed(name);
    if quoted == name {
        return if matchers.is_empty() {
            quoted
        } else {
            format!("{quoted}{{{}}}", matchers.join(", "))
        };
    }
    let parts: Vec<_> = std::iter::once(&quoted).chain(matchers).cloned().collect();
    format!("{{{}}}", parts.join(", "))
}

fn quoted_if_needed(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}

/// Escapes special characters of regular expressions.
fn escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            (!c.is_alphanumeric())
                .then_some('\\')
                .into_iter()
                .chain([c])
        })
        .collect()
}
