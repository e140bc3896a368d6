//! Costs of queries in the last day, by the shape of their expression: the text without the
//! contents of strings.
//!
//! Filled when a query ends, read by /api/v1/status/top_queries. Bounded: [`WINDOWS`] windows of
//! [`SHAPES_MAX`] shapes, each of [`SHAPE_SIZE_MAX`] bytes. A full window keeps the shapes that
//! took the most time.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use varve_system::excerpt::truncate;

/// Length of a window.
const WINDOW_MS: i64 = 15 * 60_000;
/// Windows of a day.
const WINDOWS: usize = 96;
/// Shapes of a window.
const SHAPES_MAX: usize = 100;
/// Maximum size of a shape. A longer one is truncated.
const SHAPE_SIZE_MAX: usize = 512;

/// The cost of queries in the last day.
#[derive(Debug, Default)]
pub struct TopQueries {
    /// The newest last.
    windows: Mutex<VecDeque<Window>>,
}

#[derive(Debug)]
struct Window {
    number: i64,
    shapes: HashMap<String, QueryCost>,
}

/// The cost of queries of one shape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryCost {
    /// Number of queries.
    pub n_queries: u64,
    /// Number of queries that failed.
    pub n_failed: u64,
    /// Time of all queries together, without the time in the queue.
    pub seconds: f64,
    /// Longest time of a query, without the time in the queue.
    pub seconds_max: f64,
    /// Samples that were read.
    pub n_samples: u64,
    /// Maximum memory of a query in bytes.
    pub memory_peak_max: usize,
    /// The newest of the queries, truncated to [`SHAPE_SIZE_MAX`] bytes.
    pub example: String,
    /// The user agent of the example.
    pub user_agent: String,
}

impl QueryCost {
    fn add(&mut self, other: &Self) {
        self.n_queries += other.n_queries;
        self.n_failed += other.n_failed;
        self.seconds += other.seconds;
        self.seconds_max = self.seconds_max.max(other.seconds_max);
        self.n_samples += other.n_samples;
        self.memory_peak_max = self.memory_peak_max.max(other.memory_peak_max);
        self.example.clone_from(&other.example);
        self.user_agent.clone_from(&other.user_agent);
    }
}

impl TopQueries {
    /// Adds a query that has ended.
    pub fn add(&self, now_ms: i64, text: &str, cost: QueryCost) {
        let cost = QueryCost {
            example: truncate(text, SHAPE_SIZE_MAX).to_owned(),
            ..cost
        };
        let number = now_ms.div_euclid(WINDOW_MS);
        let mut windows = self.windows.lock();
        if windows.back().is_none_or(|newest| newest.number < number) {
            windows.push_back(Window {
                number,
                shapes: HashMap::new(),
            });
            let n_outdated = windows.len().saturating_sub(WINDOWS);
            drop(windows.drain(..n_outdated));
        }
        // If the clock was set back, queries count in the newest window.
        if let Some(newest) = windows.back_mut() {
            newest.add(shape(text), &cost);
        }
    }

    /// Returns the cost of each shape in windows that end after `since_ms`, by time in descending
    /// order.
    pub fn list(&self, since_ms: i64) -> Vec<(String, QueryCost)> {
        let mut sums: HashMap<String, QueryCost> = HashMap::new();
        let windows = self.windows.lock();
        for window in windows
            .iter()
            .filter(|window| (window.number + 1) * WINDOW_MS > since_ms)
        {
            for (shape, cost) in &window.shapes {
                sums.entry(shape.clone()).or_default().add(cost);
            }
        }
        drop(windows);
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_by(|a, b| {
            b.1.seconds
                .total_cmp(&a.1.seconds)
                .then_with(|| a.0.cmp(&b.0))
        });
        all
    }
}

impl Window {
    fn add(&mut self, shape: String, cost: &QueryCost) {
        if self.shapes.len() >= SHAPES_MAX && !self.shapes.contains_key(&shape) {
            let cheapest = self
                .shapes
                .iter()
                .min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
            let Some((cheapest, least)) =
                cheapest.map(|(shape, cost)| (shape.clone(), cost.seconds))
            else {
                return;
            };
            if least >= cost.seconds {
                return;
            }
            self.shapes.remove(&cheapest);
        }
        self.shapes.entry(shape).or_default().add(cost);
    }
}

/// Returns the text of a query without the contents of its strings and with single spaces.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if shape.len() >= SHAPE_SIZE_MAX {
            break;
        }
        if c.is_whitespace() {
            if !shape.ends_with(' ') {
                shape.push(' ');
            }
        } else if matches!(c, '"' | '\'' | '`') {
            shape.push_str("\"…\"");
            while let Some(inner) = chars.next() {
                if inner == c {
                    break;
                }
                if inner == '\\' && c != '`' {
                    chars.next();
                }
            }
        } else {
            shape.push(c);
        }
    }
    shape.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(seconds: f64) -> QueryCost {
        QueryCost {
            n_queries: 1,
            seconds,
            seconds_max: seconds,
            ..QueryCost::default()
        }
    }

    #[test]
    fn a_shape_has_no_strings_and_single_spaces() {
        let check = |text: &str, expect: &str| assert_eq!(shape(text), expect, "{text}");
        check("sum( up )", "sum( up )");
        check("up{job=\"a\\\"b\"}  ==\n 1", "up{job=\"…\"} == 1");
        check("up{a='x\"y',b=`\\`}", "up{a=\"…\",b=\"…\"}");
        check("up{a=\"open", "up{a=\"…\"");
        check("  ", "");
    }

    #[test]
    fn queries_of_a_shape_are_added_up() {
        let top = TopQueries::default();
        top.add(
            0,
            "up{a=\"1\"}",
            QueryCost {
                n_failed: 1,
                memory_peak_max: 5,
                ..cost(1.0)
            },
        );
        top.add(
            WINDOW_MS,
            "up{a=\"2\"}",
            QueryCost {
                memory_peak_max: 3,
                ..cost(2.0)
            },
        );
        top.add(WINDOW_MS, "x", cost(9.0));
        let list = top.list(0);
        assert_eq!(
            list.iter().map(|(shape, _)| &**shape).collect::<Vec<_>>(),
            ["x", "up{a=\"…\"}"]
        );
        let up = &list[1].1;
        assert_eq!(
            (
                up.n_queries,
                up.n_failed,
                up.seconds,
                up.seconds_max,
                up.memory_peak_max
            ),
            (2, 1, 3.0, 2.0, 5)
        );
        assert_eq!(up.example, "up{a=\"2\"}");
        assert_eq!(top.list(WINDOW_MS).len(), 2, "the first window ended");
        assert!(top.list(2 * WINDOW_MS).is_empty(), "both ended");
    }

    #[test]
    fn a_day_of_windows_and_the_most_expensive_shapes_are_kept() {
        let top = TopQueries::default();
        for i in 0..=WINDOWS {
            top.add(i as i64 * WINDOW_MS, &format!("q{i}"), cost(1.0));
        }
        assert_eq!(top.list(i64::MIN).len(), WINDOWS);
        let last_ms = WINDOWS as i64 * WINDOW_MS;
        for i in 0..2 * SHAPES_MAX {
            top.add(last_ms, &format!("r{i}"), cost(i as f64));
        }
        let newest = top.list(last_ms);
        assert_eq!(newest.len(), SHAPES_MAX);
        assert_eq!(newest[0].0, format!("r{}", 2 * SHAPES_MAX - 1));
        // An expensive shape is not evicted by a cheap one, and the clock may be set back.
        top.add(0, "cheap", cost(0.0));
        assert!(top.list(last_ms).iter().all(|(shape, _)| shape != "cheap"));
    }
}
