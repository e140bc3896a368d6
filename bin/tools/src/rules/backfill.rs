//! `varve rules backfill`: evaluates the recording rules of a file over history, and imports their
//! samples.
//!
//! Evaluates a level of rules, imports its samples, and continues with the rules that read them.
//! Samples that the server has already are left out, so a repetition writes nothing.
//!
//! Bounds: [`STEPS_MAX`] evaluations per request; samples are kept in a file.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use varve_client::{Client, escape};
use varve_model::TimeRange;
use varve_model::labels::METRIC_NAME;
use varve_promql::{Features, print};
use varve_rules::file::{self, Options, RuleDefinition, RuleKind};
use varve_rules::schedule::Schedule;
use varve_rules::{Time, batches};
use varve_wire::exposition::write_series;

use super::args::RulesBackfillArgs;
use crate::scratch_dir::ScratchDir;
use crate::tsdb::stage_openmetrics;

/// Maximum number of evaluations per request. Servers accept 11,000 by default.
const STEPS_MAX: i64 = 2_000;

/// Names and values of labels.
type Labels = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Matrix {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: Labels,
    #[serde(default)]
    values: Vec<(f64, String)>,
    #[serde(default)]
    histograms: Vec<serde_json::Value>,
}

/// Evaluates the rules of a file and imports their samples.
pub(super) fn backfill(args: &RulesBackfillArgs) -> Result<()> {
    ensure!(
        args.path.is_dir(),
        "--path: {:?} is not a directory",
        args.path
    );
    let TimeRange { start_ms, end_ms } = args.range.range();
    let options = Options {
        features: Features::all(),
        ..Options::default()
    };
    let text =
        std::fs::read_to_string(&args.file).with_context(|| format!("read {:?}", args.file))?;
    let parsed = file::parse(&text, &options).map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{:?}: {}", args.file, errors.join("; "))
    })?;
    let scratch = ScratchDir::create(None)?;
    let mut backfill = Backfill {
        client: args.server.client()?,
        args,
        n_levels: 0,
        scratch: &scratch,
    };
    for group in parsed.files.iter().flat_map(|file| &file.groups) {
        let interval = group
            .interval_ms
            .and_then(|ms| u64::try_from(ms).ok())
            .map(Duration::from_millis);
        let interval = interval.unwrap_or(args.evaluation_interval);
        ensure!(
            !interval.is_zero(),
            "--evaluation-interval must be positive"
        );
        let schedule = Schedule::new(&args.file.to_string_lossy(), &group.name, interval);
        let first = schedule.at_or_before(Time::from_ms(start_ms));
        let first = if first.ms() < start_ms {
            schedule.after(first)
        } else {
            first
        };
        let interval_ms = interval.as_millis() as i64;
        let grid = Grid {
            first_ms: first.ms(),
            end_ms,
            interval_ms,
            offset_ms: group.query_offset_ms.unwrap_or(0),
        };
        for batch in batches(&group.rules) {
            let rules = batch.into_iter().map(|idx| &group.rules[idx]);
            let rules: Vec<&RuleDefinition> = rules
                .filter(|rule| matches!(rule.kind, RuleKind::Recording))
                .collect();
            backfill.level(&rules, grid)?;
        }
    }
    Ok(())
}

/// The times of evaluations.
#[derive(Clone, Copy)]
struct Grid {
    first_ms: i64,
    end_ms: i64,
    interval_ms: i64,
    offset_ms: i64,
}

struct Backfill<'a> {
    client: Client,
    args: &'a RulesBackfillArgs,
    n_levels: usize,
    scratch: &'a ScratchDir,
}

impl Backfill<'_> {
    /// Evaluates rules that do not depend on each other, and imports their samples.
    fn level(&mut self, rules: &[&RuleDefinition], grid: Grid) -> Result<()> {
        self.n_levels += 1;
        let path = self.scratch.path().join(format!("{}.om", self.n_levels));
        let mut out =
            BufWriter::new(File::create(&path).with_context(|| format!("create {path:?}"))?);
        let mut n_samples = 0;
        for rule in rules {
            let n = self
                .evaluate(rule, grid, &mut out)
                .with_context(|| format!("rule {:?}", rule.name))?;
            println!("{}: {n} new samples", rule.name);
            n_samples += n;
        }
        writeln!(out, "# EOF")?;
        out.flush()?;
        drop(out);
        if n_samples == 0 {
            return Ok(());
        }
        stage_openmetrics(
            &path,
            &self
                .scratch
                .path()
                .join(format!("blocks-{}", self.n_levels)),
            &self.args.path,
        )?;
        let imported = self.client.post_data("/api/v1/admin/tsdb/import", "")?;
        if imported.get("blocks").and_then(serde_json::Value::as_u64) == Some(0) {
            bail!(
                "the server has not imported the blocks: {:?} is not its data directory",
                self.args.path
            );
        }
        Ok(())
    }

    /// Writes the samples of a rule that the server does not have. Returns their number.
    fn evaluate(&mut self, rule: &RuleDefinition, grid: Grid, out: &mut impl Write) -> Result<u64> {
        let mut n_samples = 0;
        let mut start_ms = grid.first_ms;
        while start_ms <= grid.end_ms {
            let end_ms = grid
                .end_ms
                .min(start_ms + (STEPS_MAX - 1) * grid.interval_ms);
            let from_ms = start_ms - grid.offset_ms;
            let to_ms = end_ms - grid.offset_ms;
            let known = self.known(rule, from_ms, to_ms)?;
            let expr = escape(&print(&rule.expr.tree));
            let form = format!(
                "query={expr}&start={}&end={}&step={}",
                seconds(from_ms),
                seconds(to_ms),
                seconds(grid.interval_ms)
            );
            let data = self.client.post_data("/api/v1/query_range", &form)?;
            for series in Matrix::deserialize(&data)
                .context("parse the response")?
                .result
            {
                ensure!(
                    series.histograms.is_empty(),
                    "its result has native histograms, which are not supported"
                );
                let labels = recorded(rule, series.metric);
                let text = label_set(&labels);
                for (time_s, value) in series.values {
                    let time_ms = (time_s * 1000.0).round() as i64;
                    if !known.contains(&(text.clone(), time_ms)) {
                        writeln!(out, "{text} {value} {}", seconds(time_ms))?;
                        n_samples += 1;
                    }
                }
            }
            start_ms = end_ms + grid.interval_ms;
        }
        Ok(n_samples)
    }

    /// Returns the samples of a rule that the server has, by label set and time.
    fn known(
        &mut self,
        rule: &RuleDefinition,
        start_ms: i64,
        end_ms: i64,
    ) -> Result<HashSet<(String, i64)>> {
        let selector = format!("{{__name__={:?}}}[{}ms]", rule.name, end_ms - start_ms + 1);
        let form = format!("query={}&time={}", escape(&selector), seconds(end_ms));
        let data = self.client.post_data("/api/v1/query", &form)?;
        let mut known = HashSet::new();
        for series in Matrix::deserialize(&data)
            .context("parse the response")?
            .result
        {
            let text = label_set(&series.metric);
            let times = series
                .values
                .iter()
                .map(|(time_s, _)| (time_s * 1000.0).round() as i64);
            known.extend(times.map(|time_ms| (text.clone(), time_ms)));
        }
        Ok(known)
    }
}

/// Returns the labels of a recorded series.
fn recorded(rule: &RuleDefinition, mut labels: Labels) -> Labels {
    labels.extend(rule.labels.clone());
    labels.insert(METRIC_NAME.to_owned(), rule.name.clone());
    labels.retain(|_, value| !value.is_empty());
    labels
}

/// Prints a series in the OpenMetrics format.
fn label_set(labels: &Labels) -> String {
    let name = labels.get(METRIC_NAME).map_or("", String::as_str);
    let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
    let mut out = Vec::new();
    write_series(&mut out, name, others);
    String::from_utf8_lossy(&out).into_owned()
}

fn seconds(time_ms: i64) -> String {
    format!(
        "{}{}.{:03}",
        if time_ms < 0 { "-" } else { "" },
        time_ms.abs() / 1000,
        time_ms.abs() % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_the_labels_of_the_rule() {
        let text =
            "groups: [{name: g, rules: [{record: 'r:x', expr: a, labels: {b: 'q\"', c: ''}}]}]";
        let rule =
            file::parse(text, &Options::default()).unwrap().files[0].groups[0].rules[0].clone();
        let labels = [("__name__", "a"), ("c", "z"), ("d", "e")]
            .map(|(name, value)| (name.into(), value.into()));
        assert_eq!(
            label_set(&recorded(&rule, labels.into())),
            r#"r:x{b="q\"",d="e"}"#
        );
        assert_eq!(
            (seconds(1_500), seconds(-1)),
            ("1.500".to_owned(), "-0.001".to_owned())
        );
    }
}
