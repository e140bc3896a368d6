//! The report: what the data cost each server, its queries, and how they compare with the peers'.

use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

use super::data::WrittenData;
use super::draw::{Drawn, DrawnQuery};
use super::measure::{Measured, Outcome};
use crate::args::HistoryArgs;
use crate::server::Server;
use crate::statistics::geometric_mean;
use crate::table::{ratio_cells, ratio_header, table};

/// A query is slower than a peer's if it takes more than this much longer, relative and absolute.
const SLOWER_RATIO: f64 = 1.1;
const SLOWER_MS: f64 = 1.0;
/// Maximum number of characters of an expression in a table.
const EXPRESSION_LEN_MAX: usize = 60;

/// The results of all servers.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    seed: u64,
    rounds: u8,
    /// Time at which all queries end, in seconds.
    end_s: i64,
    servers: Vec<ServerReport>,
    drawn: Drawn,
    comparisons: Vec<Comparison>,
}

/// The results of one server.
#[derive(Debug, Serialize)]
struct ServerReport {
    name: &'static str,
    version: String,
    written: WrittenData,
    /// In the order of the queries.
    outcomes: Vec<Outcome>,
}

/// The first server against a peer.
#[derive(Debug, Default, Serialize)]
struct Comparison {
    peer: &'static str,
    disk_ratio: f64,
    n_compared: usize,
    /// Queries without data on both servers.
    n_empty: usize,
    /// Queries that one of the servers rejected.
    n_failed: usize,
    first: Ratios,
    median: Ratios,
    cpu: Ratios,
    /// Numbers of queries with different numbers of series.
    different_series: Vec<usize>,
}

/// Ratios of the first server's values to a peer's.
#[derive(Debug, Default, Serialize)]
struct Ratios {
    #[serde(skip)]
    ratios: Vec<f64>,
    geometric_mean: Option<f64>,
    /// Queries that are slower than the peer's by 10 % and 1 ms.
    n_slower: usize,
}

/// A row of the servers' figures.
struct Row {
    name: &'static str,
    decimals: usize,
    value: fn(&WrittenData) -> Option<f64>,
}

impl Report {
    pub(super) fn new(
        args: &HistoryArgs,
        end_s: i64,
        drawn: Drawn,
        measured: Vec<(&Server, WrittenData, Vec<Outcome>)>,
    ) -> Self {
        let mut servers = Vec::new();
        for (server, written, outcomes) in measured {
            servers.push(ServerReport {
                name: server.name(),
                version: server.version(),
                written,
                outcomes,
            });
        }
        let mut comparisons = Vec::new();
        if let [first, peers @ ..] = servers.as_slice() {
            for peer in peers {
                comparisons.push(compare(first, peer));
            }
        }
        Self {
            seed: args.seed,
            rounds: args.rounds,
            end_s,
            servers,
            drawn,
            comparisons,
        }
    }

    pub(super) fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("write the report")
    }

    fn figures(&self) -> String {
        let names: Vec<_> = self.servers.iter().map(|server| server.name).collect();
        let mut rows = Vec::new();
        for row in figure_rows() {
            let values: Vec<_> = self
                .servers
                .iter()
                .map(|server| (row.value)(&server.written))
                .collect();
            let mut line = vec![row.name.to_owned()];
            line.extend(ratio_cells(&values, row.decimals));
            rows.push(line);
        }
        table(&ratio_header(&names), &rows)
    }

    /// Returns a table with a row for each query.
    fn queries(&self) -> String {
        let mut header = vec!["query".to_owned(), "range".to_owned(), "series".to_owned()];
        for (number, server) in self.servers.iter().enumerate() {
            for figure in ["first ms", "median ms", "CPU ms"] {
                header.push(format!("{} {figure}", server.name));
            }
            if number > 0 {
                header.extend(["first ratio", "median ratio", "CPU ratio"].map(str::to_owned));
            }
        }
        let mut rows = Vec::new();
        for (number, query) in self.drawn.queries.iter().enumerate() {
            rows.push(self.query_row(number, query));
        }
        table(&header, &rows)
    }

    fn query_row(&self, number: usize, query: &DrawnQuery) -> Vec<String> {
        let measured: Vec<_> = self
            .servers
            .iter()
            .map(|server| server.outcomes[number].measured())
            .collect();
        let n_series = measured
            .first()
            .copied()
            .flatten()
            .map_or("-".to_owned(), |measured| measured.n_series.to_string());
        let mut row = vec![
            format!("{number}: {}", shortened(&query.expression)),
            shown_range(query),
            n_series,
        ];
        for (server, own) in measured.iter().enumerate() {
            for value in FIGURES {
                row.push(own.map_or("failed".to_owned(), |own| format!("{:.2}", value(own))));
            }
            if server == 0 {
                continue;
            }
            for value in FIGURES {
                let ratio = measured[0]
                    .zip(*own)
                    .and_then(|(first, peer)| ratio(value(first), value(peer)));
                row.push(ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
            }
        }
        row
    }

    /// Lists the queries that failed, and the expressions that could not be drawn.
    fn write_failures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for server in &self.servers {
            for (number, outcome) in server.outcomes.iter().enumerate() {
                if let Outcome::Failed { error } = outcome {
                    writeln!(f, "{}: query {number} failed: {error}", server.name)?;
                }
            }
        }
        for rejected in &self.drawn.rejected {
            let expression = shortened(&rejected.expression);
            writeln!(f, "not drawn: {expression}: {}", rejected.error)?;
        }
        Ok(())
    }

    /// Lists the queries of which a peer returns another number of series.
    fn write_differences(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (comparison, peer) in self.comparisons.iter().zip(&self.servers[1..]) {
            let first = &self.servers[0];
            for &number in &comparison.different_series {
                let own = first.outcomes[number].measured();
                let other = peer.outcomes[number].measured();
                if let Some((own, other)) = own.zip(other) {
                    writeln!(
                        f,
                        "query {number}: {} series in {}, {} in {}",
                        own.n_series, first.name, other.n_series, peer.name
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// The figures of a query that are compared: first, median, CPU.
const FIGURES: [fn(&Measured) -> f64; 3] = [
    |measured| measured.first_ms,
    |measured| measured.median_ms,
    |measured| measured.cpu_ms,
];

fn compare(first: &ServerReport, peer: &ServerReport) -> Comparison {
    let mut comparison = Comparison {
        peer: peer.name,
        disk_ratio: first.written.disk_bytes as f64 / peer.written.disk_bytes as f64,
        ..Comparison::default()
    };
    for (number, (own, other)) in first.outcomes.iter().zip(&peer.outcomes).enumerate() {
        let Some((own, other)) = own.measured().zip(other.measured()) else {
            comparison.n_failed += 1;
            continue;
        };
        if own.n_series == 0 && other.n_series == 0 {
            comparison.n_empty += 1;
            continue;
        }
        if own.n_series != other.n_series {
            comparison.different_series.push(number);
        }
        comparison.n_compared += 1;
        comparison.first.add(own.first_ms, other.first_ms);
        comparison.median.add(own.median_ms, other.median_ms);
        comparison.cpu.add(own.cpu_ms, other.cpu_ms);
    }
    comparison
}

impl Ratios {
    fn add(&mut self, own_ms: f64, peer_ms: f64) {
        self.ratios.extend(ratio(own_ms, peer_ms));
        self.geometric_mean = geometric_mean(&self.ratios);
        if own_ms > peer_ms * SLOWER_RATIO && own_ms > peer_ms + SLOWER_MS {
            self.n_slower += 1;
        }
    }
}

/// Returns the ratio of two times. Returns `None` if one is 0, which has no logarithm.
fn ratio(own_ms: f64, peer_ms: f64) -> Option<f64> {
    if own_ms > 0.0 && peer_ms > 0.0 {
        Some(own_ms / peer_ms)
    } else {
        None
    }
}

impl Outcome {
    fn measured(&self) -> Option<&Measured> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::Failed { .. } => None,
        }
    }
}

fn figure_rows() -> [Row; 11] {
    type Value = fn(&WrittenData) -> Option<f64>;
    let rows: [(&'static str, usize, Value); 11] = [
        ("samples", 0, |data| Some(data.n_samples as f64)),
        ("write, s", 1, |data| Some(data.write_s)),
        ("write, CPU s", 1, |data| Some(data.write_cpu_s)),
        ("flush and merge, s", 1, |data| Some(data.merge_s)),
        ("flush and merge, CPU s", 1, |data| Some(data.merge_cpu_s)),
        ("peak memory, MiB", 0, |data| {
            Some(crate::output::mib(data.peak_bytes))
        }),
        ("disk, MiB", 1, |data| {
            Some(crate::output::mib(data.disk_bytes))
        }),
        ("disk bytes per sample", 3, |data| {
            Some(data.disk_bytes as f64 / data.n_samples as f64)
        }),
        ("of it index", 3, |data| {
            Some(data.index_bytes as f64 / data.n_samples as f64)
        }),
        ("disk bytes per sample, with WAL", 3, |data| {
            Some((data.disk_bytes + data.wal_bytes) as f64 / data.n_samples as f64)
        }),
        ("blocks", 0, |data| data.n_blocks.map(|n| n as f64)),
    ];
    rows.map(|(name, decimals, value)| Row {
        name,
        decimals,
        value,
    })
}

/// Returns an expression as a cell: on one line, without pipes that would end the cell, and with
/// its end cut off if it is long.
fn shortened(expression: &str) -> String {
    let words: Vec<_> = expression.split_whitespace().collect();
    let line = words.join(" ");
    let mut cell: String = line.chars().take(EXPRESSION_LEN_MAX).collect();
    if cell.len() < line.len() {
        cell.push('…');
    }
    cell.replace('|', "\\|")
}

fn shown_range(query: &DrawnQuery) -> String {
    let Some(range) = query.range else {
        return "instant".to_owned();
    };
    format!("{} h at {} s", range.range_s / 3_600, range.step_s)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for server in &self.servers {
            writeln!(f, "{}: {}", server.name, server.version)?;
            if server.written.version != server.version {
                writeln!(f, "  its data was written by {}", server.written.version)?;
            }
        }
        writeln!(f, "\n{}", self.figures())?;
        writeln!(
            f,
            "{} queries of seed {}, {} drawn expressions had no data, {} failed\n",
            self.drawn.queries.len(),
            self.seed,
            self.drawn.n_without_data,
            self.drawn.rejected.len()
        )?;
        writeln!(f, "{}", self.queries())?;
        let mut rows = Vec::new();
        for comparison in &self.comparisons {
            rows.extend(comparison.rows(self.servers[0].name));
        }
        if !rows.is_empty() {
            let header = ["", "first", "median", "CPU"].map(str::to_owned);
            writeln!(f, "{}", table(&header, &rows))?;
        }
        for comparison in &self.comparisons {
            writeln!(
                f,
                "{}: {} queries compared, {} without data on both, {} failed, {} with another number of series",
                comparison.peer,
                comparison.n_compared,
                comparison.n_empty,
                comparison.n_failed,
                comparison.different_series.len()
            )?;
        }
        self.write_differences(f)?;
        self.write_failures(f)
    }
}

impl Comparison {
    /// Returns the rows of the summary.
    fn rows(&self, first: &str) -> [Vec<String>; 2] {
        let ratios = [&self.first, &self.median, &self.cpu];
        let mut means = vec![format!("{first} / {}, geometric mean", self.peer)];
        let mut slower = vec![format!("slower than {} by 10 % and 1 ms", self.peer)];
        for ratios in ratios {
            let mean = ratios.geometric_mean;
            means.push(mean.map_or("-".to_owned(), |mean| format!("{mean:.2}")));
            slower.push(ratios.n_slower.to_string());
        }
        [means, slower]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_ratios_and_slow_needs_both_bounds() {
        let mut ratios = Ratios::default();
        ratios.add(1.0, 4.0);
        ratios.add(4.0, 4.0);
        let mean = ratios.geometric_mean.unwrap();
        assert!((mean - 0.5).abs() < 1e-12);
        assert_eq!(ratios.n_slower, 0);

        // Twice as slow, but by less than a millisecond; then slower by less than a tenth.
        ratios.add(1.0, 0.5);
        ratios.add(102.0, 100.0);
        assert_eq!(ratios.n_slower, 0);
        ratios.add(4.0, 2.0);
        assert_eq!(ratios.n_slower, 1);
    }

    #[test]
    fn times_of_0_have_no_ratio() {
        let mut ratios = Ratios::default();
        ratios.add(0.0, 4.0);
        assert_eq!(ratios.geometric_mean, None);
    }

    fn server(name: &'static str, outcomes: Vec<Outcome>) -> ServerReport {
        ServerReport {
            name,
            version: String::new(),
            written: WrittenData::for_tests(),
            outcomes,
        }
    }

    fn measured(ms: f64, n_series: usize) -> Outcome {
        Outcome::Measured(Measured {
            first_ms: 3.0 * ms,
            median_ms: ms,
            cpu_ms: ms,
            response_bytes: 1,
            n_series,
        })
    }

    #[test]
    fn queries_without_data_or_with_an_error_are_counted_and_not_compared() {
        let failed = Outcome::Failed {
            error: "503: busy".to_owned(),
        };
        let first = server(
            "Varve",
            vec![
                measured(1.0, 1),
                measured(9.0, 0),
                measured(9.0, 1),
                measured(4.0, 2),
            ],
        );
        let peer = server(
            "Peer",
            vec![measured(2.0, 1), measured(1.0, 0), failed, measured(2.0, 3)],
        );
        let comparison = compare(&first, &peer);
        assert_eq!(comparison.n_compared, 2);
        assert_eq!(comparison.n_empty, 1);
        assert_eq!(comparison.n_failed, 1);
        assert_eq!(comparison.different_series, [3]);
        assert!((comparison.median.geometric_mean.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(comparison.median.n_slower, 1);
    }

    #[test]
    fn cells_are_one_short_line_without_pipes() {
        assert_eq!(shortened("a\n  or{b=~\"c|d\"}"), "a or{b=~\"c\\|d\"}");
        let cell = shortened(&"é".repeat(EXPRESSION_LEN_MAX + 1));
        assert_eq!(cell.chars().count(), EXPRESSION_LEN_MAX + 1);
        assert!(cell.ends_with('…'));
    }
}
