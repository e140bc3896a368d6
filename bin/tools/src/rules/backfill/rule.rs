//! The evaluation of one recording rule over history.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, anyhow, ensure};
use varve_client::{Client, escape};
use varve_model::labels::METRIC_NAME;
use varve_model::staleness::{STALE_NAN_BITS, is_stale_nan};
use varve_model::{Labels, Matcher, Sample, TimeRange};
use varve_promql::{print, print_matchers};
use varve_rules::file::RuleDefinition;

use super::blocks::Blocks;
use crate::output::counted;
use crate::query::response::{Labels as LabelMap, Stream, Value, read_data};

/// Maximum number of evaluations per request. Servers accept 11,000 by default.
pub(super) const STEPS_MAX: i64 = 500;
/// Number of evaluations of a rule that may fail.
const FAILURES_MAX: usize = 100;
/// Status of a query whose evaluation fails.
const UNPROCESSABLE: u16 = 422;

/// The times of the samples of a group: those of its evaluations, less its query offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) first_ms: i64,
    /// No time is later.
    pub(super) last_ms: i64,
    pub(super) interval_ms: i64,
}

/// A rule and the state of its evaluation.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) definition: RuleDefinition,
    times: Times,
    /// Maximum number of evaluations of the next request.
    n_steps: i64,
    /// Series with a sample at the last time that was evaluated.
    current: HashSet<Labels>,
    n_samples: usize,
    n_failures: usize,
}

/// The error of a query.
#[derive(Debug)]
enum QueryError {
    /// The evaluation fails, as it would in a running server.
    Evaluation(String),
    Other(anyhow::Error),
}

impl Times {
    /// Returns the times within a window, as the first and the last one.
    fn within(self, window: TimeRange) -> Option<TimeRange> {
        let skipped_ms = (window.start_ms - self.first_ms).max(0);
        let n_skipped =
            skipped_ms.div_euclid(self.interval_ms) + i64::from(skipped_ms % self.interval_ms != 0);
        let start_ms = self.first_ms + n_skipped * self.interval_ms;
        let end_ms = self.last_ms.min(window.end_ms);
        (start_ms <= end_ms).then(|| TimeRange {
            start_ms,
            end_ms: end_ms - (end_ms - start_ms) % self.interval_ms,
        })
    }
}

impl Rule {
    pub(super) fn new(definition: RuleDefinition, times: Times) -> Self {
        Self {
            definition,
            times,
            n_steps: STEPS_MAX,
            current: HashSet::new(),
            n_samples: 0,
            n_failures: 0,
        }
    }

    /// Adds the samples of a window that the server does not have. Windows ascend.
    ///
    /// A request that fails is repeated for half as many evaluations, down to one. If that one
    /// fails, it has no samples, as in a running server.
    pub(super) fn evaluate(
        &mut self,
        client: &mut Client,
        window: TimeRange,
        blocks: &mut Blocks,
    ) -> Result<()> {
        let Some(mut left) = self.times.within(window) else {
            return Ok(());
        };
        let interval_ms = self.times.interval_ms;
        while left.start_ms <= left.end_ms {
            let n_left = (left.end_ms - left.start_ms) / interval_ms + 1;
            let n_steps = n_left.min(self.n_steps);
            let part = TimeRange {
                start_ms: left.start_ms,
                end_ms: left.start_ms + (n_steps - 1) * interval_ms,
            };
            match self.query(client, part) {
                Ok((result, known)) => self.add(part, result, &known, blocks)?,
                Err(_) if n_steps > 1 => {
                    self.n_steps = n_steps / 2;
                    continue;
                }
                Err(QueryError::Evaluation(error)) => self.note_failure(part.start_ms, &error)?,
                Err(QueryError::Other(error)) => return Err(error),
            }
            left.start_ms = part.end_ms + interval_ms;
        }
        Ok(())
    }

    /// Returns the result of the rule, and what the server has of it.
    fn query(
        &self,
        client: &mut Client,
        part: TimeRange,
    ) -> Result<(Vec<Stream>, Vec<Stream>), QueryError> {
        let form = format!(
            "query={}&start={}&end={}&step={}",
            escape(&print(&self.definition.expr.tree)),
            seconds(part.start_ms),
            seconds(part.end_ms),
            seconds(self.times.interval_ms)
        );
        let result = matrix(client, "/api/v1/query_range", &form)?;
        let matchers: Vec<Matcher> = [(METRIC_NAME, &*self.definition.name)]
            .into_iter()
            .chain(
                self.definition
                    .labels
                    .iter()
                    .map(|(name, value)| (&**name, &**value)),
            )
            .map(|(name, value)| Matcher::equal(name, value))
            .collect();
        let selector = format!(
            "{}[{}ms]",
            print_matchers(&matchers),
            part.end_ms - part.start_ms + 1
        );
        let form = format!("query={}&time={}", escape(&selector), seconds(part.end_ms));
        let known = matrix(client, "/api/v1/query", &form)?;
        Ok((result, known))
    }

    fn add(
        &mut self,
        part: TimeRange,
        result: Vec<Stream>,
        known: &[Stream],
        blocks: &mut Blocks,
    ) -> Result<()> {
        let mut known_times: HashMap<Labels, HashSet<i64>> = HashMap::new();
        for stream in known {
            let times = samples(stream).map(|sample| sample.timestamp_ms);
            known_times.insert(labels(&stream.metric)?, times.collect());
        }
        let previous = std::mem::take(&mut self.current);
        let mut series: HashMap<Labels, Vec<Sample>> = HashMap::new();
        for labels in &previous {
            series.insert(labels.clone(), Vec::new());
        }
        for stream in result {
            ensure!(
                stream.histograms.is_empty(),
                "its result has native histograms, which are not supported"
            );
            let found = series.entry(self.recorded(&stream.metric)?).or_default();
            found.extend(samples(&stream));
        }
        for (labels, mut found) in series {
            // Several series of a result may have the same labels at different times.
            found.sort_by_key(|sample| sample.timestamp_ms);
            let steps = Steps {
                part,
                interval_ms: self.times.interval_ms,
                known_ms: known_times.get(&labels),
            };
            let new = steps.new_samples(&found, previous.contains(&labels));
            let values = new.iter().filter(|sample| !is_stale_nan(sample.value));
            self.n_samples += values.count();
            let last = new.last().filter(|last| !is_stale_nan(last.value));
            if last.is_some_and(|last| last.timestamp_ms == part.end_ms) {
                self.current.insert(labels.clone());
            }
            blocks.add(labels, new)?;
        }
        Ok(())
    }

    fn note_failure(&mut self, time_ms: i64, error: &str) -> Result<()> {
        if self.n_failures == 0 {
            eprintln!(
                "rule {:?} fails at {}: {error}",
                self.definition.name,
                seconds(time_ms)
            );
        }
        self.n_failures += 1;
        self.n_steps = STEPS_MAX;
        ensure!(
            self.n_failures < FAILURES_MAX,
            "{FAILURES_MAX} evaluations failed, the last one at {}: {error}",
            seconds(time_ms)
        );
        Ok(())
    }

    /// Returns the labels of a recorded series.
    fn recorded(&self, metric: &LabelMap) -> Result<Labels> {
        let mut all = metric.clone();
        all.extend(self.definition.labels.clone());
        all.insert(METRIC_NAME.to_owned(), self.definition.name.clone());
        all.retain(|_, value| !value.is_empty());
        labels(&all)
    }

    /// Returns a line about the samples.
    pub(super) fn summary(&self) -> String {
        let samples = counted(self.n_samples, "new sample");
        match self.n_failures {
            0 => format!("{}: {samples}", self.definition.name),
            n => format!(
                "{}: {samples}, {n} failed evaluations",
                self.definition.name
            ),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.n_failures > 0
    }
}

impl From<anyhow::Error> for QueryError {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Sends a query and returns its result, a matrix.
fn matrix(client: &mut Client, path: &str, form: &str) -> Result<Vec<Stream>, QueryError> {
    let response = client.post_form(path, form)?;
    if response.status == UNPROCESSABLE {
        return Err(QueryError::Evaluation(response.error()));
    }
    match read_data(&response)? {
        Value::Matrix(streams) => Ok(streams),
        Value::Vector(_) | Value::Scalar(_) | Value::String(_) => {
            Err(anyhow!("the server returned no matrix").into())
        }
    }
}

fn samples(stream: &Stream) -> impl Iterator<Item = Sample> {
    stream.values.iter().map(|point| Sample {
        timestamp_ms: (point.0 * 1000.0).round() as i64,
        value: point.1,
    })
}

fn labels(map: &LabelMap) -> Result<Labels> {
    let pairs = map.iter().map(|(name, value)| (&**name, &**value));
    Labels::from_pairs(pairs).with_context(|| format!("the series {map:?}"))
}

/// The evaluations of a part of the history, for one series.
struct Steps<'a> {
    part: TimeRange,
    interval_ms: i64,
    /// The times of the samples that the server has.
    known_ms: Option<&'a HashSet<i64>>,
}

impl Steps<'_> {
    /// Returns the samples that the server does not have. If the evaluation after a new sample
    /// finds none, there is a staleness marker. `is_continued`: the evaluation before the part found
    /// a new one.
    fn new_samples(&self, found: &[Sample], is_continued: bool) -> Vec<Sample> {
        let mut new = Vec::with_capacity(found.len() + 1);
        // The evaluation after a new sample.
        let mut next_ms = is_continued.then_some(self.part.start_ms);
        for &sample in found {
            new.extend(next_ms.and_then(|ms| self.marker(ms, sample.timestamp_ms)));
            next_ms = None;
            if !self.is_known(sample.timestamp_ms) {
                new.push(sample);
                next_ms = Some(sample.timestamp_ms + self.interval_ms);
            }
        }
        new.extend(next_ms.and_then(|ms| self.marker(ms, self.part.end_ms + 1)));
        new
    }

    /// Returns a staleness marker if the time is before `end_ms` and the server has no sample there.
    fn marker(&self, timestamp_ms: i64, end_ms: i64) -> Option<Sample> {
        (timestamp_ms < end_ms && !self.is_known(timestamp_ms)).then(|| Sample {
            timestamp_ms,
            value: f64::from_bits(STALE_NAN_BITS),
        })
    }

    fn is_known(&self, time_ms: i64) -> bool {
        self.known_ms.is_some_and(|known| known.contains(&time_ms))
    }
}

/// Prints a time in seconds.
fn seconds(time_ms: i64) -> String {
    let sign = if time_ms < 0 { "-" } else { "" };
    let abs_ms = time_ms.abs();
    format!("{sign}{}.{:03}", abs_ms / 1000, abs_ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_rules::file::{Options, parse};

    const TIMES: Times = Times {
        first_ms: 100,
        last_ms: 175,
        interval_ms: 10,
    };

    fn range(start_ms: i64, end_ms: i64) -> TimeRange {
        TimeRange { start_ms, end_ms }
    }

    #[test]
    fn series_have_the_labels_of_the_rule() {
        let text =
            "groups: [{name: g, rules: [{record: 'r:x', expr: a, labels: {b: 'q', c: ''}}]}]";
        let parsed = parse(text, &Options::default()).unwrap();
        let rule = Rule::new(parsed.files[0].groups[0].rules[0].clone(), TIMES);
        let metric = [("__name__", "a"), ("c", "z"), ("d", "e")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expect = Labels::from_pairs([("__name__", "r:x"), ("b", "q"), ("d", "e")]).unwrap();
        assert_eq!(rule.recorded(&metric.into()).unwrap(), expect);
    }

    #[test]
    fn times_are_those_of_the_grid_in_the_window() {
        for (window, expect) in [
            (range(0, 99), None),
            (range(0, 100), Some(range(100, 100))),
            (range(0, 129), Some(range(100, 120))),
            (range(120, 139), Some(range(120, 130))),
            (range(121, 139), Some(range(130, 130))),
            (range(121, 129), None),
            (range(150, 900), Some(range(150, 170))),
            (range(176, 900), None),
        ] {
            assert_eq!(TIMES.within(window), expect, "{window:?}");
        }
    }

    #[test]
    fn a_series_that_ends_gets_a_staleness_marker() {
        // Times of found samples and of known ones; new samples, each with `true` for a marker.
        type Case<'a> = (&'a [i64], &'a [i64], bool, &'a [(i64, bool)]);
        let cases: [Case<'_>; 9] = [
            (&[], &[], false, &[]),
            (&[], &[], true, &[(10, true)]),
            (&[], &[10], true, &[]),
            (
                &[10, 20],
                &[],
                true,
                &[(10, false), (20, false), (30, true)],
            ),
            (
                &[20, 50],
                &[],
                false,
                &[(20, false), (30, true), (50, false)],
            ),
            (&[50], &[], true, &[(10, true), (50, false)]),
            // The server writes the marker after its own sample.
            (&[10, 20], &[20], false, &[(10, false)]),
            (&[10, 20], &[10], false, &[(20, false), (30, true)]),
            (&[10], &[10, 20], false, &[]),
        ];
        for (found, known, is_continued, expect) in cases {
            let found: Vec<Sample> = found
                .iter()
                .map(|&timestamp_ms| Sample {
                    timestamp_ms,
                    value: 1.0,
                })
                .collect();
            let known: HashSet<i64> = known.iter().copied().collect();
            let steps = Steps {
                part: range(10, 50),
                interval_ms: 10,
                known_ms: Some(&known),
            };
            let new: Vec<(i64, bool)> = steps
                .new_samples(&found, is_continued)
                .iter()
                .map(|sample| (sample.timestamp_ms, is_stale_nan(sample.value)))
                .collect();
            assert_eq!(new, expect, "{found:?} {known:?} {is_continued}");
        }
    }

    #[test]
    fn times_are_printed_in_seconds() {
        assert_eq!([1_500, -1].map(seconds), ["1.500", "-0.001"]);
    }
}
