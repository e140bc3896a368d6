//! Costs of queries in the last day: by the shape of their expression, which is the text without
//! the contents of strings, and by each part of their requester.
//!
//! Filled when a query ends, read by /api/v1/status/top_queries. Bounded: [`WINDOWS`] windows of
//! [`GROUPS_MAX`] groups of each kind. A full window keeps the groups that took the most time.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use varve_system::excerpt::truncate;

use crate::requests::requester::QueryRequester;

/// Length of a window.
const WINDOW_MS: i64 = 15 * 60_000;
/// Windows of a day.
const WINDOWS: usize = 96;
/// Groups of a window, of each kind.
const GROUPS_MAX: usize = 100;
/// Maximum size of a shape or an example. A longer one is truncated.
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
    /// In the order of [`GroupBy::ALL`].
    costs: [Costs; GroupBy::ALL.len()],
}

/// At most [`GROUPS_MAX`] groups of queries with their costs.
#[derive(Debug, Default)]
struct Costs(HashMap<QueryGroup, QueryCost>);

/// How queries are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// By the shape of the expression.
    Shape,
    /// By the dashboard.
    Dashboard,
    /// By the dashboard and the panel.
    Panel,
    /// By the user, and by the user of Grafana.
    User,
    /// By the user agent.
    UserAgent,
}

/// What queries of a group have in common. Everything else is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct QueryGroup {
    /// The shape.
    pub shape: String,
    /// Parts of the requester.
    pub requester: QueryRequester,
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
    /// The requester of the example.
    pub requester: QueryRequester,
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
        self.requester.clone_from(&other.requester);
    }
}

impl GroupBy {
    /// All groupings, the default first.
    pub const ALL: [Self; 5] = [
        Self::Shape,
        Self::Dashboard,
        Self::Panel,
        Self::User,
        Self::UserAgent,
    ];

    /// The names in the API, in the order of [`Self::ALL`].
    pub const NAMES: [&'static str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut idx = 0;
        while idx < names.len() {
            names[idx] = Self::ALL[idx].name();
            idx += 1;
        }
        names
    };

    /// Returns the name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::Dashboard => "dashboard",
            Self::Panel => "panel",
            Self::User => "user",
            Self::UserAgent => "user_agent",
        }
    }

    /// Returns the group of a query.
    fn group_of(self, text: &str, requester: &QueryRequester) -> QueryGroup {
        QueryGroup {
            shape: if self == Self::Shape {
                shape(text)
            } else {
                String::new()
            },
            requester: self.part_of(requester),
        }
    }

    /// Returns the parts of a requester that queries of a group share.
    fn part_of(self, requester: &QueryRequester) -> QueryRequester {
        let mut part = QueryRequester::default();
        let QueryRequester {
            user,
            user_agent,
            grafana,
        } = requester;
        match self {
            Self::Shape => {}
            Self::Dashboard => part.grafana.dashboard.clone_from(&grafana.dashboard),
            Self::Panel => {
                part.grafana.dashboard.clone_from(&grafana.dashboard);
                part.grafana.panel.clone_from(&grafana.panel);
            }
            Self::User => {
                part.user.clone_from(user);
                part.grafana.user.clone_from(&grafana.user);
            }
            Self::UserAgent => part.user_agent.clone_from(user_agent),
        }
        part
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
                costs: Default::default(),
            });
            let n_outdated = windows.len().saturating_sub(WINDOWS);
            drop(windows.drain(..n_outdated));
        }
        // If the clock was set back, queries count in the newest window.
        if let Some(newest) = windows.back_mut() {
            for (by, costs) in GroupBy::ALL.into_iter().zip(&mut newest.costs) {
                costs.add(by.group_of(text, &cost.requester), &cost);
            }
        }
    }

    /// Returns the cost of each group in windows that end after `since_ms`, by time in descending
    /// order.
    pub fn list(&self, since_ms: i64, by: GroupBy) -> Vec<(QueryGroup, QueryCost)> {
        let mut sums: HashMap<QueryGroup, QueryCost> = HashMap::new();
        let windows = self.windows.lock();
        for window in windows
            .iter()
            .filter(|window| (window.number + 1) * WINDOW_MS > since_ms)
        {
            let Costs(costs) = &window.costs[by as usize];
            for (group, cost) in costs {
                sums.entry(group.clone()).or_default().add(cost);
            }
        }
        drop(windows);
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_by(|a, b| {
            b.1.seconds
                .total_cmp(&a.1.seconds)
                .then_with(|| a.0.shape.cmp(&b.0.shape))
                .then_with(|| a.0.requester.fields().cmp(&b.0.requester.fields()))
        });
        all
    }
}

impl Costs {
    fn add(&mut self, group: QueryGroup, cost: &QueryCost) {
        let Self(costs) = self;
        if costs.len() >= GROUPS_MAX && !costs.contains_key(&group) {
            let cheapest = costs
                .iter()
                .min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
            let Some((cheapest, least)) =
                cheapest.map(|(group, cost)| (group.clone(), cost.seconds))
            else {
                return;
            };
            if least >= cost.seconds {
                return;
            }
            costs.remove(&cheapest);
        }
        costs.entry(group).or_default().add(cost);
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
    use varve_wire::active_requests::GrafanaSource;

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
        let list = top.list(0, GroupBy::Shape);
        assert_eq!(
            list.iter()
                .map(|(group, _)| &*group.shape)
                .collect::<Vec<_>>(),
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
        assert_eq!(
            top.list(WINDOW_MS, GroupBy::Shape).len(),
            2,
            "the first window ended"
        );
        assert!(
            top.list(2 * WINDOW_MS, GroupBy::Shape).is_empty(),
            "both ended"
        );
    }

    #[test]
    fn a_day_of_windows_and_the_most_expensive_shapes_are_kept() {
        let top = TopQueries::default();
        for i in 0..=WINDOWS {
            top.add(i as i64 * WINDOW_MS, &format!("q{i}"), cost(1.0));
        }
        assert_eq!(top.list(i64::MIN, GroupBy::Shape).len(), WINDOWS);
        let last_ms = WINDOWS as i64 * WINDOW_MS;
        for i in 0..2 * GROUPS_MAX {
            top.add(last_ms, &format!("r{i}"), cost(i as f64));
        }
        let newest = top.list(last_ms, GroupBy::Shape);
        assert_eq!(newest.len(), GROUPS_MAX);
        assert_eq!(newest[0].0.shape, format!("r{}", 2 * GROUPS_MAX - 1));
        // An expensive shape is not evicted by a cheap one, and the clock may be set back.
        top.add(0, "cheap", cost(0.0));
        assert!(
            top.list(last_ms, GroupBy::Shape)
                .iter()
                .all(|(group, _)| group.shape != "cheap")
        );
    }

    #[test]
    fn queries_are_grouped_by_parts_of_their_source() {
        let top = TopQueries::default();
        let from = |user: &str, dashboard: &str, panel: &str| QueryRequester {
            user: user.into(),
            user_agent: "Grafana".into(),
            grafana: GrafanaSource {
                dashboard: dashboard.into(),
                panel: panel.into(),
                ..GrafanaSource::default()
            },
        };
        for (seconds, requester) in [
            (1.0, from("a", "d1", "1")),
            (2.0, from("b", "d1", "2")),
            (4.0, from("b", "d2", "1")),
        ] {
            let cost = QueryCost {
                requester,
                ..cost(seconds)
            };
            top.add(0, "up", cost);
        }
        let check = |by, expect: &[(f64, QueryRequester)]| {
            let listed: Vec<_> = top
                .list(0, by)
                .into_iter()
                .map(|(group, cost)| (cost.seconds, group.requester))
                .collect();
            assert_eq!(listed, expect, "{by:?}");
        };
        let part = |user, dashboard, panel| QueryRequester {
            user_agent: String::new(),
            ..from(user, dashboard, panel)
        };
        check(GroupBy::Shape, &[(7.0, QueryRequester::default())]);
        check(
            GroupBy::Dashboard,
            &[(4.0, part("", "d2", "")), (3.0, part("", "d1", ""))],
        );
        check(
            GroupBy::Panel,
            &[
                (4.0, part("", "d2", "1")),
                (2.0, part("", "d1", "2")),
                (1.0, part("", "d1", "1")),
            ],
        );
        check(
            GroupBy::User,
            &[(6.0, part("b", "", "")), (1.0, part("a", "", ""))],
        );
        check(GroupBy::UserAgent, &[(7.0, from("", "", ""))]);
        assert_eq!(
            top.list(0, GroupBy::Dashboard)[1].1.requester,
            from("b", "d1", "2")
        );
    }
}
