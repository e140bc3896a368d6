//! Generated requests: queries from templates, bombs, and the other reads of the store.

use std::iter;

use varve_model::{MatchOp, Matcher, SampleColumns, TimeRange};
use varve_promql::Features;
use varve_query::{Engine, QueryResult, Request as QueryRequest, Steps};
use varve_tsdb::{Db, ReadContext};

use crate::random::Random;
use crate::store::END_MS;
use crate::texts;

/// A read request.
pub(crate) enum Request {
    /// Evaluates a query.
    Query(String, Steps),
    /// Parses a query and prints it.
    Format(String),
    /// Selects series and reads their labels, and the samples if `samples` is `true`.
    Select {
        matchers: Vec<Matcher>,
        samples: bool,
    },
    /// Lists label names, or the values of a label.
    Labels {
        name: Option<&'static str>,
        matchers: Vec<Matcher>,
    },
    /// Selects exemplars.
    Exemplars(Vec<Vec<Matcher>>),
    /// Reads the cardinality statistics.
    Cardinality(usize),
    /// Expands the template of an annotation.
    Template(String),
    /// Reads a rule file that a client sends.
    RuleFile(String),
}

/// Result of a request. Dropped after its memory is measured.
pub(crate) enum Completed {
    Query { _result: Box<QueryResult> },
    Other,
    Failed,
}

pub(crate) fn features() -> Features {
    Features {
        delayed_name_removal: false,
        ..Features::all()
    }
}

impl Request {
    /// Generates a request.
    pub(crate) fn random(random: &mut Random) -> Self {
        match random.below(24) {
            0 => Self::Format(query(random, 6)),
            1 => Self::Select {
                matchers: matchers(random),
                samples: false,
            },
            2 => Self::Select {
                matchers: matchers(random),
                samples: true,
            },
            3 => Self::Labels {
                name: None,
                matchers: matchers(random),
            },
            4 => Self::Labels {
                name: Some(random.pick(&["i", "le", "v", "__name__", "absent"])),
                matchers: matchers(random),
            },
            5 => Self::Exemplars((0..random.size(300)).map(|_| matchers(random)).collect()),
            6 => Self::Cardinality(random.size(10_000)),
            7..=9 => Self::Query(bomb(random), times(random)),
            10..=12 => Self::Template(texts::template(random)),
            13 => Self::RuleFile(texts::rule_file(random)),
            _ => Self::Query(query(random, 4), times(random)),
        }
    }

    /// Runs the request.
    pub(crate) fn run(&self, db: &Db, engine: &Engine, ctx: &ReadContext) -> Completed {
        match self.try_run(db, engine, ctx) {
            Ok(completed) => completed,
            Err(_expected) => Completed::Failed,
        }
    }

    fn try_run(
        &self,
        db: &Db,
        engine: &Engine,
        ctx: &ReadContext,
    ) -> Result<Completed, varve_query::Error> {
        match self {
            Self::Query(text, times) => {
                let result = engine.run(db, ctx, &QueryRequest::new(text, *times))?;
                return Ok(Completed::Query {
                    _result: Box::new(result),
                });
            }
            Self::Format(text) => drop(varve_promql::prettify_within(
                ctx,
                engine.parse(ctx, text)?.expr(),
            )?),
            Self::Select {
                matchers,
                samples: false,
            } => {
                for series in db.select_labels(ctx, matchers, TimeRange::ALL)? {
                    series?;
                }
            }
            Self::Select {
                matchers,
                samples: true,
            } => {
                for series in db.select(ctx, matchers, TimeRange::ALL)? {
                    series?.read(&mut SampleColumns::default())?;
                }
            }
            Self::Labels {
                name: None,
                matchers,
            } => drop(db.label_names(ctx, matchers, TimeRange::ALL)?),
            Self::Labels {
                name: Some(name),
                matchers,
            } => drop(db.label_values(ctx, name, matchers, TimeRange::ALL)?),
            Self::Exemplars(selectors) => drop(db.exemplars(ctx, selectors, TimeRange::ALL)?),
            Self::Cardinality(limit) => drop(db.cardinality(ctx, *limit)?),
            Self::Template(text) => texts::expand(db, engine, ctx, text)?,
            Self::RuleFile(text) => texts::read_rule_file(ctx, text)?,
        }
        Ok(Completed::Other)
    }

    /// Returns a description of about 400 characters at most.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Query(text, times) => {
                format!("query of {} bytes, {times:?}: {}", text.len(), cut(text))
            }
            Self::Format(text) => format!("format of {} bytes: {}", text.len(), cut(text)),
            Self::Select { matchers, samples } => {
                format!(
                    "select, {} matchers, samples {samples}: {}",
                    matchers.len(),
                    cut(&format!("{matchers:?}"))
                )
            }
            Self::Labels { name, matchers } => {
                format!(
                    "labels {name:?}, {} matchers: {}",
                    matchers.len(),
                    cut(&format!("{matchers:?}"))
                )
            }
            Self::Exemplars(selectors) => format!("exemplars of {} selectors", selectors.len()),
            Self::Cardinality(limit) => format!("cardinality with limit {limit}"),
            Self::Template(text) => format!("template of {} bytes: {}", text.len(), cut(text)),
            Self::RuleFile(text) => format!("rule file of {} bytes: {}", text.len(), cut(text)),
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}

fn times(random: &mut Random) -> Steps {
    if random.chance(2) {
        return Steps::instant(END_MS);
    }
    let n_steps = random.size(11_000) as i64;
    let step_ms = [1, 1000, 15_000, 86_400_000, 1 << 40][random.below(5)];
    let start_ms = random.below(2 * END_MS as usize) as i64 - END_MS;
    let end_ms = start_ms.saturating_add(n_steps.saturating_mul(step_ms));
    Steps::range(start_ms, end_ms, step_ms)
}

/// Selectors. The first ten have no modifiers, so that they can have a range.
const SELECTORS: &[&str] = &[
    "m",
    "m{i=~\"1.*\"}",
    "m{i!~\".*[37]\", j=\"3\"}",
    "{__name__=~\".+\"}",
    "h",
    "h{i=~\"[0-9]\"}",
    "b_bucket",
    "long",
    "wide",
    "nothing",
    "m offset 1m",
    "m @ 300",
    "m @ end()",
];

const RANGES: &[&str] = &["5s", "1m", "10m", "1w", "100y"];

/// Templates of instant vectors. `V`: instant vector, `R`: range vector, `S`: scalar.
const VECTORS: &[&str] = &[
    "sum(V)",
    "avg by (i, j) (V)",
    "count without (i) (V)",
    "stddev(V)",
    "topk(S, V)",
    "limitk(3, V)",
    "limit_ratio(0.5, V)",
    "quantile by (job) (S, V)",
    "count_values(\"v\", V)",
    "group(V)",
    "abs(V)",
    "clamp(V, S, S)",
    "round(V, S)",
    "-V",
    "V + S",
    "S / V > 1",
    "V == bool S",
    "V + V",
    "V * on (i) group_left () V",
    "V / ignoring (job) V",
    "V and V",
    "V or V",
    "V unless on (i) V",
    "sort_desc(V)",
    "sort_by_label(V, \"i\", \"j\")",
    "timestamp(V)",
    "absent(V)",
    "vector(S)",
    "info(V)",
    "histogram_quantile(S, V)",
    "histogram_fraction(S, S, V)",
    "histogram_avg(V)",
    "histogram_stddev(V)",
    "histogram_quantiles(V, \"q\", 0.1, 0.5, 0.9)",
    "label_replace(V, \"x\", \"$1-$1-$1\", \"i\", \"(.*)\")",
    "label_join(V, \"x\", \"-\", \"i\", \"j\", \"i\")",
    "rate(R)",
    "increase(R)",
    "delta(R)",
    "irate(R)",
    "avg_over_time(R)",
    "quantile_over_time(S, R)",
    "stddev_over_time(R)",
    "mad_over_time(R)",
    "predict_linear(R, S)",
    "double_exponential_smoothing(R, 0.5, 0.5)",
    "absent_over_time(R)",
    "changes(R)",
    "present_over_time(R)",
    "first_over_time(R)",
    "ts_of_max_over_time(R)",
    "max_over_time((V)[10m:5s])",
    "sum_over_time((V)[1h:1s])",
    "(V)",
    "V",
];

const SCALARS: &[&str] = &[
    "1",
    "0.5",
    "-Inf",
    "NaN",
    "time()",
    "scalar(sum(m))",
    "2 ^ 3",
    "1e300",
];

/// Returns a query of nested templates.
fn query(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.chance(6) {
        return random.pick(SELECTORS).to_owned();
    }
    let template = random.pick(VECTORS);
    let mut text = String::new();
    for c in template.chars() {
        match c {
            'V' => text.push_str(&format!("({})", query(random, depth - 1))),
            'R' => text.push_str(&format!(
                "{}[{}]",
                random.pick(&SELECTORS[..10]),
                random.pick(RANGES)
            )),
            'S' => text.push_str(random.pick(SCALARS)),
            _ => text.push(c),
        }
    }
    text
}

/// Returns a query that tries to use much memory or time with few bytes.
fn bomb(random: &mut Random) -> String {
    let n = random.size(20_000);
    let repeated =
        |text: &str, separator: &str| iter::repeat_n(text, n).collect::<Vec<_>>().join(separator);
    let numbered = |prefix: &str| {
        (0..n)
            .map(|i| format!("{prefix}{i}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let quoted = |prefix: &str| {
        (0..n)
            .map(|i| format!("\"{prefix}{i}\""))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let vector = query(random, 1);
    match random.below(22) {
        0 => format!(
            "label_replace({vector}, \"d\", \"{}\", \"v\", \"(.*)\")",
            repeated("$1", "")
        ),
        1 => format!(
            "label_replace(long, \"d\", \"{}\", \"v\", \"(.*)\")",
            repeated("$1", "")
        ),
        2 => format!(
            "label_join(long, \"d\", \",\", {})",
            repeated("\"v\"", ", ")
        ),
        3 => format!(
            "label_join({vector}, \"d\", \"{}\", {})",
            "x".repeat(n),
            quoted("l")
        ),
        4 => format!("m{{{}}}", many_matchers(random, n)),
        5 => format!("absent(m{{{}}})", many_matchers(random, n)),
        6 => format!("sum by ({}) ({vector})", numbered("l")),
        7 => format!("count without ({}) ({vector})", numbered("l")),
        8 => format!(
            "{vector} * on ({}) group_left ({}) {vector}",
            numbered("l"),
            numbered("m")
        ),
        9 => format!("sort_by_label({vector}, {})", quoted("l")),
        10 => format!("{}m{}", "(".repeat(n), ")".repeat(n)),
        11 => format!("{}m", "-".repeat(n)),
        12 => format!("{}m{}", "abs(".repeat(n.min(3000)), ")".repeat(n.min(3000))),
        13 => repeated("m", " + "),
        14 => repeated("m", " or "),
        15 => repeated("2", " ^ "),
        16 => format!("m{}", "[1h:1s]".repeat(n.min(100))),
        17 => format!("sum_over_time(sum_over_time({vector}[100y:1ms])[100y:1ms])"),
        18 => format!("\"{}\"", "\\u00e9".repeat(n)),
        19 => format!("count_values(\"{}\", {vector})", "x".repeat(n)),
        20 => format!("{{__name__=~\"{}\"}}", wide_regex(random)),
        _ => format!(
            "histogram_quantiles({vector}, \"q\", {})",
            repeated("0.5", ", ")
        ),
    }
}

fn many_matchers(random: &mut Random, n: usize) -> String {
    let one = |i: usize, random: &mut Random| match random.below(4) {
        0 => format!("l{i}=\"\""),
        1 => format!("i!=\"{i}\""),
        2 => format!("i!~\"{i}|x{i}.*\""),
        _ => format!("i=~\"{}\"", wide_regex(random)),
    };
    (0..n.min(3000))
        .map(|i| one(i, random))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns a regular expression whose program is large for its length.
pub(crate) fn wide_regex(random: &mut Random) -> String {
    let (n, m) = (random.size(1000), random.size(30));
    match random.below(7) {
        0 => format!("(\\\\pL{{1,{m}}}){{1,{}}}", n.min(9)),
        1 => format!("(a|b|c){{{n}}}"),
        2 => format!(".*x.{{{n}}}"),
        3 => (0..n)
            .map(|i| format!("v{i}"))
            .collect::<Vec<_>>()
            .join("|"),
        4 => format!("(?i)(\\\\w{{{m}}})*"),
        5 => format!("{}a{}", "(".repeat(n), ")".repeat(n)),
        _ => format!("((a{{1,{m}}}){{1,{m}}}){{1,{m}}}"),
    }
}

/// Returns the matchers of a selector. At least one does not match the empty string.
fn matchers(random: &mut Random) -> Vec<Matcher> {
    let name = random.pick(&["m", "h", "long", "wide", "b_bucket"]);
    let mut matchers = vec![Matcher::equal("__name__", name)];
    if random.chance(4) {
        matchers = vec![Matcher::new(MatchOp::Regexp, "__name__", ".+").unwrap()];
    }
    for _ in 0..random.size(64) - 1 {
        let op = [
            MatchOp::Equal,
            MatchOp::NotEqual,
            MatchOp::Regexp,
            MatchOp::NotRegexp,
        ][random.below(4)];
        let value = if random.chance(2) {
            wide_regex(random).replace("\\\\", "\\")
        } else {
            random.below(50).to_string()
        };
        if let Ok(matcher) =
            Matcher::new(op, random.pick(&["i", "j", "le", "v", "label_3"]), &value)
        {
            matchers.push(matcher);
        }
    }
    matchers
}
