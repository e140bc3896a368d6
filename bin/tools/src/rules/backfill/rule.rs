//! The evaluation of one recording rule over history.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, anyhow, ensure};
use jiff::Timestamp;
use varve_advise::counted;
use varve_client::Client;
use varve_model::labels::METRIC_NAME;
use varve_model::staleness::{STALE_NAN_BITS, is_stale_nan};
use varve_model::{Labels, Matcher, Sample, TimeRange};
use varve_promql::{print, print_matchers};
use varve_rules::file::RuleDefinition;

use super::blocks::Blocks;
use super::request::{QueryError, matrix};
use crate::query::response::{Labels as LabelMap, Stream};

/// Maximum number of evaluations per request. Servers accept 11,000 by default.
pub(super) const STEPS_MAX: i64 = 500;
/// Maximum number of evaluations of a rule that fail.
const FAILURES_MAX: usize = 100;
/// Functions whose value depends on the start, end or step of the request.
const REQUEST_TIMES: [&str; 4] = ["start()", "end()", "step()", "range()"];

/// The times of the samples of a group: those of its evaluations, less its query offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) first_ms: i64,
    /// No time is later.
    pub(super) last_ms: i64,
    pub(super) interval_ms: i64,
}

/// The times at which the server has samples of a series.
type KnownTimes = HashMap<Labels, HashSet<i64>>;

/// A rule and the state of its evaluation.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) definition: RuleDefinition,
    /// Maximum number of series of an evaluation; 0 for no limit.
    limit: usize,
    times: Times,
    /// Maximum number of evaluations per request.
    steps_max: i64,
    /// Series with a sample at the last time that was evaluated.
    current: HashSet<Labels>,
    n_samples: usize,
    n_failures: usize,
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
    pub(super) fn new(definition: RuleDefinition, limit: usize, times: Times) -> Self {
        let expr = print(&definition.expr.tree);
        let reads_request = REQUEST_TIMES.iter().any(|name| expr.contains(name));
        Self {
            definition,
            limit,
            times,
            steps_max: if reads_request { 1 } else { STEPS_MAX },
            current: HashSet::new(),
            n_samples: 0,
            n_failures: 0,
        }
    }

    /// Adds the samples of a window that the server does not have. Windows ascend.
    ///
    /// A request whose evaluation fails or which is too large is repeated for half as many
    /// evaluations, down to one. If the evaluation of that one fails, it has no samples, as in a
    /// running server.
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
        let mut n_steps_max = self.steps_max;
        while left.start_ms <= left.end_ms {
            let n_left = (left.end_ms - left.start_ms) / interval_ms + 1;
            let n_steps = n_left.min(n_steps_max);
            let part = TimeRange {
                start_ms: left.start_ms,
                end_ms: left.start_ms + (n_steps - 1) * interval_ms,
            };
            let found = self.query(client, part);
            let found = found.and_then(|series| Ok((series, self.known_times(client, part)?)));
            match found {
                Ok((series, known)) => self.add(part, series, known, blocks)?,
                Err(QueryError::Evaluation(_) | QueryError::TooLarge(_)) if n_steps > 1 => {
                    n_steps_max = n_steps / 2;
                    continue;
                }
                Err(QueryError::Evaluation(error)) => {
                    self.note_failure(part.start_ms, &error)?;
                    n_steps_max = self.steps_max;
                }
                Err(QueryError::TooLarge(error) | QueryError::Other(error)) => return Err(error),
            }
            left.start_ms = part.end_ms + interval_ms;
        }
        Ok(())
    }

    /// Evaluates the rule at the times of a part. Returns its series.
    fn query(
        &self,
        client: &mut Client,
        part: TimeRange,
    ) -> Result<HashMap<Labels, Vec<Sample>>, QueryError> {
        let params = [
            ("query", print(&self.definition.expr.tree)),
            ("start", seconds(part.start_ms)),
            ("end", seconds(part.end_ms)),
            ("step", seconds(self.times.interval_ms)),
        ];
        let result = matrix(client, "/api/v1/query_range", &params)?;
        self.recorded_series(&result)
    }

    /// Returns the times of a part at which the server has samples of the rule. Staleness markers are
    /// not among them.
    fn known_times(&self, client: &mut Client, part: TimeRange) -> Result<KnownTimes, QueryError> {
        let labels_of_rule = self.definition.labels.iter();
        let labels_of_rule = labels_of_rule.map(|(name, value)| (&**name, &**value));
        let matchers: Vec<Matcher> = [(METRIC_NAME, &*self.definition.name)]
            .into_iter()
            .chain(labels_of_rule)
            .map(|(name, value)| Matcher::equal(name, value))
            .collect();
        let duration_ms = part.end_ms - part.start_ms + 1;
        let selector = format!("{}[{duration_ms}ms]", print_matchers(&matchers));
        let params = [("query", selector), ("time", seconds(part.end_ms))];
        let mut known = KnownTimes::new();
        for stream in &matrix(client, "/api/v1/query", &params)? {
            let times = samples(stream).map(|sample| sample.timestamp_ms);
            known.insert(labels(&stream.metric)?, times.collect());
        }
        Ok(known)
    }

    /// Returns a result with the labels of the rule.
    fn recorded_series(
        &self,
        result: &[Stream],
    ) -> Result<HashMap<Labels, Vec<Sample>>, QueryError> {
        let mut series: HashMap<Labels, Vec<Sample>> = HashMap::new();
        let mut n_series: HashMap<i64, usize> = HashMap::new();
        for stream in result {
            if !stream.histograms.is_empty() {
                let reason = "its result has native histograms, which are not supported";
                return Err(anyhow!(reason).into());
            }
            let found = series.entry(self.recorded(&stream.metric)?).or_default();
            for sample in samples(stream) {
                found.push(sample);
                *n_series.entry(sample.timestamp_ms).or_default() += 1;
            }
        }
        if self.limit > 0 && n_series.values().any(|&n| n > self.limit) {
            let reason = format!("exceeded limit of {} series", self.limit);
            return Err(QueryError::Evaluation(reason));
        }
        for found in series.values_mut() {
            // Several series of a result may have the same labels, at different times.
            found.sort_by_key(|sample| sample.timestamp_ms);
            if found
                .windows(2)
                .any(|two| two[0].timestamp_ms == two[1].timestamp_ms)
            {
                let reason = "the result has several series with the labels of the rule";
                return Err(QueryError::Evaluation(reason.to_owned()));
            }
        }
        Ok(series)
    }

    fn add(
        &mut self,
        part: TimeRange,
        mut series: HashMap<Labels, Vec<Sample>>,
        known: KnownTimes,
        blocks: &mut Blocks,
    ) -> Result<()> {
        let previous = std::mem::take(&mut self.current);
        for labels in &previous {
            series.entry(labels.clone()).or_default();
        }
        for (labels, found) in series {
            let steps = Steps {
                part,
                interval_ms: self.times.interval_ms,
                known_ms: known.get(&labels),
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
        let time = time_text(time_ms);
        if self.n_failures == 0 {
            eprintln!("rule {:?} fails at {time}: {error}", self.definition.name);
        }
        self.n_failures += 1;
        ensure!(
            self.n_failures <= FAILURES_MAX,
            "more than {FAILURES_MAX} evaluations failed, the last one at {time}: {error}"
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
        let failed = match self.n_failures {
            0 => String::new(),
            n => format!(", {}", counted(n, "failed evaluation")),
        };
        format!("{}: {samples}{failed}", self.definition.name)
    }

    pub(super) fn first_ms(&self) -> i64 {
        self.times.first_ms
    }

    pub(super) fn has_failed(&self) -> bool {
        self.n_failures > 0
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

/// Prints a time as RFC 3339, or in seconds if it has no such date.
fn time_text(time_ms: i64) -> String {
    Timestamp::from_millisecond(time_ms).map_or_else(|_| seconds(time_ms), |time| time.to_string())
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
    use crate::query::response::Point;
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
        let rule = Rule::new(parsed.files[0].groups[0].rules[0].clone(), 0, TIMES);
        let metric = [("__name__", "a"), ("c", "z"), ("d", "e")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expect = Labels::from_pairs([("__name__", "r:x"), ("b", "q"), ("d", "e")]).unwrap();
        assert_eq!(rule.recorded(&metric.into()).unwrap(), expect);
    }

    #[test]
    fn evaluations_that_would_fail_in_a_server_fail() {
        let text = "groups: [{name: g, rules: [{record: r, expr: a, labels: {b: c}}]}]";
        let parsed = parse(text, &Options::default()).unwrap();
        let definition = &parsed.files[0].groups[0].rules[0];
        let stream = |b: &str, d: &str, times: &[f64]| Stream {
            metric: [("b", b), ("d", d)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            values: times.iter().map(|&time| Point(time, 1.0)).collect(),
            histograms: Vec::new(),
        };
        let error =
            |limit: usize, streams: &[Stream]| match Rule::new(definition.clone(), limit, TIMES)
                .recorded_series(streams)
            {
                Ok(series) => series.len().to_string(),
                Err(QueryError::Evaluation(error)) => error,
                Err(error) => format!("{error:?}"),
            };
        let two = [stream("x", "d", &[1.0, 2.0]), stream("x", "e", &[2.0])];
        assert_eq!(error(2, &two), "2");
        assert_eq!(error(1, &two), "exceeded limit of 1 series");
        let replaced = [stream("x", "d", &[2.0]), stream("y", "d", &[1.0])];
        assert_eq!(error(1, &replaced), "1");
        let twice = [stream("x", "d", &[1.0]), stream("y", "d", &[1.0])];
        assert!(error(0, &twice).contains("several series with the labels of the rule"));
    }

    #[test]
    fn expressions_that_read_their_request_are_evaluated_one_by_one() {
        for (expr, steps_max) in [("rate(a[5m])", STEPS_MAX), ("a @ end() - a", 1)] {
            let text = format!("groups: [{{name: g, rules: [{{record: r, expr: {expr:?}}}]}}]");
            let parsed = parse(&text, &Options::default()).unwrap();
            let rule = Rule::new(parsed.files[0].groups[0].rules[0].clone(), 0, TIMES);
            assert_eq!(rule.steps_max, steps_max, "{expr}");
        }
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
