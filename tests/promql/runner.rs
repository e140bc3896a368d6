//! Runs scripts against a store in a temporary folder.

use std::fmt::Write;
use std::sync::Arc;

use tempfile::TempDir;
use varve_model::Sample;
use varve_promql::Features;
use varve_query::{Engine, EngineOptions, Error, QueryResult, Request, Steps, Value};
use varve_tsdb::{Db, Options, ReadContext, WalSync, WriteBatch};

use super::at_modifier;
use super::compare;
use super::script::{Command, CommandKind, Eval, Expected, Load, parse_script};
use varve_rules::unit_test::sequence::Item;

/// The outcome of the evaluations of a script.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) n_passed: usize,
    /// Failures, in order of lines.
    pub(super) failures: Vec<String>,
}

/// How a script is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// With delayed name removal, as Prometheus runs its own scripts.
    Delayed,
    /// As a server runs queries by default.
    Immediate,
}

/// Runs a script.
pub(super) fn run(text: &str, mode: Mode) -> Outcome {
    let features = Features {
        type_and_unit_labels: false,
        delayed_name_removal: mode == Mode::Delayed,
        ..Features::all()
    };
    let mut outcome = Outcome::default();
    let commands = match parse_script(text, &features) {
        Ok(commands) => commands,
        Err(why) => {
            outcome.failures.push(why);
            return outcome;
        }
    };
    let mut runner = Runner {
        engine: Engine::new(EngineOptions {
            lookback_delta_ms: 300_000,
            samples_max: 10_000,
            subquery_step_ms: 60_000,
            parallelism: 3,
            cache_size: 0,
            features,
        }),
        store: Store::open(),
    };
    for Command { line, kind } in commands {
        match kind {
            CommandKind::Clear => runner.store = Store::open(),
            CommandKind::Load(load) => runner.store.load(&load),
            CommandKind::Eval(eval) => match runner.eval(&eval) {
                Ok(()) => outcome.n_passed += 1,
                Err(why) => outcome
                    .failures
                    .push(format!("line {line}: {}: {why}", eval.query)),
            },
        }
    }
    outcome
}

/// The store of a script, until `clear`.
struct Store {
    db: Db,
    _folder: TempDir,
}

impl Store {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            wal_sync: WalSync::Never,
            in_order_max_age_ms: i64::MAX / 2,
            ..Options::default()
        };
        let db = Db::open(folder.path(), options).unwrap();
        Self {
            db,
            _folder: folder,
        }
    }

    fn load(&mut self, load: &Load) {
        let mut batch = WriteBatch::default();
        for (labels, sequence) in &load.series {
            let handle = self.db.series(labels).unwrap();
            let mut before = None;
            let starts_ms = load
                .starts_ms
                .get(labels)
                .map_or(&[][..], |starts_ms| starts_ms);
            for (i, value) in sequence.values.iter().enumerate() {
                let timestamp_ms = i as i64 * load.step_ms;
                let start_ms = starts_ms
                    .get(i)
                    .copied()
                    .flatten()
                    .map_or(0, |offset_ms| timestamp_ms + offset_ms);
                match value {
                    None => {}
                    &Some(Item::Float(value)) => {
                        batch.push_with_start(
                            handle,
                            Sample {
                                timestamp_ms,
                                value,
                            },
                            start_ms,
                            0,
                        );
                        before = None;
                    }
                    Some(Item::Histogram(literal)) => {
                        let histogram = Arc::new(literal.appended_after(before.as_deref()));
                        batch.push_histogram_with_start(
                            handle,
                            timestamp_ms,
                            Arc::clone(&histogram),
                            start_ms,
                            0,
                        );
                        before = Some(histogram);
                    }
                }
            }
        }
        self.db.append(&mut batch).unwrap();
        assert!(batch.rejected().is_empty(), "{:?}", batch.rejected());
    }
}

struct Runner {
    engine: Engine,
    store: Store,
}

/// Functions and modifiers for which an instant query and a range query differ.
const RANGE_DEPENDENT: [&str; 4] = ["start()", "end()", "range()", "step()"];

impl Runner {
    fn run(&self, query: &str, times: Steps) -> Result<QueryResult, Error> {
        self.engine.run(
            &self.store.db,
            &ReadContext::unbounded(),
            &Request::new(query, times),
        )
    }

    fn eval(&self, eval: &Eval) -> Result<(), String> {
        if eval.times.is_instant() {
            self.check_instants(eval, eval.times.start_ms())
        } else {
            self.check_range(eval, eval.times.start_ms(), eval.times.step_ms())
        }
    }

    fn check_range(&self, eval: &Eval, start_ms: i64, step_ms: i64) -> Result<(), String> {
        let result = self.run(&eval.query, eval.times);
        let Some(result) = settle_failure(eval, result)? else {
            return Ok(());
        };
        compare::annotations(eval, &result.annotations)?;
        let Value::Matrix(matrix) = &result.value else {
            return Err("no matrix".into());
        };
        compare::sorted(matrix)?;
        let Expected::Series(expected) = &eval.expected else {
            return Err("expected no series".into());
        };
        compare::matrix(expected, matrix, start_ms, step_ms)
    }

    /// Runs an instant query at its time, and with `@` added to its selectors at other times.
    fn check_instants(&self, eval: &Eval, time_ms: i64) -> Result<(), String> {
        self.check_instant(eval, &eval.query, time_ms)?;
        let Some(pinned) = at_modifier::pin(&eval.expr, time_ms) else {
            return Ok(());
        };
        let times_ms = match time_ms {
            0 => vec![-1000, 0, 1000],
            _ => vec![-10 * time_ms, 0, time_ms / 5, time_ms, 10 * time_ms],
        };
        for time_ms in times_ms {
            self.check_instant(eval, &pinned, time_ms)
                .map_err(|why| format!("as {pinned} at {time_ms}: {why}"))?;
        }
        Ok(())
    }

    fn check_instant(&self, eval: &Eval, query: &str, time_ms: i64) -> Result<(), String> {
        let result = self.run(query, Steps::instant(time_ms));
        let Some(result) = settle_failure(eval, result)? else {
            return Ok(());
        };
        compare::annotations(eval, &result.annotations)?;
        compare::instant(eval, &result.value)?;
        let skip = matches!(
            eval.expected,
            Expected::RangeVector { .. } | Expected::String(_)
        ) || RANGE_DEPENDENT
            .iter()
            .any(|function| query.contains(function));
        if skip {
            Ok(())
        } else {
            self.check_as_range(eval, query, time_ms)
        }
    }

    /// Runs an instant query as a range query of three steps, and checks the middle one.
    fn check_as_range(&self, eval: &Eval, query: &str, time_ms: i64) -> Result<(), String> {
        const MINUTE_MS: i64 = 60_000;
        let (start_ms, end_ms) = (time_ms - MINUTE_MS, time_ms + MINUTE_MS);
        let in_range = |why: String| format!("as range query: {why}");
        let result = self.run(query, Steps::range(start_ms, end_ms, MINUTE_MS));
        let result = result.map_err(|error| in_range(error.to_string()))?;
        let Value::Matrix(matrix) = &result.value else {
            return Err(in_range("no matrix".into()));
        };
        if !eval.ordered {
            compare::sorted(matrix).map_err(in_range)?;
        }
        let value = compare::slice(matrix, time_ms, &eval.expected);
        compare::unordered(eval, &value).map_err(in_range)
    }
}

/// Checks whether a query was expected to fail; `None` if it failed as expected.
fn settle_failure(
    eval: &Eval,
    result: Result<QueryResult, Error>,
) -> Result<Option<QueryResult>, String> {
    match (result, &eval.fail) {
        (Ok(result), None) => Ok(Some(result)),
        (Ok(_), Some(_)) => Err("did not fail".into()),
        (Err(error), Some(text)) if compare::text_matches(text, &error.to_string()) => Ok(None),
        (Err(error), _) => Err(format!("failed: {error}")),
    }
}

/// Formats failures, one per line.
pub(super) fn print(file: &str, outcome: &Outcome) -> String {
    outcome
        .failures
        .iter()
        .fold(String::new(), |mut out, failure| {
            let _infallible = writeln!(out, "{file}: {failure}");
            out
        })
}
