//! The report of a comparison: medians over its rounds, as a table with ratios or as JSON.

use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::query::{QueryResult, geometric_mean_ms};
use crate::server::Server;
use crate::table::{ratio_cells, ratio_header, table};

/// The measurements of one server in one round.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurements {
    pub(crate) cpu_s_per_million_new: f64,
    pub(crate) cpu_s_per_million_known: f64,
    pub(crate) samples_per_s: f64,
    pub(super) write_p99_ms: f64,
    pub(crate) resident_bytes_per_series: f64,
    pub(crate) peak_bytes_per_series: f64,
    /// From SIGKILL to the first correct response. `None` if there was none.
    pub(crate) restart_s: Option<f64>,
    /// Share of the samples acknowledged before the crash.
    pub(crate) lost_share: f64,
    pub(crate) disk_bytes_per_sample: f64,
    pub(crate) disk_bytes_per_sample_without_index: f64,
    pub(crate) index_bytes_per_series: f64,
    pub(crate) queries: Vec<QueryResult>,
}

/// The measurements of all servers.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    n_series: u32,
    n_samples_per_series: i64,
    servers: Vec<ServerReport>,
}

/// The measurements of one server, by round.
#[derive(Debug, Serialize)]
struct ServerReport {
    name: &'static str,
    version: String,
    rounds: Vec<Measurements>,
}

/// Extracts a value. Returns `None` if the server rejected the request.
type Value = Box<dyn Fn(&Measurements) -> Option<f64>>;

/// A row of the table.
struct Row {
    name: String,
    decimals: usize,
    value: Value,
}

impl Report {
    pub(crate) fn new(servers: &[Server], n_series: u32, n_samples_per_series: i64) -> Self {
        let servers = servers.iter().map(|server| ServerReport {
            name: server.name(),
            version: server.version(),
            rounds: Vec::new(),
        });
        Self {
            n_series,
            n_samples_per_series,
            servers: servers.collect(),
        }
    }

    pub(crate) fn add(&mut self, server: usize, measurements: Measurements) {
        self.servers[server].rounds.push(measurements);
    }

    pub(crate) fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("write the report")
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = figure_rows();
        let Some(first) = self.servers.iter().find_map(|found| found.rounds.first()) else {
            return rows;
        };
        for (i, query) in first.queries.iter().enumerate() {
            rows.push(Row {
                name: format!("{}, ms", query.name),
                decimals: 2,
                value: Box::new(move |measurements| measurements.queries[i].median_ms),
            });
        }
        for (name, is_metadata) in [
            ("queries, geometric mean, ms", false),
            ("metadata, geometric mean, ms", true),
        ] {
            rows.push(Row {
                name: name.to_owned(),
                decimals: 2,
                value: Box::new(move |measurements| {
                    geometric_mean_ms(&measurements.queries, is_metadata)
                }),
            });
        }
        rows
    }
}

fn figure_rows() -> Vec<Row> {
    type Field = fn(&Measurements) -> Option<f64>;
    let rows: [(&str, usize, Field); 11] = [
        ("CPU per million new series, s", 2, |f| {
            Some(f.cpu_s_per_million_new)
        }),
        ("CPU per million samples, known series, s", 3, |f| {
            Some(f.cpu_s_per_million_known)
        }),
        ("samples per second, known series", 0, |f| {
            Some(f.samples_per_s)
        }),
        ("write latency p99, ms", 1, |f| Some(f.write_p99_ms)),
        ("resident bytes per series", 0, |f| {
            Some(f.resident_bytes_per_series)
        }),
        ("resident bytes per series, peak", 0, |f| {
            Some(f.peak_bytes_per_series)
        }),
        ("SIGKILL to first correct response, s", 2, |f| f.restart_s),
        ("acknowledged samples lost, %", 2, |f| {
            Some(f.lost_share * 100.0)
        }),
        ("disk bytes per sample, all, merged", 3, |f| {
            Some(f.disk_bytes_per_sample)
        }),
        ("disk bytes per sample, without index", 3, |f| {
            Some(f.disk_bytes_per_sample_without_index)
        }),
        ("index bytes per series", 1, |f| {
            Some(f.index_bytes_per_series)
        }),
    ];
    let rows = rows.into_iter().map(|(name, decimals, value)| Row {
        name: name.to_owned(),
        decimals,
        value: Box::new(value),
    });
    rows.collect()
}

impl ServerReport {
    /// Returns the median over the rounds. Returns `None` if a round has no value.
    fn median(&self, row: &Row) -> Option<f64> {
        let mut values = self
            .rounds
            .iter()
            .map(|measurements| (row.value)(measurements))
            .collect::<Option<Vec<f64>>>()?;
        values.sort_unstable_by(f64::total_cmp);
        let low = values.get(values.len().saturating_sub(1) / 2)?;
        let high = values.get(values.len() / 2)?;
        Some((low + high) / 2.0)
    }
}

impl fmt::Display for Report {
    /// Prints the table: a column for the first server, then two for each other server, its value
    /// and the ratio of the first server's value to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} series, {} samples each",
            self.n_series, self.n_samples_per_series
        )?;
        for server in &self.servers {
            writeln!(f, "{}: {}", server.name, server.version)?;
        }
        let names: Vec<_> = self.servers.iter().map(|server| server.name).collect();
        let mut rows = Vec::new();
        for row in self.rows() {
            let medians = self.servers.iter().map(|server| server.median(&row));
            let medians: Vec<_> = medians.collect();
            let mut line = vec![row.name];
            line.extend(ratio_cells(&medians, row.decimals));
            rows.push(line);
        }
        f.write_str(&table(&ratio_header(&names), &rows))
    }
}
