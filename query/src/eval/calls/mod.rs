//! Function calls that return vectors.

mod histogram;
mod histogram_annotations;
mod info;
mod label;
mod sort;

use std::cmp::Ordering;

use hashbrown::{HashMap, HashSet};
use varve_model::{Labels, MatchOp, Matcher};

use crate::date::Civil;
use crate::error::{Error, Result};
use crate::eval::columns::{Column, Series, StepSet, Vector};
use crate::eval::evaluator::Evaluator;
use crate::eval::select::SampleField;
use crate::eval::stream::{Stage, StageKind};
use crate::functions::{Implementation, SeriesFunction};
use crate::math::float;
use crate::plan::{Call, Plan, PlanKind, is_name_label};
use crate::steps::Steps;

/// Returns a stage that maps each float of a column to `f(step, value)`.
fn map_floats<'p>(f: impl Fn(usize, f64) -> f64 + Send + Sync + 'p) -> StageKind<'p> {
    StageKind::Floats(Box::new(move |column| map(column, &f)))
}

fn map(column: &mut Column, f: impl Fn(usize, f64) -> f64) {
    let Column {
        values, present, ..
    } = column;
    for step in present.iter() {
        values[step] = f(step, values[step]);
    }
}

impl Evaluator<'_> {
    /// Evaluates a call that returns a vector.
    pub(super) fn call(&mut self, plan: &Plan, call: &Call, steps: Steps) -> Result<Vector> {
        let args = &call.args;
        match call.implementation {
            Implementation::OverRange(_) => self.materialize(plan, steps),
            Implementation::PerSeries(SeriesFunction::Calendar(part)) if args.is_empty() => {
                let values = steps
                    .times_ms()
                    .map(|time_ms| part(&Civil::of_seconds(time_ms / 1000)))
                    .collect();
                self.single(Labels::empty(), Column::full(values))
            }
            Implementation::PerSeries(_) => self.staged(plan, steps),
            Implementation::Vector => {
                let column = Column::full(self.scalar(&args[0], steps)?.into_values());
                self.single(Labels::empty(), column)
            }
            Implementation::Timestamp => self.timestamp(&args[0], steps),
            Implementation::StartTimestamp => self.start_timestamp(&args[0], steps),
            Implementation::Absent => self.absent(&args[0], steps),
            Implementation::AbsentOverTime => {
                let present = self.present_over_range(call, steps)?;
                self.ones_except(&present, absent_labels(&args[0])?, steps)
            }
            Implementation::Sort(direction) => self.sort(plan, &args[0], direction, steps),
            Implementation::SortByLabel(direction) => {
                self.sort_by_label(plan, args, direction, steps)
            }
            Implementation::LabelReplace => self.label_replace(args, steps),
            Implementation::LabelJoin => self.label_join(args, steps),
            Implementation::HistogramQuantile => self.histogram_quantile(args, steps),
            Implementation::HistogramQuantiles => self.histogram_quantiles(args, steps),
            Implementation::HistogramFraction => self.histogram_fraction(args, steps),
            Implementation::Info => self.info(args, steps),
            Implementation::Time
            | Implementation::Pi
            | Implementation::Scalar
            | Implementation::Extremum(_) => {
                Err(Error::mistyped(varve_promql::ast::ValueType::Vector))
            }
        }
    }

    /// Returns the stage of a function that computes each series independently; `None` for other
    /// functions.
    pub(super) fn call_stage<'p>(
        &mut self,
        call: &'p Call,
        steps: Steps,
    ) -> Result<Option<StageKind<'p>>> {
        let Implementation::PerSeries(function) = call.implementation else {
            return Ok(None);
        };
        let args = &call.args;
        Ok(Some(match function {
            SeriesFunction::Map(f) => map_floats(move |_, value| f(value)),
            SeriesFunction::Calendar(part) => {
                map_floats(move |_, value| part(&Civil::of_seconds(float::to_i64(value))))
            }
            SeriesFunction::Round => {
                let nearest = args
                    .get(1)
                    .map(|nearest| self.scalar(nearest, steps))
                    .transpose()?;
                map_floats(move |step, value| {
                    // Multiplying by the inverse has smaller rounding errors: 1/0.1 is exact.
                    let inverse = 1.0 / nearest.as_ref().map_or(1.0, |nearest| nearest[step]);
                    (value * inverse + 0.5).floor() / inverse
                })
            }
            SeriesFunction::Clamp { min, max } => self.clamp(
                min.and_then(|min| args.get(min)),
                max.and_then(|max| args.get(max)),
                steps,
            )?,
            SeriesFunction::MapHistograms(f) => StageKind::Histograms(f),
        }))
    }

    fn clamp<'p>(
        &mut self,
        min: Option<&Plan>,
        max: Option<&Plan>,
        steps: Steps,
    ) -> Result<StageKind<'p>> {
        let min = match min {
            Some(plan) => self.scalar(plan, steps)?,
            None => self.constant(f64::NEG_INFINITY, steps)?,
        };
        let max = match max {
            Some(plan) => self.scalar(plan, steps)?,
            None => self.constant(f64::INFINITY, steps)?,
        };
        Ok(StageKind::Floats(Box::new(move |column| {
            // Drops the steps at which the maximum is less than the minimum; NaN is not less.
            column
                .present
                .retain(|step| max[step].partial_cmp(&min[step]) != Some(Ordering::Less));
            map(column, |step, value| {
                float::max(min[step], float::min(max[step], value))
            });
        })))
    }

    /// Returns a vector of one series.
    fn single(&self, labels: Labels, column: Column) -> Result<Vector> {
        let mut vector = self.limits.vector();
        vector.push(Series {
            labels,
            drop_name: false,
            column,
        })?;
        Ok(vector)
    }

    /// Returns the timestamps of the samples of a selector; for any other argument, the times of
    /// the steps.
    fn timestamp(&mut self, arg: &Plan, steps: Steps) -> Result<Vector> {
        let PlanKind::Selector(selector) = &arg.unwrap_step_invariant().kind else {
            let mut vector = self.vector(arg, steps)?;
            // The timestamp of a histogram is a float, like that of a float.
            for series in &mut vector.series {
                series.column.histograms.clear();
            }
            let kind = map_floats(|step, _| steps.time_ms(step) as f64 / 1000.0);
            return self.apply_stage(
                vector,
                &Stage {
                    // No expression has this id: the stage is not in the profile.
                    id: usize::MAX,
                    kind,
                },
            );
        };
        let mut vector = self.limits.vector();
        let field = SampleField::Timestamp;
        self.each_timestamp(arg.id, selector, field, steps, &mut |series| {
            vector.push(series)
        })?;
        self.without_names(vector)
    }

    /// Returns the start timestamps of the samples of a selector. Returns no values if the feature
    /// is off, and for any other argument.
    fn start_timestamp(&mut self, arg: &Plan, steps: Steps) -> Result<Vector> {
        let is_on = self.settings.features.use_start_timestamps;
        let PlanKind::Selector(selector) = &arg.unwrap_step_invariant().kind else {
            return self.vector(arg, steps).map(|_| self.limits.vector());
        };
        let mut vector = self.limits.vector();
        let field = SampleField::StartTimestamp;
        self.each_timestamp(arg.id, selector, field, steps, &mut |series| {
            if is_on { vector.push(series) } else { Ok(()) }
        })?;
        self.without_names(vector)
    }

    fn absent(&mut self, arg: &Plan, steps: Steps) -> Result<Vector> {
        let mut present = StepSet::empty(steps.n_steps);
        self.each_series(arg, steps, &mut |series| {
            present.union_with(&series.column.present);
            Ok(())
        })?;
        self.ones_except(&present, absent_labels(arg)?, steps)
    }

    /// Returns one series with the value 1 at all steps except those in `present`.
    fn ones_except(&self, present: &StepSet, labels: Labels, steps: Steps) -> Result<Vector> {
        let mut column = Column::full(vec![1.0; steps.n_steps]);
        column.present.subtract(present);
        self.single(labels, column)
    }
}

/// Returns the labels that the matchers of a selector fix; none for any other argument.
///
/// As in Prometheus, the first equality matcher of a label sets it, and each other matcher unsets
/// it. So the order counts: matchers are in the order in which Prometheus' index sorts them, where
/// matchers that only exclude series are last.
fn absent_labels(arg: &Plan) -> Result<Labels> {
    let matchers = match &arg.unwrap_step_invariant().kind {
        PlanKind::Selector(selector) => &selector.matchers,
        PlanKind::Range(range) => &range.selector.matchers,
        _ => return Ok(Labels::empty()),
    };
    let required: HashSet<_> = matchers
        .iter()
        .filter(|matcher| !matcher.matches_empty())
        .map(Matcher::name)
        .collect();
    let mut value_of: HashMap<&str, &str> = HashMap::new();
    // Labels for which an equality matcher was found.
    let mut seen = HashSet::new();
    let (last, first): (Vec<_>, Vec<_>) = matchers.iter().partition(|matcher| {
        let negative = matches!(matcher.op(), MatchOp::NotEqual | MatchOp::NotRegexp);
        !required.contains(&matcher.name()) || (negative && matcher.matches_empty())
    });
    for matcher in first
        .into_iter()
        .chain(last)
        .filter(|matcher| !is_name_label(matcher.name()))
    {
        let is_first_equal = matcher.op() == MatchOp::Equal && seen.insert(matcher.name());
        value_of.insert(
            matcher.name(),
            if is_first_equal { matcher.value() } else { "" },
        );
    }
    Labels::from_pairs(value_of).map_err(|error| Error::Execution(error.to_string()))
}
