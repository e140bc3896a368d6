//! The two servers, with the same data and the same features.

use super::compare::Outcome;
use varve_query::Steps;

use super::generator::Question;
use crate::harness::{ConfigFile, Http, Prometheus, Release, Server, Thanos, wait_until};

const FEATURES: &str = "--enable-feature=promql-experimental-functions,promql-per-step-stats";

/// Both servers.
pub(super) struct Servers {
    varve: Server,
    prometheus: Prometheus,
    pub(super) release: &'static Release,
    /// Queriers of Thanos, one per server, to which queries are sent instead.
    queriers: Option<[Thanos; 2]>,
    _sidecar: Option<Thanos>,
    _config: Option<ConfigFile>,
}

impl Servers {
    pub(super) fn start(release: &'static Release) -> Self {
        let flags = [FEATURES, "--enable-feature=native-histograms"];
        let (varve, prometheus) = (
            Server::start(&[FEATURES]),
            release.start("global: {}\n", &flags),
        );
        Self {
            varve,
            prometheus,
            release,
            queriers: None,
            _sidecar: None,
            _config: None,
        }
    }

    /// Starts both servers as leaves of Thanos: Varve itself, and Prometheus with a sidecar. They
    /// have the same external labels, which change the order of series.
    pub(super) fn start_as_leaves(release: &'static Release) -> Self {
        let config = ConfigFile::new("global: {external_labels: {cluster: c, replica: a}}");
        let varve = Server::start(&[FEATURES, &config.flag()]);
        let flags = [
            "--enable-feature=native-histograms",
            "--storage.tsdb.min-block-duration=2h",
            "--storage.tsdb.max-block-duration=2h",
        ];
        let prometheus = release.start(
            "global: {external_labels: {cluster: c, replica: a}}\n",
            &flags,
        );
        let sidecar = Thanos::sidecar(&prometheus);
        let addresses = [varve.http().address(), sidecar.grpc_address()];
        let queriers = addresses.map(|address| {
            Thanos::query(
                &[address],
                &[
                    "--query.replica-label=replica",
                    "--query.max-concurrent-select=16",
                ],
            )
        });
        Self {
            varve,
            prometheus,
            release,
            queriers: Some(queriers),
            _sidecar: Some(sidecar),
            _config: Some(config),
        }
    }

    /// Waits until the queriers know that there are samples, which they ask for every five seconds.
    pub(super) fn wait_for_samples(&self, time_ms: i64) {
        let question = Question {
            query: "count({__name__=~\".+\"}) > 0".to_owned(),
            times: Steps::instant(time_ms),
        };
        wait_until("the queriers to find samples", || {
            !self.ask_varve(&question).is_empty() && !self.ask_prometheus(&question).is_empty()
        });
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
        ask(
            self.queriers
                .as_ref()
                .map_or(self.varve.http(), |[ours, _]| ours.http()),
            question,
        )
    }

    pub(super) fn ask_prometheus(&self, question: &Question) -> Outcome {
        ask(
            self.queriers
                .as_ref()
                .map_or(self.prometheus.http(), |[_, theirs]| theirs.http()),
            question,
        )
    }
}

fn ask(http: &Http, Question { query, times }: &Question) -> Outcome {
    let seconds = |ms: i64| format!("{}.{:03}", ms / 1000, ms % 1000);
    if times.is_instant() {
        let time = seconds(times.start_ms());
        let params = [("query", query.as_str()), ("time", &time), ("stats", "all")];
        return Outcome::of(&http.form("/api/v1/query", &params));
    }
    let [start, end, step] = [times.start_ms(), times.end_ms(), times.step_ms()].map(seconds);
    let params = [
        ("query", query.as_str()),
        ("start", &start),
        ("end", &end),
        ("step", &step),
        ("stats", "all"),
    ];
    Outcome::of(&http.form("/api/v1/query_range", &params))
}
