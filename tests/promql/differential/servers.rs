//! The two servers, with the same data and the same features.

use super::compare::Outcome;
use varve_query::Times;

use super::generator::Question;
use crate::harness::{Http, Prometheus, Release, Server};

const FEATURES: &str = "--enable-feature=promql-experimental-functions,promql-per-step-stats";

/// Both servers.
pub(super) struct Servers {
    varve: Server,
    prometheus: Prometheus,
    pub(super) release: &'static Release,
}

impl Servers {
    pub(super) fn start(release: &'static Release) -> Self {
        let flags = [FEATURES, "--enable-feature=native-histograms"];
        Self { varve: Server::start(&[FEATURES]), prometheus: release.start("global: {}\n", &flags), release }
    }

    /// Returns the clients of both: first Varve, then Prometheus.
    pub(super) fn https(&self) -> [&Http; 2] {
        [self.varve.http(), self.prometheus.http()]
    }

    /// Writes a request to both.
    pub(super) fn write(&self, body: &[u8]) {
        for http in self.https() {
            let answer = http.write_body(body);
            assert!(matches!(answer.status, 200 | 204), "{answer:?}");
        }
    }

    pub(super) fn ask_varve(&self, question: &Question) -> Outcome {
        ask(self.varve.http(), question)
    }

    pub(super) fn ask_prometheus(&self, question: &Question) -> Outcome {
        ask(self.prometheus.http(), question)
    }
}

fn ask(http: &Http, Question { query, times }: &Question) -> Outcome {
    let seconds = |ms: i64| format!("{}.{:03}", ms / 1000, ms % 1000);
    Outcome::of(&match *times {
        Times::Instant(time_ms) => {
            http.form("/api/v1/query", &[("query", query), ("time", &seconds(time_ms)), ("stats", "all")])
        }
        Times::Range { start_ms, end_ms, step_ms } => {
            let [start, end, step] = [start_ms, end_ms, step_ms].map(seconds);
            let params =
                [("query", query.as_str()), ("start", &start), ("end", &end), ("step", &step), ("stats", "all")];
            http.form("/api/v1/query_range", &params)
        }
    })
}
