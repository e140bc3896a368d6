//! Runs scripts against a store in a temporary folder.

use std::fmt::Write;
use std::sync::Arc;

use tempfile::TempDir;
use varve_query::{Engine, EngineOptions, Error, Features, FloatHistogram, QueryResult, Value};
use varve_tsdb::histogram::{Histogram, ResetHint};
use varve_tsdb::{Db, Options, QueryContext, Sample, WalSync, WriteBatch};

use super::at_modifier;
use super::compare;
use super::script::{Command, CommandKind, Eval, Expected, Load, Times, parse_script};
use super::sequence::Item;

/// How the evaluations of a script went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) n_passed: usize,
    /// What went wrong, by line.
    pub(super) failures: Vec<String>,
}

/// How a script is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// As Prometheus runs its own: with delayed name removal.
    Delayed,
    /// As a server runs queries by default.
    Immediate,
}

/// Runs a script.
pub(super) fn run(text: &str, mode: Mode) -> Outcome {
    let features =
        Features { type_and_unit_labels: false, delayed_name_removal: mode == Mode::Delayed, ..Features::all() };
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
            samples_max: 10_000,
            parallelism: 3,
            features,
            ..EngineOptions::default()
        }),
        store: Store::open(),
    };
    for Command { line, kind } in commands {
        match kind {
            CommandKind::Clear => runner.store = Store::open(),
            CommandKind::Load(load) => runner.store.load(&load),
            CommandKind::Eval(eval) => match runner.eval(&eval) {
                Ok(()) => outcome.n_passed += 1,
                Err(Miss { why }) => outcome.failures.push(format!("line {line}: {}: {why}", eval.query)),
            },
        }
    }
    outcome
}

/// A store of its own, until `clear`.
struct Store {
    db: Db,
    _folder: TempDir,
}

impl Store {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { wal_sync: WalSync::Never, in_order_max_age_ms: i64::MAX / 2, ..Options::default() };
        let db = Db::open(folder.path(), options).unwrap();
        Self { db, _folder: folder }
    }

    fn load(&mut self, load: &Load) {
        let mut batch = WriteBatch::default();
        for (labels, sequence) in &load.series {
            let handle = self.db.series(labels).unwrap();
            let mut before = None;
            for (i, value) in sequence.values.iter().enumerate() {
                let timestamp_ms = i as i64 * load.step_ms;
                let start_ms =
                    sequence.starts_ms.get(i).copied().flatten().map_or(0, |offset_ms| timestamp_ms + offset_ms);
                match value {
                    None => {}
                    &Some(Item::Float(value)) => {
                        batch.push_with_start(handle, Sample { timestamp_ms, value }, start_ms, 0);
                        before = None;
                    }
                    Some(Item::Histogram(literal)) => {
                        let histogram = Arc::new(with_hint(literal.histogram.clone(), before.as_deref()));
                        batch.push_histogram_with_start(handle, timestamp_ms, Arc::clone(&histogram), start_ms, 0);
                        before = Some(histogram);
                    }
                }
            }
        }
        self.db.append(&mut batch).unwrap();
        assert!(batch.rejected().is_empty(), "{:?}", batch.rejected());
    }
}

/// Says of a counter whether it went on from the histogram before. Prometheus' store finds that out for itself when it takes
/// a histogram; ours keeps what senders say.
fn with_hint(mut histogram: Histogram, before: Option<&Histogram>) -> Histogram {
    if matches!(histogram.reset_hint, ResetHint::Unknown | ResetHint::NoReset) {
        let counter = before.filter(|before| before.reset_hint != ResetHint::Gauge);
        let continues = |before| FloatHistogram::from(&histogram).continues(&FloatHistogram::from(before));
        let known = if counter.is_some_and(continues) { ResetHint::NoReset } else { ResetHint::Unknown };
        histogram.reset_hint = known;
    }
    histogram
}

/// Why an evaluation did not give what it should.
struct Miss {
    why: String,
}

struct Runner {
    engine: Engine,
    store: Store,
}

/// Functions and modifiers that make an instant query and a range query differ.
const RANGE_DEPENDENT: [&str; 4] = ["start()", "end()", "range()", "step()"];

impl Runner {
    fn eval(&self, eval: &Eval) -> Result<(), Miss> {
        match eval.times {
            Times::Range { start_ms, end_ms, step_ms } => self.check_range(eval, start_ms, end_ms, step_ms),
            Times::Instant(time_ms) => self.check_instants(eval, time_ms),
        }
    }

    fn check_range(&self, eval: &Eval, start_ms: i64, end_ms: i64, step_ms: i64) -> Result<(), Miss> {
        let ctx = QueryContext::unbounded();
        let result = self.engine.range(&self.store.db, &ctx, &eval.query, start_ms, end_ms, step_ms, None);
        let Some(result) = settle_failure(eval, result)? else { return Ok(()) };
        compare::annotations(eval, &result.annotations).map_err(miss)?;
        let Value::Matrix(matrix) = &result.value else { return Err(miss("no matrix".into())) };
        compare::sorted(matrix).map_err(miss)?;
        let Expected::Series(expected) = &eval.expected else { return Err(miss("expected no series".into())) };
        compare::matrix(expected, matrix, start_ms, step_ms).map_err(miss)
    }

    /// Runs an instant query at its time, and with `@` written to its selectors at other times.
    fn check_instants(&self, eval: &Eval, time_ms: i64) -> Result<(), Miss> {
        self.check_instant(eval, &eval.query, time_ms)?;
        let Some(pinned) = at_modifier::pin(&eval.expr, time_ms) else { return Ok(()) };
        let times_ms = match time_ms {
            0 => vec![-1000, 0, 1000],
            _ => vec![-10 * time_ms, 0, time_ms / 5, time_ms, 10 * time_ms],
        };
        for time_ms in times_ms {
            self.check_instant(eval, &pinned, time_ms)
                .map_err(|miss| Miss { why: format!("as {pinned} at {time_ms}: {}", miss.why) })?;
        }
        Ok(())
    }

    fn check_instant(&self, eval: &Eval, query: &str, time_ms: i64) -> Result<(), Miss> {
        let ctx = QueryContext::unbounded();
        let result = self.engine.instant(&self.store.db, &ctx, query, time_ms, None);
        let Some(result) = settle_failure(eval, result)? else { return Ok(()) };
        compare::annotations(eval, &result.annotations).map_err(miss)?;
        compare::instant(eval, &result.value).map_err(miss)?;
        let skip = matches!(eval.expected, Expected::RangeVector { .. } | Expected::String(_))
            || RANGE_DEPENDENT.iter().any(|function| query.contains(function));
        if skip { Ok(()) } else { self.check_as_range(eval, query, time_ms) }
    }

    /// Runs an instant query as a range query of three steps, and looks at the one in the middle.
    fn check_as_range(&self, eval: &Eval, query: &str, time_ms: i64) -> Result<(), Miss> {
        const MINUTE_MS: i64 = 60_000;
        let ctx = QueryContext::unbounded();
        let (start_ms, end_ms) = (time_ms - MINUTE_MS, time_ms + MINUTE_MS);
        let in_range = |why: String| miss(format!("as range query: {why}"));
        let result = self.engine.range(&self.store.db, &ctx, query, start_ms, end_ms, MINUTE_MS, None);
        let result = result.map_err(|error| in_range(error.to_string()))?;
        let Value::Matrix(matrix) = &result.value else { return Err(in_range("no matrix".into())) };
        if !eval.ordered {
            compare::sorted(matrix).map_err(in_range)?;
        }
        let value = compare::slice(matrix, time_ms, &eval.expected);
        compare::unordered(eval, &value).map_err(in_range)
    }
}

fn miss(why: String) -> Miss {
    Miss { why }
}

/// Tells what a failure is worth; `None` if it was expected.
fn settle_failure(eval: &Eval, result: Result<QueryResult, Error>) -> Result<Option<QueryResult>, Miss> {
    match (result, &eval.fail) {
        (Ok(result), None) => Ok(Some(result)),
        (Ok(_), Some(_)) => Err(miss("did not fail".into())),
        (Err(error), Some(text)) if compare::text_matches(text, &error.to_string()) => Ok(None),
        (Err(error), _) => Err(miss(format!("failed: {error}"))),
    }
}

/// Prints failures, one a line.
pub(super) fn print(file: &str, outcome: &Outcome) -> String {
    outcome.failures.iter().fold(String::new(), |mut out, failure| {
        let _infallible = writeln!(out, "{file}: {failure}");
        out
    })
}
