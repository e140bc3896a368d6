//! The query log: a line of JSON per query, in the format of Prometheus' `query_log_file`.
//!
//! Used by `requests::life` when a query of a client or of a rule has ended. Each line is appended
//! with one write, on the calling thread. A failed write is logged and counted. It does not fail
//! the query.

use std::io::Write;

use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus::{IntCounter, IntGauge};
use serde_json::{Map, Value, json};
use varve_config::file::QueryLogFile;
use varve_system::metrics::Registrar;
use varve_system::quantity::print_time;

use crate::requests::requester::QueryRequester;

/// The log.
#[derive(Debug)]
pub struct QueryLog {
    file: RwLock<Option<QueryLogFile>>,
    /// 1 while there is a file.
    enabled: IntGauge,
    failures: IntCounter,
}

/// A query that has ended.
#[derive(Debug)]
pub struct LoggedQuery<'a> {
    /// The query.
    pub query: &'a str,
    /// Start of the range, or the time of an instant query.
    pub start_ms: i64,
    /// End of the range.
    pub end_ms: i64,
    /// Step in seconds; 0 for an instant query.
    pub step_s: i64,
    /// The reason why the query failed, if it did.
    pub error: Option<&'a str>,
    /// Timings and samples, as `stats=all` returns them, and the plan of a slow query.
    pub stats: Value,
    /// Series that were read.
    pub n_series: u64,
    /// Maximum memory of the query.
    pub memory_peak_bytes: usize,
    /// The ids of the trace and of the span of the request, if it is sampled.
    pub trace: Option<(String, String)>,
    /// The requester.
    pub origin: QueryOrigin<'a>,
}

/// The requester of a query.
#[derive(Debug)]
pub enum QueryOrigin<'a> {
    /// A request.
    Http {
        /// The client's address.
        client_ip: String,
        /// The method.
        method: &'a str,
        /// The path.
        path: &'a str,
        /// Who sent it.
        requester: QueryRequester,
    },
    /// A rule.
    RuleGroup {
        /// The rule file.
        file: &'a str,
        /// The name of the group.
        name: &'a str,
    },
}

impl QueryLog {
    /// Creates a disabled log.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub(crate) fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            file: RwLock::default(),
            enabled: registrar.gauge("prometheus_engine_query_log_enabled")?,
            failures: registrar.counter("prometheus_engine_query_log_failures_total")?,
        })
    }

    /// Directs further queries to this file, or to none. After a rotation it is a new file at the
    /// same path.
    pub fn write_to(&self, opened: Option<QueryLogFile>) {
        self.enabled.set(opened.is_some().into());
        *self.file.write() = opened;
    }

    /// Returns `true` if queries are logged.
    pub fn is_enabled(&self) -> bool {
        self.enabled.get() != 0
    }

    /// Appends a line.
    pub fn log(&self, query: &LoggedQuery<'_>) {
        let opened = self.file.read();
        let Some(QueryLogFile { path, file }) = opened.as_ref() else {
            return;
        };
        let mut line = query.to_json(Timestamp::now()).to_string();
        line.push('\n');
        if let Err(error) = (&*file).write_all(line.as_bytes()) {
            self.failures.inc();
            tracing::error!(?path, %error, "Cannot write to the query log");
        }
    }
}

impl LoggedQuery<'_> {
    fn to_json(&self, now: Timestamp) -> Value {
        let mut line = Map::new();
        line.insert("time".into(), format!("{now:.3}").into());
        line.insert("level".into(), "INFO".into());
        line.insert("requester".into(), "varve".into());
        line.insert("msg".into(), "promql query logged".into());
        let start = print_time(self.start_ms);
        let end = print_time(self.end_ms);
        line.insert(
            "params".into(),
            json!({ "end": end, "query": self.query, "start": start, "step": self.step_s }),
        );
        if let Some(error) = self.error {
            line.insert("error".into(), error.into());
        }
        let mut stats = self.stats.clone();
        stats["varve"]["series"] = self.n_series.into();
        stats["varve"]["memoryPeakBytes"] = self.memory_peak_bytes.into();
        line.insert("stats".into(), stats);
        let (trace_id, span_id) = self
            .trace
            .clone()
            .unwrap_or_else(|| ("0".repeat(32), "0".repeat(16)));
        line.insert("spanID".into(), span_id.into());
        line.insert("traceID".into(), trace_id.into());
        match &self.origin {
            QueryOrigin::Http {
                client_ip,
                method,
                path,
                requester,
            } => {
                let mut request = json!({ "clientIP": client_ip, "method": method, "path": path });
                for (name, text) in requester.fields() {
                    if !text.is_empty() {
                        request[name] = text.into();
                    }
                }
                line.insert("httpRequest".into(), request)
            }
            QueryOrigin::RuleGroup { file, name } => {
                line.insert("ruleGroup".into(), json!({ "file": file, "name": name }))
            }
        };
        Value::Object(line)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use tempfile::TempDir;

    /// Returns an entry. `stats` must be an object.
    fn query(stats: Value) -> LoggedQuery<'static> {
        LoggedQuery {
            query: "up == \"x\"",
            start_ms: 1_700_000_000_000,
            end_ms: 1_700_000_060_500,
            step_s: 15,
            error: Some("query was canceled"),
            stats,
            n_series: 2,
            memory_peak_bytes: 100,
            trace: None,
            origin: QueryOrigin::Http {
                client_ip: String::new(),
                method: "GET",
                path: "/api/v1/query_range",
                requester: QueryRequester {
                    user: "ann".into(),
                    ..QueryRequester::default()
                },
            },
        }
    }

    #[test]
    fn a_line_has_the_format_of_prometheus() {
        let line =
            query(json!({ "timings": { "execTotalTime": 1.5 } })).to_json(Timestamp::UNIX_EPOCH);
        assert_eq!(line["time"], "1970-01-01T00:00:00.000Z");
        assert_eq!(line["params"]["start"], "2023-11-14T22:13:20.000Z");
        assert_eq!(
            (&line["params"]["step"], &line["msg"]),
            (&json!(15), &json!("promql query logged"))
        );
        assert_eq!(
            (&line["error"], &line["stats"]["timings"]["execTotalTime"]),
            (&json!("query was canceled"), &json!(1.5))
        );
        assert_eq!(
            line["stats"]["varve"],
            json!({ "series": 2, "memoryPeakBytes": 100 })
        );
        assert_eq!(
            line["httpRequest"],
            json!({ "clientIP": "", "method": "GET", "path": "/api/v1/query_range", "user": "ann" })
        );
    }

    #[test]
    fn lines_are_appended_until_the_log_is_closed() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("queries.log");
        let log = QueryLog::new(&Registrar(&Registry::new())).unwrap();
        log.log(&query(json!({})));
        log.write_to(Some(QueryLogFile::open(&path).unwrap()));
        log.log(&query(json!({})));
        log.write_to(Some(QueryLogFile::open(&path).unwrap()));
        log.log(&query(json!({})));
        assert!(
            QueryLogFile::open(dir.path()).is_err(),
            "a directory is not a log file"
        );
        log.log(&query(json!({})));
        log.write_to(None);
        assert!(!log.is_enabled());
        log.log(&query(json!({})));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!((lines.len(), log.failures.get()), (3, 0));
        assert_eq!(lines[2]["params"]["query"], "up == \"x\"");
    }
}
