//! `info(v, {...})`: adds labels of info series, such as `target_info`, to the series of the same
//! job and instance.
//!
//! The info series of a base series is the candidate with the newest sample, so it may change from
//! step to step. Few combinations occur; the labels of each combination are built once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use varve_context::Charge;
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, MatchOp, Matcher};
use varve_regexp::Regexp;

use crate::error::{Error, Result};
use crate::eval::columns::{Column, HISTOGRAM_ENTRY_SIZE, Limits, Series, Vector, printed};
use crate::eval::evaluator::Evaluator;
use crate::plan::{Plan, PlanKind, Selector, Shift, info_shift, is_name_label};
use crate::steps::Steps;

/// The labels that join an info series to others.
const IDENTIFYING: [&str; 2] = ["instance", "job"];
/// Size in bytes of a value of an identifying label in a set, without its text.
const VALUE_SIZE: usize = 64;
/// Number of copies of a value while the matcher of all values is built.
const VALUE_COPIES: usize = 8;
/// Copies of labels while those of a result are built: the set and its buffer, which may be half
/// empty.
const LABELS_COPIES: usize = 3;
/// The default info metric.
const TARGET_INFO: &str = "target_info";

/// Info series by job and instance, then by metric name. Their values are the timestamps of their
/// samples.
type Candidates<'a> = HashMap<Labels, BTreeMap<&'a str, Vec<&'a Series>>>;

impl Evaluator<'_> {
    /// `info(v, {...})`
    pub(super) fn info(&mut self, args: &[Plan], steps: Steps) -> Result<Vector> {
        let base = self.vector(&args[0], steps)?;
        let filter = Filter::of(args.get(1));
        // Compiled under the limits of the request: the selection below uses them too.
        filter
            .names
            .iter()
            .try_for_each(|matcher| matcher.compile(&self.limits.ctx))?;
        let is_info = |series: &Series| {
            filter
                .names
                .iter()
                .all(|m| m.matches(series.labels.metric_name()))
        };
        let others = base.series.iter().filter(|series| !is_info(series));
        let shift = info_shift(&args[0]).unwrap_or(Shift::NONE);
        let infos = self.info_series(others, &filter, shift, steps)?;
        let (candidates, _charge) = candidates(&infos, &self.limits)?;
        let mut out = self.limits.vector();
        for series in &base.series {
            self.limits.check()?;
            if is_info(series) {
                out.push(series.clone())?;
                continue;
            }
            let candidates = candidates
                .get(&identity(&series.labels))
                .into_iter()
                .flat_map(BTreeMap::values);
            enrich(
                series,
                &candidates.collect::<Vec<_>>(),
                &filter,
                steps,
                &self.limits,
                &mut out,
            )?;
        }
        out.merge_same_labels()?;
        Ok(out)
    }

    /// Selects the info series that have the job and instance of one of the given series. Their
    /// values are the timestamps of their samples. Series that lack one of the labels are joined to
    /// info series that lack it, too.
    fn info_series<'s>(
        &mut self,
        series: impl Iterator<Item = &'s Series>,
        filter: &Filter,
        shift: Shift,
        steps: Steps,
    ) -> Result<Vector> {
        // The values of each identifying label, by the labels that are present.
        let mut values_by_presence: BTreeMap<[bool; 2], [BTreeSet<&str>; 2]> = BTreeMap::new();
        let mut charge = self.limits.ctx.charge();
        for series in series {
            self.limits.check()?;
            let found = IDENTIFYING.map(|name| series.labels.get(name));
            let values = values_by_presence
                .entry(found.map(|value| value.is_some()))
                .or_default();
            for (value, values) in found.into_iter().zip(values) {
                let Some(value) = value else { continue };
                if values.insert(value) {
                    charge.grow(VALUE_SIZE + VALUE_COPIES * value.len())?;
                }
            }
        }
        let mut infos = self.limits.vector();
        values_by_presence.remove(&[false, false]);
        for values in values_by_presence.into_values() {
            let mut matchers: Vec<Matcher> =
                filter.names.iter().chain(&filter.data).cloned().collect();
            for (name, values) in IDENTIFYING.iter().zip(&values) {
                self.limits.check()?;
                let any: Vec<_> = values.iter().map(|value| Regexp::escape(value)).collect();
                let matcher = if values.is_empty() {
                    Ok(Matcher::equal(name, ""))
                } else {
                    Matcher::new(MatchOp::Regexp, name, &any.join("|"))
                };
                matchers.push(matcher.map_err(|error| Error::Execution(error.to_string()))?);
            }
            let n_written = matchers.len();
            let selector = Selector {
                matchers,
                shift,
                extension: None,
                n_written,
                skip_buckets: false,
                skip_values: false,
            };
            self.each_info(&selector, steps, &mut |series| infos.push(series))?;
        }
        Ok(infos)
    }
}

/// The matchers of the second argument.
struct Filter {
    /// Matchers of the metric name.
    names: Vec<Matcher>,
    /// Matchers of data labels. If there are any, only these labels are added.
    data: Vec<Matcher>,
    data_names: HashSet<String>,
}

impl Filter {
    fn of(arg: Option<&Plan>) -> Self {
        let matchers = match arg.map(|arg| &arg.unwrap_step_invariant().kind) {
            Some(PlanKind::Selector(selector)) => selector.matchers.clone(),
            _ => Vec::new(),
        };
        let (mut names, data): (Vec<_>, Vec<_>) =
            matchers.into_iter().partition(|m| m.name() == METRIC_NAME);
        if names.is_empty() {
            names.push(Matcher::equal(METRIC_NAME, TARGET_INFO));
        } else if !names
            .iter()
            .any(|m| matches!(m.op(), MatchOp::Equal | MatchOp::Regexp))
        {
            // The name matchers only exclude names: start from all metrics whose names end in
            // `_info`.
            let any_info = Matcher::new(MatchOp::Regexp, METRIC_NAME, ".+_info");
            names.insert(0, any_info.expect("the pattern is a constant"));
        }
        let data_names = data
            .iter()
            .map(|matcher| matcher.name().to_owned())
            .collect();
        Self {
            names,
            data,
            data_names,
        }
    }

    /// Returns `true` if the label `name` of info series is added to the result.
    fn adds(&self, name: &str) -> bool {
        !is_name_label(name) && (self.data_names.is_empty() || self.data_names.contains(name))
    }

    /// Returns `true` if the result includes series that match no info series.
    fn keeps_unmatched(&self) -> bool {
        self.data.iter().all(Matcher::matches_empty)
    }
}

fn identity(labels: &Labels) -> Labels {
    labels.filter(|name| IDENTIFYING.contains(&name))
}

fn candidates<'a>(infos: &'a Vector, limits: &Limits) -> Result<(Candidates<'a>, Charge)> {
    let mut candidates = Candidates::new();
    let mut charge = limits.ctx.charge();
    for series in &infos.series {
        limits.check()?;
        let identity = identity(&series.labels);
        charge.grow(2 * (VALUE_SIZE + identity.size()))?;
        candidates
            .entry(identity)
            .or_default()
            .entry(series.labels.metric_name())
            .or_default()
            .push(series);
    }
    Ok((candidates, charge))
}

/// Adds the labels of info series to a series. Appends one series for each combination of info
/// series that occurs.
fn enrich(
    series: &Series,
    infos: &[&Vec<&Series>],
    filter: &Filter,
    steps: Steps,
    limits: &Limits,
    out: &mut Vector,
) -> Result<()> {
    let mut results: HashMap<Vec<Option<usize>>, Option<Series>> = HashMap::new();
    let mut chosen = Vec::new();
    let mut charge = limits.ctx.charge();
    for step in series.column.present.iter() {
        limits.check()?;
        chosen.clear();
        for candidates in infos {
            chosen.push(newest(candidates, step)?);
        }
        if !results.contains_key(&chosen) {
            let selected = chosen
                .iter()
                .zip(infos)
                .filter_map(|(at, infos)| at.map(|at| infos[at]));
            let info_size: usize = selected.clone().map(|info| info.labels.size()).sum();
            let _building =
                limits.charge_building(LABELS_COPIES * (series.labels.size() + info_size))?;
            let labels = added_labels(series, selected, filter)?;
            let labels_size = labels.as_ref().map_or(0, Labels::size);
            charge.grow(labels_size + Column::size(steps.n_steps) + 2 * size_of_val(&*chosen))?;
            let result = labels.map(|labels| {
                let column = Column::absent(steps.n_steps);
                Series {
                    labels,
                    drop_name: series.drop_name,
                    column,
                }
            });
            results.insert(chosen.clone(), result);
        }
        if let Some(Some(result)) = results.get_mut(&chosen) {
            match series.column.histogram(step) {
                Some(histogram) => {
                    charge.grow(HISTOGRAM_ENTRY_SIZE)?;
                    result.column.push_histogram(step, Arc::clone(histogram));
                }
                None => result.column.set(step, series.column.values[step]),
            }
        }
    }
    // In order of appearance.
    let mut results: Vec<_> = results.into_values().flatten().collect();
    results.sort_by_key(|series| series.column.present.first());
    results.into_iter().try_for_each(|series| out.push(series))
}

/// Returns the index of the info series with the newest sample at a step.
fn newest(candidates: &[&Series], step: usize) -> Result<Option<usize>> {
    let mut best: Option<(usize, f64)> = None;
    for (at, series) in candidates.iter().enumerate() {
        let Some(time) = series.column.get(step) else {
            continue;
        };
        match best {
            Some((_, known)) if known > time => {}
            Some((other, known)) if known == time => {
                let a = printed(&candidates[other].labels);
                let b = printed(&series.labels);
                let time_ms = (time * 1000.0).round();
                let conflict = format!("existing {a} @ {time_ms}, new {b} @ {time_ms}");
                return Err(Error::Execution(format!(
                    "found duplicate series for info metric: {conflict}"
                )));
            }
            _ => best = Some((at, time)),
        }
    }
    Ok(best.map(|(at, _)| at))
}

/// Returns the labels of a series and the added labels of its info series; `None` if the filter
/// drops the series.
fn added_labels<'a>(
    series: &Series,
    infos: impl Iterator<Item = &'a Series>,
    filter: &Filter,
) -> Result<Option<Labels>> {
    let mut added: HashMap<&str, &str> = HashMap::new();
    let mut matched = false;
    for info in infos {
        matched = true;
        for (name, value) in info.labels.iter().filter(|(name, _)| filter.adds(name)) {
            if added.get(name).is_some_and(|known| *known != value) {
                return Err(Error::Execution(format!("conflicting label: {name}")));
            }
            if series.labels.get(name).is_none() {
                added.insert(name, value);
            }
        }
    }
    if !matched && !filter.keeps_unmatched() {
        return Ok(None);
    }
    let labels = Labels::from_pairs(series.labels.iter().chain(added));
    labels
        .map(Some)
        .map_err(|error| Error::Execution(error.to_string()))
}
