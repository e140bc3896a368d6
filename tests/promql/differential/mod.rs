//! Random queries over the same data, sent to Varve and to a real Prometheus: both must give the
//! same results.
//!
//! `VARVE_DIFFERENTIAL_QUERIES` sets the number of queries, `VARVE_DIFFERENTIAL_SEED` the seed. A
//! failure prints the seed, which reproduces data and queries, at the same minute of an hour.

pub(crate) mod compare;
mod dataset;
mod generator;
mod known;
mod kube_prometheus;
mod native;
mod selected;
mod servers;
mod shrink;
mod vocabulary;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::{Release, is_thanos_missing, releases};
use compare::{Outcome, Sameness, compare, compare_values};
use dataset::Dataset;
use generator::{Generator, Question};
use servers::Servers;

const QUERIES: u64 = 5000;
const NATIVE_QUERIES: u64 = 1000;
/// Number of queries over each dataset through queriers of Thanos.
const THANOS_QUERIES: u64 = 300;
const SEED: u64 = 20_260_824;

/// Number of requests to Prometheus if the results differ.
const REPEATS: usize = 20;

/// The test ends after this many differences.
const DIFFERENCES_MAX: usize = 20;

/// Counts of results.
#[derive(Debug, Default)]
struct Summary {
    n_queries: u64,
    n_exact: usize,
    /// Equal apart from rounding.
    n_close: usize,
    n_errors: u64,
    n_empty: u64,
    n_undecided: u64,
    /// Differences between versions, by name.
    n_known: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

#[test]
fn random_queries_give_the_results_of_prometheus() {
    let seed = setting("SEED", SEED);
    ask_all(
        setting("QUERIES", QUERIES),
        seed,
        &Dataset::new(seed, full_hour_ms()),
        60,
    );
}

#[test]
fn random_queries_over_native_histograms_give_the_results_of_prometheus() {
    let seed = setting("SEED", SEED);
    // Many operations on floats have no result for histograms.
    ask_all(
        setting("NATIVE_QUERIES", NATIVE_QUERIES),
        seed,
        &Dataset::of_natives(seed, full_hour_ms()),
        45,
    );
}

#[test]
fn random_queries_give_the_same_results_through_queriers_of_thanos() {
    let Some(release) = releases().first().filter(|_| !is_thanos_missing()) else {
        return;
    };
    let seed = setting("SEED", SEED);
    let n_queries = setting("THANOS_QUERIES", THANOS_QUERIES);
    for (dataset, percent) in [
        (Dataset::new(seed, full_hour_ms()), 50),
        (Dataset::of_natives(seed, full_hour_ms()), 30),
    ] {
        ask_both(
            &Servers::start_as_leaves(release),
            n_queries,
            seed,
            &dataset,
            percent,
        );
    }
}

/// Sends `n_queries`, of which at least `percent` must have a result.
fn ask_all(n_queries: u64, seed: u64, dataset: &Dataset, percent: u64) {
    for release in releases().iter() {
        ask_both(&Servers::start(release), n_queries, seed, dataset, percent);
    }
}

/// Sends `n_queries` to both servers.
fn ask_both(servers: &Servers, n_queries: u64, seed: u64, dataset: &Dataset, percent: u64) {
    dataset.bodies().for_each(|body| servers.write(&body));
    servers.wait_for_samples(dataset.end_ms());
    let mut generator = Generator::new(seed, dataset);
    let mut summary = Summary::default();
    while summary.n_queries < n_queries && summary.differences.len() < DIFFERENCES_MAX {
        summary.ask(servers, &generator.question());
    }
    eprintln!(
        "seed {seed}, {} samples from {}",
        dataset.n_samples(),
        dataset.start_ms
    );
    summary.check(servers.release);
    let n_results = summary.n_queries - summary.n_empty - summary.n_errors;
    assert!(
        n_results * 100 > summary.n_queries * percent,
        "{n_results} of {n_queries} queries have a result"
    );
}

/// Reads a number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(format!("VARVE_DIFFERENTIAL_{name}"));
    text.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|e| panic!("VARVE_DIFFERENTIAL_{name} {text:?}: {e}"))
    })
}

/// Returns the last full hour after which all of the data fits.
fn full_hour_ms() -> i64 {
    const HOUR_MS: i64 = 3_600_000;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970");
    let now_ms = i64::try_from(now.as_millis()).expect("the clock is before the year 292278994");
    (now_ms - dataset::SPAN_MS) / HOUR_MS * HOUR_MS
}

impl Summary {
    fn ask(&mut self, servers: &Servers, question: &Question) {
        self.n_queries += 1;
        let (ours, theirs) = (
            servers.ask_varve(question),
            servers.ask_prometheus(question),
        );
        self.n_errors += u64::from(theirs.is_error());
        self.n_empty += u64::from(theirs.is_empty());
        match compare(&question.query, &ours, &theirs, &compare_values) {
            Ok(Sameness::Exact) => self.n_exact += 1,
            Ok(Sameness::Close) => self.n_close += 1,
            Err(_) => match judge(servers, question, &ours) {
                Verdict::Undecided => self.n_undecided += 1,
                Verdict::Different => self.explain(servers, question),
            },
        }
    }

    /// Finds the smallest part that differs, and a known difference that explains it.
    fn explain(&mut self, servers: &Servers, question: &Question) {
        let smallest = shrink::shrink(question, |smaller| {
            judge(servers, smaller, &servers.ask_varve(smaller)) == Verdict::Different
        });
        let (ours, theirs) = (
            servers.ask_varve(&smallest),
            servers.ask_prometheus(&smallest),
        );
        if let Some(known) = known::explain(servers.release, &smallest, &ours, &theirs) {
            *self.n_known.entry(known).or_default() += 1;
            return;
        }
        let difference = compare(&smallest.query, &ours, &theirs, &compare_values)
            .err()
            .unwrap_or_default();
        self.differences.push(format!(
            "{}\n  smallest part that differs: {}\n  {:?}\n  {difference}\n  varve:      {}\n  prometheus: {}\n",
            question.query,
            smallest.query,
            smallest.times,
            ours.print(),
            theirs.print()
        ));
    }

    /// Prints the summary, and checks that no query differs.
    fn check(&self, release: &Release) {
        eprintln!("Prometheus {:?}: {}", release.version, self.print());
        assert!(
            self.differences.is_empty(),
            "{} queries differ",
            self.differences.len()
        );
        assert!(
            self.n_undecided * 100 <= self.n_queries,
            "too many queries without a definite result"
        );
    }

    fn print(&self) -> String {
        let Self {
            n_queries,
            n_exact,
            n_close,
            n_errors,
            n_empty,
            n_undecided,
            n_known,
            differences,
        } = self;
        let mut text = format!(
            "{n_queries} queries, {n_exact} equal, {n_close} close, {n_undecided} where Prometheus contradicts itself, \
             {n_known:?} known, {} different; {n_empty} empty, {n_errors} errors",
            differences.len()
        );
        for difference in differences {
            let _ = write!(text, "\n\n{difference}");
        }
        text
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Different,
    /// The order of a hash map decides in Prometheus: a repeated request gives the same result as
    /// Varve, or a third one.
    Undecided,
}

fn judge(servers: &Servers, question: &Question, ours: &Outcome) -> Verdict {
    let same = |a: &Outcome, b: &Outcome| compare(&question.query, a, b, &compare_values).is_ok();
    let first = servers.ask_prometheus(question);
    let decided = !same(ours, &first)
        && (1..REPEATS).all(|_| {
            let again = servers.ask_prometheus(question);
            !same(ours, &again) && same(&first, &again)
        });
    if decided {
        Verdict::Different
    } else {
        Verdict::Undecided
    }
}
