//! `info(v, {...})`: adds labels of info series, such as `target_info`, to the series of the same job and instance.
//!
//! The info series of a base series is the candidate with the newest sample, so it may change from step to step. Few
//! combinations occur; the labels of each combination are built once.

use std::sync::Arc;

use hashbrown::HashMap;
use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::labels::regexp::Regexp;
use varve_tsdb::{Labels, MatchOp, Matcher};

use crate::error::{Error, Result};
use crate::eval::Evaluator;
use crate::eval::columns::{Column, Series, Vector};
use crate::eval::grid::Grid;
use crate::plan::{Plan, PlanKind, Selector, Shift};

/// The labels that join an info series to others.
const IDENTIFYING: [&str; 2] = ["instance", "job"];
/// The default info metric.
const TARGET_INFO: &str = "target_info";

/// Info series by metric name, job and instance. Their values are the timestamps of their samples.
type Candidates<'a> = HashMap<(&'a str, Labels), Vec<&'a Series>>;

impl Evaluator<'_> {
    /// `info(v, {...})`
    pub(super) fn info(&mut self, args: &[Plan], grid: Grid) -> Result<Vector> {
        let base = self.vector(&args[0], grid)?;
        let filter = Filter::of(args.get(1));
        let is_info = |series: &Series| filter.names.iter().all(|m| m.matches(series.labels.metric_name()));
        let others = base.series.iter().filter(|series| !is_info(series));
        let infos = self.info_series(others, &filter, info_shift(&args[0]), grid)?;
        let candidates = candidates(&infos);
        let mut names: Vec<&str> = candidates.keys().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        let mut out = self.limits.vector();
        for series in &base.series {
            self.limits.check()?;
            if is_info(series) {
                out.push(series.clone())?;
                continue;
            }
            let id = identity(&series.labels);
            let candidates_of_series: Vec<_> =
                names.iter().filter_map(|name| candidates.get(&(*name, id.clone()))).collect();
            for enriched in enrich(series, &candidates_of_series, &filter, grid)? {
                out.push(enriched)?;
            }
        }
        out.merge_same_labels()?;
        Ok(out)
    }

    /// Selects the info series that have the job and instance of one of the given series. Their values are the
    /// timestamps of their samples.
    fn info_series<'s>(
        &mut self,
        series: impl Iterator<Item = &'s Series>,
        filter: &Filter,
        shift: Shift,
        grid: Grid,
    ) -> Result<Vector> {
        let mut values: [Vec<&str>; 2] = Default::default();
        for series in series {
            for (name, values) in IDENTIFYING.iter().zip(&mut values) {
                values.extend(series.labels.get(name));
            }
        }
        let mut infos = self.limits.vector();
        if values.iter().all(Vec::is_empty) {
            return Ok(infos);
        }
        let mut matchers: Vec<Matcher> = filter.names.iter().chain(&filter.data).cloned().collect();
        for (name, values) in IDENTIFYING.iter().zip(&mut values).filter(|(_, values)| !values.is_empty()) {
            values.sort_unstable();
            values.dedup();
            let any: Vec<_> = values.iter().map(|value| Regexp::escape(value)).collect();
            let matcher = Matcher::new(MatchOp::Regexp, name, &any.join("|"));
            matchers.push(matcher.map_err(|error| Error::Execution(error.to_string()))?);
        }
        let selector = Selector { matchers, shift, extension: None, skip_buckets: false };
        self.each_info(&selector, grid, &mut |series| infos.push(series))?;
        Ok(infos)
    }
}

/// The matchers of the second argument.
struct Filter {
    /// Matchers of the metric name.
    names: Vec<Matcher>,
    /// Matchers of data labels. If there are any, only these labels are added.
    data: Vec<Matcher>,
}

impl Filter {
    fn of(arg: Option<&Plan>) -> Self {
        let matchers = match arg.map(|arg| &arg.unwrap_step_invariant().kind) {
            Some(PlanKind::Selector(selector)) => selector.matchers.clone(),
            _ => Vec::new(),
        };
        let (mut names, data): (Vec<_>, Vec<_>) = matchers.into_iter().partition(|m| m.name() == METRIC_NAME);
        if names.is_empty() {
            names.push(Matcher::equal(METRIC_NAME, TARGET_INFO));
        } else if !names.iter().any(|m| matches!(m.op(), MatchOp::Equal | MatchOp::Regexp)) {
            // The name matchers only exclude names: start from all metrics whose names end in `_info`.
            let any_info = Matcher::new(MatchOp::Regexp, METRIC_NAME, ".+_info");
            names.insert(0, any_info.expect("the pattern is a constant"));
        }
        Self { names, data }
    }

    /// Returns `true` if the label `name` of info series is added to the result.
    fn adds(&self, name: &str) -> bool {
        name != METRIC_NAME && (self.data.is_empty() || self.data.iter().any(|m| m.name() == name))
    }

    /// Returns `true` if the result includes series that match no info series.
    fn keeps_unmatched(&self) -> bool {
        self.data.iter().all(Matcher::matches_empty)
    }
}

/// Returns the time shift of info series. It combines the modifiers of the first selector in the argument and of the
/// subqueries around it, up to the first `@`.
fn info_shift(plan: &Plan) -> Shift {
    fn first_selector(plan: &Plan) -> Option<Shift> {
        match &plan.kind {
            PlanKind::Selector(selector) => Some(selector.shift),
            PlanKind::Range(range) => Some(range.selector.shift),
            PlanKind::Subquery(subquery) => {
                let inner = first_selector(&subquery.expr)?;
                Some(match inner.at_ms {
                    Some(_) => inner,
                    None => Shift {
                        offset_ms: inner.offset_ms.saturating_add(subquery.shift.offset_ms),
                        at_ms: subquery.shift.at_ms,
                    },
                })
            }
            PlanKind::Call(call) => call.args.iter().find_map(first_selector),
            PlanKind::Aggregate(aggregate) => {
                first_selector(&aggregate.expr).or_else(|| aggregate.param.as_ref().and_then(first_selector))
            }
            PlanKind::Chain(chain) => {
                first_selector(&chain.first).or_else(|| chain.links.iter().find_map(|link| first_selector(&link.rhs)))
            }
            PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => first_selector(inner),
            PlanKind::Number(_) | PlanKind::String(_) => None,
        }
    }
    first_selector(plan).unwrap_or(Shift { offset_ms: 0, at_ms: None })
}

fn identity(labels: &Labels) -> Labels {
    labels.filter(|name| IDENTIFYING.contains(&name))
}

fn candidates(infos: &Vector) -> Candidates<'_> {
    let mut candidates = Candidates::new();
    for series in &infos.series {
        candidates.entry((series.labels.metric_name(), identity(&series.labels))).or_default().push(series);
    }
    candidates
}

/// Adds the labels of info series to a series. Returns one series for each combination of info series that occurs.
fn enrich(series: &Series, infos: &[&Vec<&Series>], filter: &Filter, grid: Grid) -> Result<Vec<Series>> {
    let mut results: Vec<(Vec<Option<usize>>, Option<Series>)> = Vec::new();
    let mut chosen = Vec::new();
    for step in series.column.present.iter() {
        chosen.clear();
        for candidates in infos {
            chosen.push(newest(candidates, step)?);
        }
        let at = match results.iter().position(|(known, _)| *known == chosen) {
            Some(at) => at,
            None => {
                let selected = chosen.iter().zip(infos).filter_map(|(at, infos)| at.map(|at| infos[at]));
                let labels = added_labels(series, selected, filter)?;
                let result = labels.map(|labels| {
                    let column = Column::absent(grid.n_steps);
                    Series { labels, drop_name: series.drop_name, column }
                });
                results.push((chosen.clone(), result));
                results.len() - 1
            }
        };
        if let Some(result) = &mut results[at].1 {
            match series.column.histogram(step) {
                Some(histogram) => result.column.push_histogram(step, Arc::clone(histogram)),
                None => result.column.set(step, series.column.values[step]),
            }
        }
    }
    Ok(results.into_iter().filter_map(|(_, series)| series).collect())
}

/// Returns the index of the info series with the newest sample at a step.
fn newest(candidates: &[&Series], step: usize) -> Result<Option<usize>> {
    let mut best: Option<(usize, f64)> = None;
    for (at, series) in candidates.iter().enumerate() {
        let Some(time) = series.column.get(step) else { continue };
        match best {
            Some((_, known)) if known > time => {}
            Some((other, known)) if known == time => {
                let (a, b, time_ms) = (&candidates[other].labels, &series.labels, (time * 1000.0).round());
                let conflict = format!("existing {a} @ {time_ms}, new {b} @ {time_ms}");
                return Err(Error::Execution(format!("found duplicate series for info metric: {conflict}")));
            }
            _ => best = Some((at, time)),
        }
    }
    Ok(best.map(|(at, _)| at))
}

/// Returns the labels of a series and the added labels of its info series; `None` if the filter drops the series.
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
    let mut names: Vec<_> = added.into_iter().collect();
    names.sort_unstable();
    Ok(Some(names.into_iter().fold(series.labels.clone(), |labels, (name, value)| labels.with(name, value))))
}
