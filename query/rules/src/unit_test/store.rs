//! A store for the rules under test.

use std::sync::Arc;

use varve_model::histogram::Histogram;
use varve_model::{Labels, Matcher, Rejection, Sample, TimeRange};
use varve_query::{Engine, Request, Steps, Value, VectorSample};
use varve_tsdb::{Db, ReadContext, WriteBatch};

use super::sequence::{Item, Sequence};
use crate::alert::Notification;
use crate::storage::{Answer, Failure, Output, OutputBudget, Query, RuleRef, Storage};
use crate::time::Time;

/// A store, and the samples that are still to be loaded.
pub(super) struct Store {
    pub(super) db: Db,
    pub(super) engine: Engine,
    /// Start of the test in milliseconds.
    pub(super) start_ms: i64,
    pub(super) interval_ms: i64,
    pub(super) series: Vec<Input>,
}

/// An input series.
pub(super) struct Input {
    pub(super) labels: Labels,
    pub(super) sequence: Sequence,
    /// Index of the first value that is not loaded.
    pub(super) next: usize,
    /// The histogram that was loaded last.
    pub(super) last: Option<Arc<Histogram>>,
}

impl Store {
    /// Loads all samples up to a time, included.
    ///
    /// # Errors
    /// A sample was rejected.
    pub(super) fn load_until(&mut self, until_ms: i64) -> Result<(), String> {
        let mut batch = WriteBatch::default();
        for input in &mut self.series {
            if input.labels.is_empty() && input.sequence.values.iter().any(Option::is_some) {
                return Err("empty labelset".to_owned());
            }
            // Creates the series if it is new.
            let handle = self
                .db
                .series(&input.labels)
                .map_err(|error| error.to_string())?;
            while let Some(value) = input.sequence.values.get(input.next) {
                let timestamp_ms = self.start_ms + input.next as i64 * self.interval_ms;
                if timestamp_ms > until_ms {
                    break;
                }
                input.next += 1;
                match value {
                    None => {}
                    &Some(Item::Float(value)) => {
                        batch.push(
                            handle,
                            Sample {
                                timestamp_ms,
                                value,
                            },
                            0,
                        );
                        input.last = None;
                    }
                    Some(Item::Histogram(literal)) => {
                        literal
                            .histogram
                            .validate()
                            .map_err(|error| error.to_string())?;
                        let histogram = Arc::new(literal.appended_after(input.last.as_deref()));
                        batch.push_histogram(handle, timestamp_ms, Arc::clone(&histogram), 0);
                        input.last = Some(histogram);
                    }
                }
            }
        }
        self.db
            .append(&mut batch)
            .map_err(|error| error.to_string())?;
        batch
            .rejected()
            .first()
            .map_or(Ok(()), |rejected| Err(rejected.reason.to_string()))
    }

    /// Evaluates an expression at one time.
    ///
    /// # Errors
    /// The query failed, or its value is neither a vector nor a scalar.
    pub(super) fn evaluate(
        &self,
        expr: &str,
        timestamp_ms: i64,
    ) -> Result<Vec<VectorSample>, String> {
        match self.value(expr, timestamp_ms)? {
            Value::Vector(samples) => Ok(samples),
            Value::Scalar(point) => Ok(vec![VectorSample {
                labels: Labels::empty(),
                point,
                histogram: None,
            }]),
            _ => Err("rule result is not a vector or scalar".to_owned()),
        }
    }

    pub(super) fn value(&self, expr: &str, timestamp_ms: i64) -> Result<Value, String> {
        let request = Request::new(expr, Steps::instant(timestamp_ms));
        let result = self
            .engine
            .run(&self.db, &ReadContext::unbounded(), &request);
        result
            .map(|result| result.value)
            .map_err(|error| error.to_string())
    }
}

impl Storage for Store {
    fn query(&self, _from: &RuleRef<'_>, query: &Query<'_>) -> Result<Answer, Failure> {
        let samples = self
            .evaluate(query.expr, query.timestamp_ms)
            .map_err(Failure::new)?;
        Ok(Answer {
            samples,
            ..Answer::default()
        })
    }

    fn append(&self, _budget: OutputBudget, samples: &[Output]) -> Result<Vec<Rejection>, Failure> {
        let mut batch = WriteBatch::default();
        let failed = |error: varve_tsdb::Error| Failure::new(error.to_string());
        for (idx, output) in (0..).zip(samples) {
            let handle = self.db.series(&output.labels).map_err(failed)?;
            let sample = output.sample;
            match &output.histogram {
                Some(histogram) => {
                    let histogram = Arc::new(histogram.to_stored());
                    batch.push_histogram(handle, sample.timestamp_ms, histogram, idx);
                }
                None => batch.push(handle, sample, idx),
            }
        }
        self.db.append(&mut batch).map_err(failed)?;
        Ok(batch.rejected().to_vec())
    }

    fn newest(
        &self,
        _matchers: &[Matcher],
        _range: TimeRange,
    ) -> Result<Vec<(Labels, Sample)>, Failure> {
        Ok(Vec::new())
    }

    fn now(&self) -> Time {
        Time::default()
    }

    fn notify(&self, _alerts: Vec<Notification>) {}
}
