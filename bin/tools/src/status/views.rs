//! Tables of parts of the state of a server.

use serde_json::Value;
use varve_system::quantity::print_time;

use crate::output::{table_within, terminal_width};

/// A part of the state of a server: its path, the list in the response, and the columns of its
/// table.
pub(super) struct View {
    pub(super) path: &'static str,
    list: &'static str,
    /// The location of the sum of all elements, and the first cell of its row.
    total: Option<(&'static str, &'static str)>,
    /// Groups of columns, from left to right.
    columns: &'static [&'static [Column]],
}

/// The head of a column, and the location of its cells in an element.
type Column = (&'static str, &'static str);

/// The requester of a query.
const REQUESTER: &[Column] = &[
    ("user", "/user"),
    ("dashboard", "/dashboard"),
    ("panel", "/panel"),
    ("grafana rule", "/grafanaRule"),
    ("grafana user", "/grafanaUser"),
    ("user agent", "/userAgent"),
];
/// Columns that are left out if all cells are empty.
const OPTIONAL: &[&str] = &[
    "user",
    "dashboard",
    "panel",
    "grafana rule",
    "grafana user",
    "query",
    "disabled by",
    "disabling selector",
    "would be disabled by",
    "would-be disabling selector",
    "last error",
];

pub(super) const TEAMS: View = View {
    path: "/api/v1/status/teams",
    list: "/teams",
    total: Some(("/all", "all teams")),
    columns: &[&[
        ("team", "/team"),
        ("active series", "/use/activeSeries"),
        ("guaranteed", "/guaranteed/activeSeries"),
        ("maximum", "/maximum/activeSeries"),
        ("borrowed", "/borrowed/activeSeries"),
        ("new series/s", "/use/newSeriesPerSecond"),
        ("samples/s", "/use/samplesPerSecond"),
        ("rejected series", "/seriesRejected"),
    ]],
};
pub(super) const HA: View = View {
    path: "/api/v1/status/ha",
    list: "/clusters",
    total: None,
    columns: &[&[
        ("cluster", "/cluster"),
        ("leader", "/leader/replica"),
        ("silent ms", "/leader/silentMs"),
        ("since", "/sinceMs"),
        ("standby", "/standbys/0/replica"),
        ("changes", "/changes"),
        ("deduplicated samples", "/samplesDeduplicated"),
    ]],
};
pub(super) const RELABEL: View = View {
    path: "/api/v1/status/relabel",
    list: "/rules",
    total: None,
    columns: &[&[
        ("rule", "/name"),
        ("state", "/state"),
        ("series", "/series"),
        ("samples/s", "/samplesPerSecond"),
        ("disabled by", "/disabledByUse/who"),
        ("disabling selector", "/disabledByUse/selector"),
        ("would be disabled by", "/wouldBeDisabledBy/who"),
        ("would-be disabling selector", "/wouldBeDisabledBy/selector"),
    ]],
};
pub(super) const REJECTS: View = View {
    path: "/api/v1/status/rejects",
    list: "/rejects",
    total: None,
    columns: &[&[
        ("reason", "/reason"),
        ("requests", "/requests"),
        ("samples", "/samples"),
        ("last", "/lastMs"),
        ("sender", "/sender/userAgent"),
        ("example", "/example/text"),
    ]],
};
pub(super) const SENDERS: View = View {
    path: "/api/v1/status/senders",
    list: "/senders",
    total: None,
    columns: &[&[
        ("address", "/address"),
        ("user", "/user"),
        ("user agent", "/userAgent"),
        ("path", "/path"),
        ("samples/s", "/samplesPerSecond"),
        ("series", "/series"),
        ("last", "/lastMs"),
        ("failed requests", "/failed"),
        ("last error", "/lastError"),
    ]],
};
pub(super) const QUERIES: View = View {
    path: "/api/v1/status/queries",
    list: "",
    total: None,
    columns: &[
        &[
            ("id", "/id"),
            ("stage", "/stage"),
            ("age s", "/ageSeconds"),
            ("memory bytes", "/memoryBytes"),
            ("samples", "/samples"),
        ],
        REQUESTER,
        &[("query", "/query")],
    ],
};
pub(super) const TOP: View = View {
    path: "/api/v1/status/top_queries",
    list: "/queries",
    total: None,
    columns: &[
        &[
            ("seconds", "/seconds"),
            ("longest", "/secondsMax"),
            ("queries", "/queries"),
            ("failed", "/failed"),
            ("samples", "/samples"),
            ("memory bytes", "/memoryPeakBytes"),
        ],
        REQUESTER,
        &[("query", "/shape")],
    ],
};
pub(super) const REPLAY: View = View {
    path: "/api/v1/status/walreplay",
    list: "",
    total: None,
    columns: &[&[("replayed files", "/current"), ("all files", "/max")]],
};

impl View {
    /// Returns the table of a response. A terminal cuts it.
    pub(super) fn print(&self, data: &Value) -> String {
        self.print_within(data, terminal_width())
    }

    fn print_within(&self, data: &Value, width_max: Option<usize>) -> String {
        let listed = data.pointer(self.list).unwrap_or(&Value::Null);
        let elements = listed
            .as_array()
            .map_or(std::slice::from_ref(listed), Vec::as_slice);
        if elements.is_empty() {
            return "none\n".to_owned();
        }
        let columns = self.columns.concat();
        let mut header: Vec<_> = columns.iter().map(|(head, _)| *head).collect();
        let mut rows: Vec<_> = elements.iter().map(|element| self.row(element)).collect();
        if let Some((pointer, name)) = self.total
            && let Some(total) = data.pointer(pointer)
        {
            let mut row = self.row(total);
            row[0] = name.to_owned();
            rows.push(row);
        }
        // Requests without credentials have no user, only Grafana names a dashboard, and most rules
        // are never disabled.
        for idx in (0..header.len()).rev() {
            let is_empty = rows.iter().all(|row| ["\"\"", "-"].contains(&&*row[idx]));
            if OPTIONAL.contains(&header[idx]) && is_empty {
                header.remove(idx);
                for row in &mut rows {
                    row.remove(idx);
                }
            }
        }
        table_within(&header, rows, width_max)
    }

    /// Returns the cells of an element.
    fn row(&self, element: &Value) -> Vec<String> {
        let mut row = Vec::new();
        for (_, pointer) in self.columns.concat() {
            row.push(cell(pointer, element.pointer(pointer)));
        }
        row
    }
}

/// Returns a value of a response as a cell.
fn cell(pointer: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        // The team of series without a team.
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) if matches!(pointer, "/sinceMs" | "/lastMs") => {
            value.as_i64().map(print_time).unwrap_or_default()
        }
        Some(value) if value.is_f64() => format!("{:.1}", value.as_f64().unwrap_or_default()),
        Some(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_row_of_teams_is_their_total() {
        let team = |name, series| json!({"team": name, "use": {"activeSeries": series}});
        let all = json!({"use": {"activeSeries": 3}, "maximum": {"activeSeries": 3}});
        let text = TEAMS.print(&json!({"all": all, "teams": [team("", 1), team("a", 2)]}));
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1][..2], ["\"\"", "1"], "{text}");
        assert_eq!(rows[3][..5], ["all", "teams", "3", "-", "3"], "{text}");
    }

    /// They had 165 and more than 200 columns.
    #[test]
    fn tables_fit_a_terminal_of_80_columns() {
        let rule = json!({"name": "unused-kubelet-buckets-of-a-long-metric", "state": "enforce", "series": 1, "samplesPerSecond": 0.1, "disabledByUse": null, "wouldBeDisabledBy": null});
        let data = json!({"rules": [rule]});
        let whole = RELABEL.print_within(&data, None);
        assert!(!whole.contains("disabl"), "nothing is disabled:\n{whole}");

        let mut disabled = rule.clone();
        let used = json!({"who": "rule team-a/latency of latency.yaml", "selector": "{__name__=\"kubelet_runtime_operations_duration_seconds_bucket\"}"});
        disabled["disabledByUse"] = used.clone();
        disabled["wouldBeDisabledBy"] = used;
        let query = json!({"seconds": 123_456.7, "secondsMax": 12.3, "queries": 1_234_567, "failed": 1, "samples": 123_456_789_012_u64, "memoryPeakBytes": 1_234_567_890,
            "user": "alice", "dashboard": "a long name of a dashboard", "panel": "17", "grafanaRule": "", "grafanaUser": "bob", "userAgent": "Grafana/12.1.0", "shape": "sum(rate(a_long_name_of_a_metric[5m]))"});
        for (view, data) in [
            (RELABEL, json!({"rules": [rule, disabled]})),
            (TOP, json!({"queries": [query]})),
        ] {
            let text = view.print_within(&data, Some(80));
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{text}");
            }
        }
    }

    #[test]
    fn columns_of_the_sender_are_shown_if_a_request_has_them() {
        let query = |user: &str, dashboard: &str| json!({"id": 1, "query": "up", "user": user, "dashboard": dashboard, "panel": "", "grafanaUser": ""});
        let text = QUERIES.print(&json!([query("", ""), query("", "d1")]));
        assert!(text.contains("dashboard") && text.contains("d1"), "{text}");
        assert!(
            !text.contains("user  ") && !text.contains("panel"),
            "{text}"
        );
    }
}
