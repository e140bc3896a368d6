//! Statistics of a query as JSON: those of Prometheus' `stats=all`, and the operators of the plan
//! for `query_explain`.

use std::time::Duration;

use serde_json::{Value, json};
use varve_promql::quote::quoted;
use varve_query::stats::{Operator, QueryStats, SampleStats, StatsMode, StepSamples, Timings};
use varve_system::excerpt::quotable;

/// Duration from which a query is slow: the query log has its plan.
const SLOW: Duration = Duration::from_secs(1);

/// Maximum number of operators of a plan in the query log.
const OPERATORS_MAX: usize = 50;

/// Maximum bytes of the text of an operator in the query log.
const OPERATOR_SIZE_MAX: usize = 256;

/// The statistics of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatsLevel {
    /// No statistics.
    None,
    /// Totals.
    Sums,
    /// Totals, and per step if the feature is enabled.
    All,
    /// Totals and operators.
    Plan,
}

impl StatsLevel {
    /// Parses the parameter `stats`: as in Prometheus, any other value requests totals.
    pub fn read(text: &str) -> Self {
        match text {
            "" => Self::None,
            "all" => Self::All,
            _ => Self::Sums,
        }
    }

    /// Returns Prometheus' warning about a deprecated value of `stats`.
    pub fn warning(text: &str) -> Option<String> {
        if matches!(text, "" | "true" | "all") {
            return None;
        }
        let quoted = quoted(quotable(text));
        Some(format!(
            "value {quoted} for parameter \"stats\" is deprecated and will be rejected in the next major release, \
             use \"true\" or \"all\""
        ))
    }

    /// Returns which statistics the engine collects.
    pub fn stats_mode(self) -> StatsMode {
        match self {
            Self::None => StatsMode::Off,
            Self::Sums | Self::All => StatsMode::AsWritten,
            Self::Plan => StatsMode::AsPlanned,
        }
    }

    /// Returns which statistics the engine collects if the query log needs some, too.
    pub fn stats_mode_with_log(self) -> StatsMode {
        if self == Self::None {
            StatsMode::AsWritten
        } else {
            self.stats_mode()
        }
    }
}

/// Writes timings, samples, the peak memory and the number of steps from the result cache as an
/// object, and operators for [`StatsLevel::Plan`]. `queued` is the time that the query spent in the
/// queue.
pub fn write(
    out: &mut Vec<u8>,
    stats: &QueryStats,
    queued: Duration,
    memory_peak: usize,
    level: StatsLevel,
) {
    let mut object = statistics(stats, queued, level);
    object["memoryPeakBytes"] = json!(memory_peak);
    object["cachedSteps"] = json!(stats.n_cached_steps);
    if level == StatsLevel::Plan {
        object["operators"] = stats.operators.iter().map(operator).collect();
    }
    serde_json::to_writer(out, &object).expect("writing to a Vec cannot fail");
}

/// Returns timings and samples as an object, for the query log. A slow query has the operators of
/// its plan, too.
pub fn to_json(stats: &QueryStats, queued: Duration) -> Value {
    let mut object = statistics(stats, queued, StatsLevel::All);
    if stats.timings.preparation + stats.timings.evaluation_time >= SLOW {
        object["varve"]["plan"] = plan(&stats.operators);
    }
    object
}

/// Returns the statistics of a query that failed, in the format of [`to_json`].
pub fn failed_query(queued: Duration, processed: Duration, n_samples: u64) -> Value {
    let none = Duration::ZERO;
    json!({
        "timings": timings(none, processed, none, queued),
        "samples": { "totalQueryableSamples": n_samples, "samplesRead": n_samples },
    })
}

/// Returns the first operators of a plan, with the beginning of their texts.
fn plan(operators: &[Operator]) -> Value {
    let mut plan = Vec::new();
    for full in operators.iter().take(OPERATORS_MAX) {
        let text = &full.text[..full.text.floor_char_boundary(OPERATOR_SIZE_MAX)];
        plan.push(operator(&Operator {
            text: text.to_owned(),
            ..full.clone()
        }));
    }
    plan.into()
}

fn statistics(stats: &QueryStats, queued: Duration, level: StatsLevel) -> Value {
    let SampleStats {
        queryable,
        read,
        series,
        peak,
        steps,
    } = &stats.samples;
    let mut samples = json!({
        "totalQueryableSamples": queryable,
        "samplesRead": read,
        "seriesTouched": series,
        "peakSamples": peak,
    });
    if level == StatsLevel::All && !steps.is_empty() {
        samples["totalQueryableSamplesPerStep"] = per_step(steps, |step| step.queryable);
        samples["samplesReadPerStep"] = per_step(steps, |step| step.read);
    }
    let Timings {
        preparation,
        evaluation_time,
        sort,
        ..
    } = stats.timings;
    json!({ "timings": timings(preparation, evaluation_time, sort, queued), "samples": samples })
}

/// Returns the durations in seconds.
fn timings(preparation: Duration, evaluation: Duration, sort: Duration, queued: Duration) -> Value {
    json!({
        "evalTotalTime": (preparation + evaluation).as_secs_f64(),
        "resultSortTime": sort.as_secs_f64(),
        "queryPreparationTime": preparation.as_secs_f64(),
        "innerEvalTime": evaluation.saturating_sub(sort).as_secs_f64(),
        "execQueueTime": queued.as_secs_f64(),
        "execTotalTime": (queued + preparation + evaluation).as_secs_f64(),
    })
}

/// Returns pairs of a timestamp in seconds and a count.
fn per_step(steps: &[StepSamples], count: impl Fn(&StepSamples) -> u64) -> Value {
    steps
        .iter()
        .map(|step| json!([seconds(step.timestamp_ms), count(step)]))
        .collect()
}

/// Returns a time in seconds. As in Prometheus, whole seconds have no fraction.
fn seconds(time_ms: i64) -> Value {
    if time_ms % 1000 == 0 {
        json!(time_ms / 1000)
    } else {
        json!(time_ms as f64 / 1000.0)
    }
}

fn operator(
    Operator {
        depth,
        text,
        runs,
        series,
        samples,
        bytes,
        time,
    }: &Operator,
) -> Value {
    json!({
        "depth": depth,
        "operator": text,
        "runs": runs,
        "series": series,
        "samples": samples,
        "bytes": bytes,
        "seconds": time.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_of_a_slow_query_is_bounded() {
        let of = Operator {
            depth: 0,
            text: "ä".repeat(500),
            runs: 1,
            series: 1,
            samples: 1,
            bytes: 0,
            time: SLOW,
        };
        let plan = plan(&vec![of; 100]);
        let operators = plan.as_array().unwrap();
        assert_eq!(operators.len(), OPERATORS_MAX);
        assert_eq!(
            operators[0]["operator"].as_str().map(str::len),
            Some(OPERATOR_SIZE_MAX)
        );
        assert_eq!(operators[0]["seconds"], 1.0);
    }
}
