//! Two stores with the same samples, one behind relabel rules, and the results of both.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, ensure};
use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{Labels, Sample};
use varve_promql::Features;
use varve_query::{Engine, EngineOptions, Request, Steps, Value};
use varve_tsdb::{Db, ReadContext, WriteBatch};

use super::reads::LOOKBACK_MS;
use super::series::Sampled;
use crate::scratch_dir::ScratchDir;

/// Maximum relative difference between results. Without a label, series are added up in another
/// order, which changes the last digits.
const DIFFERENCE_MAX: f64 = 1e-9;
/// Maximum number of samples that an evaluation holds at once.
const SAMPLES_MAX: usize = 50_000_000;
/// Default step of subqueries, that of Prometheus.
const SUBQUERY_STEP_MS: i64 = 60_000;

/// Evaluates expressions.
pub(super) struct Evaluator(Engine);

/// A store without relabel rules, and one with them. Both are removed on drop.
pub(super) struct Stores {
    stores: [Db; 2],
    _dir: ScratchDir,
}

impl Evaluator {
    pub(super) fn new() -> Self {
        Self(Engine::new(EngineOptions {
            lookback_delta_ms: LOOKBACK_MS,
            samples_max: SAMPLES_MAX,
            subquery_step_ms: SUBQUERY_STEP_MS,
            parallelism: 1,
            cache_size: 0,
            features: Features::all(),
        }))
    }

    /// Returns the values of an expression by label set.
    fn values(&self, db: &Db, expr: &str, time_ms: i64) -> Result<BTreeMap<String, f64>> {
        let request = Request::new(expr, Steps::instant(time_ms));
        let result = self
            .0
            .run(db, &ReadContext::unbounded(), &request)
            .map_err(|error| anyhow!("{error}"))?;
        match result.value {
            Value::Scalar(point) => Ok([(String::new(), point.value)].into()),
            Value::Vector(samples) => samples
                .into_iter()
                .map(|sample| {
                    ensure!(
                        sample.histogram.is_none(),
                        "its result has native histograms, which are not supported"
                    );
                    Ok((sample.labels.to_string(), sample.point.value))
                })
                .collect(),
            Value::String { .. } | Value::Matrix(_) => {
                Err(anyhow!("its result is neither a vector nor a scalar"))
            }
        }
    }

    /// Returns the first difference between the results of both stores, in words.
    ///
    /// # Errors
    /// The evaluation of the expression.
    pub(super) fn difference(
        &self,
        stores: &Stores,
        expr: &str,
        time_ms: i64,
    ) -> Result<Option<String>> {
        let [before, after] = &stores.stores;
        let before = self.values(before, expr, time_ms)?;
        let after = self.values(after, expr, time_ms)?;
        let gone = before.iter().find_map(|(labels, value)| {
            let other = after.get(labels);
            if other.is_some_and(|other| is_near(*value, *other)) {
                return None;
            }
            let other = other.map_or_else(|| "nothing".to_owned(), f64::to_string);
            Some(format!("{labels} is {value}, with the rules {other}"))
        });
        let new = after
            .iter()
            .find(|(labels, _)| !before.contains_key(*labels))
            .map(|(labels, value)| format!("{labels} is nothing, with the rules {value}"));
        Ok(gone.or(new))
    }
}

impl Stores {
    /// Creates two empty stores.
    ///
    /// # Errors
    /// If a directory cannot be created.
    pub(super) fn create() -> Result<Self> {
        let dir = ScratchDir::create(None)?;
        Ok(Self {
            stores: [dir.open_store("before")?, dir.open_store("after")?],
            _dir: dir,
        })
    }

    /// Adds a series to the first store, and with its new labels to the second one. A series that
    /// has ended gets a staleness marker.
    ///
    /// # Errors
    /// If a store does not accept the samples.
    pub(super) fn add(&self, series: &Sampled, relabeled: &Labels) -> Result<()> {
        let mut samples = series.samples.clone();
        if series.has_ended
            && let Some(last) = samples.last()
        {
            samples.push(Sample {
                timestamp_ms: last.timestamp_ms + 1,
                value: f64::from_bits(STALE_NAN_BITS),
            });
        }
        let [before, after] = &self.stores;
        add(before, &series.labels, &samples)?;
        add(after, relabeled, &samples)
    }
}

fn add(db: &Db, labels: &Labels, samples: &[Sample]) -> Result<()> {
    let handle = db.series(labels)?;
    let mut batch = WriteBatch::default();
    for &sample in samples {
        batch.push(handle, sample, 0);
    }
    db.append(&mut batch)?;
    match batch.rejected().first() {
        Some(rejection) => Err(anyhow!("{labels}: {}", rejection.reason)),
        None => Ok(()),
    }
}

fn is_near(a: f64, b: f64) -> bool {
    let difference = (a - b).abs();
    a == b
        || (a.is_nan() && b.is_nan())
        || (difference.is_finite() && difference <= DIFFERENCE_MAX * a.abs().max(b.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_near_if_only_their_last_digits_differ() {
        for (a, b) in [
            (1.0, 1.0 + 1e-12),
            (-3e9, -3e9 - 1e-3),
            (0.0, -0.0),
            (f64::NAN, f64::NAN),
            (f64::INFINITY, f64::INFINITY),
        ] {
            assert!(is_near(a, b), "{a} {b}");
        }
        for (a, b) in [
            (1.0, 1.0 + 1e-6),
            (0.0, 1e-300),
            (2.0, f64::INFINITY),
            (f64::INFINITY, f64::NEG_INFINITY),
            (1.0, f64::NAN),
        ] {
            assert!(!is_near(a, b) && !is_near(b, a), "{a} {b}");
        }
    }
}
