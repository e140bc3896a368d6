//! Statistics of a query as JSON: those of Prometheus' `stats=all`, and the operators of the plan for `query_explain`.

use std::time::Duration;

use serde_json::{Value, json};
use varve_query::promql::quoted;
use varve_query::stats::{Operator, QueryStats, SampleStats, StatsMode, StepSamples};

use super::json;
use super::params::quotable;

/// The statistics of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    None,
    /// Totals.
    Sums,
    /// Totals, and per step if the feature is enabled.
    All,
    /// Totals and operators.
    Plan,
}

impl Wanted {
    /// Parses the parameter `stats`: as in Prometheus, any other value requests totals.
    pub(crate) fn read(text: &str) -> Self {
        match text {
            "" => Self::None,
            "all" => Self::All,
            _ => Self::Sums,
        }
    }

    /// Returns Prometheus' warning about a deprecated value of `stats`.
    pub(crate) fn warning(text: &str) -> Option<String> {
        let warning = || {
            let quoted = quoted(quotable(text));
            format!(
                "value {quoted} for parameter \"stats\" is deprecated and will be rejected in the next major release, \
                 use \"true\" or \"all\""
            )
        };
        (!matches!(text, "" | "true" | "all")).then(warning)
    }

    /// Returns the statistics that the engine collects.
    pub(crate) fn asked(self) -> StatsMode {
        match self {
            Self::None => StatsMode::Off,
            Self::Sums | Self::All => StatsMode::AsWritten,
            Self::Plan => StatsMode::AsPlanned,
        }
    }

    /// Returns the statistics that the engine collects if the query log needs some, too.
    pub(crate) fn asked_for_log(self) -> StatsMode {
        if self == Self::None { StatsMode::AsWritten } else { self.asked() }
    }
}

/// Writes timings, samples and the peak memory as an object; `queued` is the time that the query spent in the queue.
pub(crate) fn write(out: &mut Vec<u8>, stats: &QueryStats, queued: Duration, memory_peak: usize, wanted: Wanted) {
    out.push(b'{');
    write_members(out, stats, queued, wanted);
    write_memory_peak(out, memory_peak);
    out.push(b'}');
}

/// Writes timings, samples, the peak memory and operators as an object.
pub(crate) fn write_explained(out: &mut Vec<u8>, stats: &QueryStats, queued: Duration, memory_peak: usize) {
    out.push(b'{');
    write_members(out, stats, queued, Wanted::Plan);
    write_memory_peak(out, memory_peak);
    out.extend_from_slice(b",\"operators\":[");
    for (i, operator) in stats.operators.iter().enumerate() {
        out.extend_from_slice(if i > 0 { b"," } else { b"" });
        write_operator(out, operator);
    }
    out.extend_from_slice(b"]}");
}

/// Returns timings and samples as an object, for the query log.
pub(crate) fn to_json(stats: &QueryStats, queued: Duration) -> Value {
    let mut out = vec![b'{'];
    write_members(&mut out, stats, queued, Wanted::All);
    out.push(b'}');
    serde_json::from_slice(&out).expect("the writer produces JSON")
}

/// Returns the statistics of a query that failed, in the same format.
pub(crate) fn failed_query(queued: Duration, processed: Duration, n_samples: u64) -> Value {
    let seconds = processed.as_secs_f64();
    json!({
        "timings": {
            "evalTotalTime": seconds,
            "resultSortTime": 0.0,
            "queryPreparationTime": 0.0,
            "innerEvalTime": seconds,
            "execQueueTime": queued.as_secs_f64(),
            "execTotalTime": (queued + processed).as_secs_f64(),
        },
        "samples": { "totalQueryableSamples": n_samples, "samplesRead": n_samples },
    })
}

fn write_members(out: &mut Vec<u8>, stats: &QueryStats, queued: Duration, wanted: Wanted) {
    let timings = &stats.timings;
    let total = timings.total();
    let parts = [
        ("evalTotalTime", total),
        ("resultSortTime", timings.sort),
        ("queryPreparationTime", timings.preparation),
        ("innerEvalTime", timings.evaluation_time.saturating_sub(timings.sort)),
        ("execQueueTime", queued),
        ("execTotalTime", queued + total),
    ];
    out.extend_from_slice(b"\"timings\":{");
    for (i, (name, time)) in parts.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        out.extend_from_slice(format!("{comma}\"{name}\":{}", time.as_secs_f64()).as_bytes());
    }
    let SampleStats { queryable, read, series, peak, steps } = &stats.samples;
    out.extend_from_slice(b"},\"samples\":{");
    let steps = if wanted == Wanted::All { &steps[..] } else { &[] };
    write_steps(out, "totalQueryableSamplesPerStep", steps, |step| step.queryable);
    out.extend_from_slice(format!("\"totalQueryableSamples\":{queryable},").as_bytes());
    write_steps(out, "samplesReadPerStep", steps, |step| step.read);
    let totals = format!("\"samplesRead\":{read},\"seriesTouched\":{series},\"peakSamples\":{peak}}}");
    out.extend_from_slice(totals.as_bytes());
}

fn write_memory_peak(out: &mut Vec<u8>, memory_peak: usize) {
    out.extend_from_slice(format!(",\"memoryPeakBytes\":{memory_peak}").as_bytes());
}

/// Writes counts per step and a comma, unless there are none.
fn write_steps(out: &mut Vec<u8>, name: &str, steps: &[StepSamples], of: impl Fn(&StepSamples) -> u64) {
    for (i, step) in steps.iter().enumerate() {
        match i {
            0 => out.extend_from_slice(format!("\"{name}\":[[").as_bytes()),
            _ => out.extend_from_slice(b",["),
        }
        json::write_float_timestamp(out, step.timestamp_ms);
        out.extend_from_slice(format!(",{}]", of(step)).as_bytes());
    }
    if !steps.is_empty() {
        out.extend_from_slice(b"],");
    }
}

fn write_operator(out: &mut Vec<u8>, operator: &Operator) {
    let Operator { depth, text, runs, series, samples, bytes, time } = operator;
    out.extend_from_slice(format!("{{\"depth\":{depth},\"operator\":").as_bytes());
    json::write_html_string(out, text.as_bytes());
    let stats = format!(
        ",\"runs\":{runs},\"series\":{series},\"samples\":{samples},\"bytes\":{bytes},\"seconds\":{}}}",
        time.as_secs_f64()
    );
    out.extend_from_slice(stats.as_bytes());
}
