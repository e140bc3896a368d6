//! The list of queries, drawn by a seed before anything is measured.
//!
//! Equal expressions, seeds and data give equal lists. The order of the expressions is drawn first.
//! Then those that have data are taken, and each gets a range by its number in the list.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::args::HistoryArgs;
use crate::fleet::{below, mix2};
use crate::parse::to_usize;
use crate::query;

use super::response::{client, error, n_series};

/// Ranges in seconds: an hour, six hours, a day, three days, a week.
const RANGES_S: [i64; 5] = [3_600, 21_600, 86_400, 259_200, 604_800];
/// Number of steps of a range query, about as many as a panel of Grafana has.
const N_STEPS: i64 = 240;
/// Steps are multiples of this, as of Grafana's minimum interval.
const STEP_UNIT_S: i64 = 15;
/// One query of this many is an instant query.
const INSTANT_EVERY: usize = 5;
/// Maximum size of an expression. Servers limit the length of a URL.
const EXPRESSION_SIZE_MAX: usize = 1_500;
const DAY_S: i64 = 86_400;

/// A query of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DrawnQuery {
    pub(super) expression: String,
    /// `None`: an instant query.
    pub(super) range: Option<QueryRange>,
}

/// The range and step of a range query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct QueryRange {
    pub(super) range_s: i64,
    pub(super) step_s: i64,
}

/// The list of queries, and the expressions that were drawn but are not in it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Drawn {
    pub(super) queries: Vec<DrawnQuery>,
    pub(super) n_without_data: usize,
    pub(super) rejected: Vec<RejectedExpression>,
}

/// An expression that the server rejected.
#[derive(Debug, Serialize)]
pub(super) struct RejectedExpression {
    pub(super) expression: String,
    pub(super) error: String,
}

/// The content of a file of expressions.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ExpressionFile {
    List(Vec<String>),
    Object { expressions: Vec<FileExpression> },
}

#[derive(Debug, Deserialize)]
struct FileExpression {
    expr: String,
}

/// Returns the expressions to draw from, in the order of the draw.
///
/// # Errors
/// If the file cannot be read or has no expression.
pub(super) fn expressions(file: Option<&Path>, seed: u64) -> Result<Vec<String>> {
    let expressions = match file {
        Some(path) => {
            let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
            parse_expressions(&text).with_context(|| format!("parse {}", path.display()))?
        }
        None => query::expressions()
            .into_iter()
            .map(str::to_owned)
            .collect(),
    };
    ensure!(!expressions.is_empty(), "there is no expression to send");
    Ok(in_drawn_order(expressions, seed))
}

/// Parses a file of expressions. Skips those with variables of a dashboard, those that are too long
/// and duplicates.
fn parse_expressions(text: &[u8]) -> Result<Vec<String>> {
    let file = serde_json::from_slice(text)
        .context("expected a list of strings, or `expressions` with `expr`")?;
    let all = match file {
        ExpressionFile::List(expressions) => expressions,
        ExpressionFile::Object { expressions } => expressions
            .into_iter()
            .map(|expression| expression.expr)
            .collect(),
    };
    let mut seen = HashSet::new();
    let mut expressions = Vec::new();
    for expression in all {
        let can_be_sent = !expression.contains('$') && expression.len() <= EXPRESSION_SIZE_MAX;
        if can_be_sent && seen.insert(expression.clone()) {
            expressions.push(expression);
        }
    }
    Ok(expressions)
}

fn in_drawn_order(expressions: Vec<String>, seed: u64) -> Vec<String> {
    let mut drawn = Vec::new();
    for (number, expression) in expressions.into_iter().enumerate() {
        drawn.push((mix2(seed, number as u64), expression));
    }
    drawn.sort_unstable();
    drawn
        .into_iter()
        .map(|(_, expression)| expression)
        .collect()
}

/// Takes expressions that have data on a server until the list is complete.
///
/// # Errors
/// If the server cannot be reached.
pub(super) fn draw(
    server: &str,
    expressions: &[String],
    end_s: i64,
    args: &HistoryArgs,
) -> Result<Drawn> {
    let client = client(server);
    let n_queries = to_usize(args.queries);
    let mut drawn = Drawn::default();
    for expression in expressions {
        if drawn.queries.len() == n_queries {
            break;
        }
        let response = client.get(&query::instant_path(expression, end_s))?;
        if !response.is_success() {
            drawn.rejected.push(RejectedExpression {
                expression: expression.clone(),
                error: error(&response),
            });
        } else if n_series(&response.body)? == 0 {
            drawn.n_without_data += 1;
        } else {
            let number = drawn.queries.len();
            drawn.queries.push(DrawnQuery {
                expression: expression.clone(),
                range: draw_range(number, args.seed, args.days),
            });
        }
    }
    ensure!(!drawn.queries.is_empty(), "no expression has data");
    Ok(drawn)
}

/// Draws the range of a query, at most the days of data. Returns `None` if it is an instant query.
fn draw_range(number: usize, seed: u64, days: u64) -> Option<QueryRange> {
    if number % INSTANT_EVERY == INSTANT_EVERY - 1 {
        return None;
    }
    let data_s = days.cast_signed() * DAY_S;
    let n_ranges = RANGES_S.partition_point(|&range_s| range_s <= data_s);
    // The order of the expressions has the seed itself.
    let random = mix2(!seed, number as u64);
    let range_s = RANGES_S[to_usize(below(random, n_ranges as u64))];
    Some(QueryRange {
        range_s,
        step_s: step_s(range_s),
    })
}

/// Returns the step of a range, rounded up.
fn step_s(range_s: i64) -> i64 {
    let unit = N_STEPS * STEP_UNIT_S;
    (range_s + unit - 1) / unit * STEP_UNIT_S
}

impl DrawnQuery {
    /// Returns the path of the request. The query ends at `end_s`.
    pub(super) fn path(&self, end_s: i64) -> String {
        match self.range {
            Some(QueryRange { range_s, step_s }) => {
                query::range_path(&self.expression, end_s - range_s, end_s, step_s)
            }
            None => query::instant_path(&self.expression, end_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_with_variables_and_long_ones_are_skipped() {
        let long = "a".repeat(EXPRESSION_SIZE_MAX + 1);
        let object = format!(
            r#"{{"counts": 1, "expressions": [{{"expr": "up", "id": 1}}, {{"expr": "up"}}, {{"expr": "{long}"}}]}}"#
        );
        assert_eq!(parse_expressions(object.as_bytes()).unwrap(), ["up"]);
        let list = br#"["rate(a[$__rate_interval])", "b", "c"]"#;
        assert_eq!(parse_expressions(list).unwrap(), ["b", "c"]);
        assert!(parse_expressions(b"{}").is_err());
    }

    #[test]
    fn the_order_depends_on_the_seed_alone() {
        let expressions = || {
            (0..100)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        };
        let first = in_drawn_order(expressions(), 1);
        assert_eq!(first, in_drawn_order(expressions(), 1));
        assert_ne!(first, in_drawn_order(expressions(), 2));
        assert_ne!(first, expressions());
        let mut sorted = first;
        sorted.sort_by_key(|text| text.parse::<u32>().unwrap());
        assert_eq!(sorted, expressions());
    }

    #[test]
    fn ranges_are_drawn_by_the_seed_and_within_the_data() {
        let ranges = |seed, days| (0..200).map(move |number| draw_range(number, seed, days));
        assert!(ranges(1, 7).eq(ranges(1, 7)));
        assert!(!ranges(1, 7).eq(ranges(2, 7)));
        assert_eq!(ranges(1, 7).filter(Option::is_none).count(), 40);
        let drawn = |days| {
            let drawn: HashSet<i64> = ranges(1, days)
                .flatten()
                .map(|range| range.range_s)
                .collect();
            drawn
        };
        assert_eq!(drawn(7), HashSet::from(RANGES_S));
        assert_eq!(drawn(1), HashSet::from([3_600, 21_600, 86_400]));
    }

    #[test]
    fn steps_are_multiples_of_15_seconds() {
        let check = |range_s: i64, expect: i64| assert_eq!(step_s(range_s), expect, "{range_s}");
        check(60, 15);
        check(3_600, 15);
        check(3_601, 30);
        check(21_600, 90);
        check(86_400, 360);
        check(604_800, 2_520);
    }

    #[test]
    fn paths_end_at_the_end_of_the_data() {
        let query = |range| DrawnQuery {
            expression: "up".to_owned(),
            range,
        };
        assert!(query(None).path(9_000).ends_with("time=9000&query=up"));
        let range = QueryRange {
            range_s: 3_600,
            step_s: 15,
        };
        let path = query(Some(range)).path(9_000);
        assert!(
            path.ends_with("start=5400&end=9000&step=15&query=up"),
            "{path}"
        );
    }
}
