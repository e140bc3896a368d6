//! Every expression of kube-prometheus and its dashboards, over a generated fleet, scrapes of real
//! components, and synthetic series for selectors that match neither: Varve and a real Prometheus
//! must give the same results.

use std::collections::{BTreeMap, BTreeSet};

use clap::Parser as _;
use varve_model::Matcher;
use varve_promql::{Features, parse, selectors};

use varve_query::Steps;

use super::generator::Question;
use super::servers::Servers;
use super::{DIFFERENCES_MAX, Summary, selected};
use crate::harness::kube_prometheus::{
    Expression, KUBERNETES, OTHERS, expressions, is_there, recording_rules, scraped,
};
use crate::harness::{Release, WriteRequest, is_thanos_missing, releases, series};

/// Time of the first sample, interval, and time of the last sample.
const T0_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 60_000;
const END_MS: i64 = T0_MS + 10 * STEP_MS;

/// Number of series of the fleet.
const FLEET_SERIES: &str = "6000";

/// Number of series in a request.
const SERIES_PER_REQUEST: usize = 5_000;

/// Maximum depth of recording rules that read other recording rules.
const RECORDING_LEVELS: usize = 3;

#[test]
fn expressions_of_kube_prometheus_give_the_results_of_prometheus() {
    if is_there() {
        releases().iter().for_each(compare_expressions);
    }
}

#[test]
fn expressions_of_kube_prometheus_give_the_same_results_through_queriers_of_thanos() {
    if is_there() && !is_thanos_missing() {
        releases()
            .iter()
            .take(1)
            .for_each(|release| compare_with(&Servers::start_as_leaves(release)));
    }
}

fn compare_expressions(release: &'static Release) {
    compare_with(&Servers::start(release));
}

fn compare_with(servers: &Servers) {
    write_fleet(servers);
    servers.wait_for_samples(T0_MS + STEP_MS);
    let scrapes: Vec<_> = KUBERNETES.into_iter().chain(OTHERS).collect();
    let of_scrapes = scraped(&scrapes, (T0_MS..=END_MS).step_by(STEP_MS as usize));
    for part in of_scrapes.chunks(SERIES_PER_REQUEST) {
        servers.write(&WriteRequest::new(part.to_vec()).to_body());
    }
    let expressions = expressions();
    let selectors = selectors_of(&expressions);
    // Recording rules need the other series first.
    let is_recorded =
        |matchers: &[Matcher]| matchers.iter().any(|matcher| matcher.value().contains(':'));
    let (of_recorded, of_scraped) = selectors
        .iter()
        .partition(|(_, matchers)| is_recorded(matchers));
    write_synthetic(servers, of_scraped);
    record(servers);
    write_synthetic(servers, of_recorded);

    let mut summary = Summary::default();
    for expression in &expressions {
        for times in [Steps::instant(END_MS), over_all()] {
            if summary.differences.len() < DIFFERENCES_MAX {
                summary.ask(
                    servers,
                    &Question {
                        query: expression.text.clone(),
                        times,
                    },
                );
            }
        }
    }
    summary.check(servers.release);
    assert_eq!(
        (summary.n_queries, summary.n_errors),
        (2 * expressions.len() as u64, 0)
    );
    assert!(
        summary.n_empty * 5 <= summary.n_queries,
        "{} of {} answers are empty",
        summary.n_empty,
        summary.n_queries
    );
}

fn over_all() -> Steps {
    Steps::range(T0_MS, END_MS, STEP_MS)
}

/// Writes the same fleet to both servers over one connection, so the samples arrive in order of
/// time.
fn write_fleet(servers: &Servers) {
    for http in servers.https() {
        let (url, start) = (http.url("/api/v1/write"), (T0_MS / 1000).to_string());
        let write = [
            "varve-bench",
            "write",
            &url,
            "--active-series",
            FLEET_SERIES,
            "--connections",
            "1",
        ];
        let cli = varve_bench::Cli::parse_from(write.into_iter().chain([
            "--duration",
            "10m",
            "--start",
            &start,
        ]));
        varve_bench::run(&cli).expect("the server accepts the fleet");
    }
}

/// Returns the selectors in expressions, by their text.
fn selectors_of(expressions: &[Expression]) -> BTreeMap<String, Vec<Matcher>> {
    let parsed = expressions
        .iter()
        .map(|expression| parse(&expression.text, &Features::default()).expect("it is valid"));
    parsed
        .flat_map(|expr| selectors(&expr))
        .map(|matchers| (selected::print(&matchers), matchers))
        .collect()
}

/// Writes series for the selectors that match nothing.
fn write_synthetic(servers: &Servers, selectors: BTreeMap<&String, &Vec<Matcher>>) {
    let finds_nothing = |selector: &str| {
        let question = Question {
            query: selector.to_owned(),
            times: Steps::instant(END_MS),
        };
        servers.ask_prometheus(&question).is_empty()
    };
    let unanswered = selectors
        .into_iter()
        .filter(|(selector, _)| finds_nothing(selector));
    let all: BTreeSet<_> = unanswered
        .flat_map(|(_, matchers)| selected::series(matchers))
        .collect();
    let all = all.iter().enumerate().map(|(i, labels)| {
        let rank = selected::rank(labels).unwrap_or(i);
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let times = (T0_MS..=END_MS).step_by(STEP_MS as usize).enumerate();
        let samples: Vec<_> = times
            .map(|(step, time_ms)| (time_ms, (rank * (step + 1)) as f64))
            .collect();
        series(&labels, &samples)
    });
    servers.write(&WriteRequest::new(all).to_body());
}

/// Writes the results of recording rules, evaluated by Prometheus, for the expressions that read
/// them.
fn record(servers: &Servers) {
    let mut rules = recording_rules();
    for _ in 0..RECORDING_LEVELS {
        rules.retain(|rule| {
            let outcome = servers.ask_prometheus(&Question {
                query: rule.expr.clone(),
                times: over_all(),
            });
            let recorded: Vec<_> = outcome
                .series()
                .iter()
                .map(|found| rule.record(found))
                .collect();
            let is_asked_again = recorded.is_empty();
            if !is_asked_again {
                servers.write(&WriteRequest::new(recorded).to_body());
            }
            is_asked_again
        });
    }
}
