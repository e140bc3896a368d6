//! `quantile`: holds the values of each group and step.

use super::{Groups, ParamRange, labels_for};
use crate::annotations::{Annotation, Occurrence};
use crate::error::Result;
use crate::eval::columns::{GroupingKeys, Scalars, Series, StepSet, Vector};
use crate::eval::evaluator::Evaluator;
use crate::functions::over_time::quantile_of;
use crate::plan::Aggregate;
use crate::steps::Steps;

/// The values of a group.
struct Values {
    /// The values of each step, in the order of their series.
    by_step: Vec<Vec<f64>>,
    drop_name: bool,
}

impl Evaluator<'_> {
    /// `quantile(q, v)`
    pub(super) fn quantile(&mut self, aggregate: &Aggregate, steps: Steps) -> Result<Vector> {
        let (quantiles, range) = self.param(aggregate, steps)?;
        let hint = labels_for(&[aggregate]);
        let mut groups = Groups::new(aggregate);
        let mut values: Vec<Values> = Vec::new();
        let limits = self.limits.clone();
        let mut charge = limits.ctx.charge();
        let mut histogram_steps = StepSet::empty(steps.n_steps);
        let must_sort = self.sorts_input_of(&[aggregate]);
        self.each_input(
            &aggregate.expr,
            steps,
            &hint,
            must_sort,
            1,
            &mut |mut series| {
                if !series.column.histograms.is_empty() {
                    histogram_steps.extend_with(&series.column.histogram_steps());
                    series.column.keep_floats();
                }
                if series.column.present.is_empty() {
                    return Ok(());
                }
                let (group, is_new) = groups.intern(&series.labels, &limits)?;
                if is_new {
                    charge.grow(
                        steps.n_steps * size_of::<Vec<f64>>()
                            + GroupingKeys::size(groups.labels(group)),
                    )?;
                    values.push(Values {
                        by_step: vec![Vec::new(); steps.n_steps],
                        drop_name: false,
                    });
                }
                // A growing list may have a capacity of twice its length.
                charge.grow(series.column.present.count() * 2 * size_of::<f64>())?;
                let Values { by_step, drop_name } = &mut values[group];
                for (step, value) in series.column.iter() {
                    by_step[step].push(value);
                }
                *drop_name |= series.drop_name;
                Ok(())
            },
        )?;
        if !histogram_steps.is_empty() {
            self.annotations.add(
                Annotation::HistogramIgnored(aggregate.op.as_str()),
                aggregate.expr.span,
                Occurrence::Steps(histogram_steps),
            );
        }
        self.warn_about_quantiles(aggregate, range, steps);
        self.quantiles(groups, values, &quantiles, steps)
    }

    /// Adds warnings about quantiles outside of [0, 1].
    fn warn_about_quantiles(&mut self, aggregate: &Aggregate, range: ParamRange, steps: Steps) {
        for q in range.outside(0.0, 1.0) {
            // Only the extremes of all steps are reported.
            self.is_order_fixed &= aggregate.has_constant_param();
            let span = aggregate
                .param
                .as_ref()
                .map_or_else(Default::default, |param| param.span);
            self.annotations.add(
                Annotation::InvalidQuantile(q),
                span,
                Occurrence::Steps(StepSet::full(steps.n_steps)),
            );
        }
    }

    /// Returns the quantiles of each group at each step.
    fn quantiles(
        &self,
        groups: Groups<'_>,
        values: Vec<Values>,
        quantiles: &Scalars,
        steps: Steps,
    ) -> Result<Vector> {
        let mut vector = self.limits.vector();
        for (labels, Values { by_step, drop_name }) in
            groups.keys.into_labels().into_iter().zip(values)
        {
            let mut column = self.limits.column(steps.n_steps)?;
            for ((step, mut values), &q) in by_step.into_iter().enumerate().zip(quantiles.iter()) {
                self.limits.check()?;
                if !values.is_empty() {
                    column.set(step, quantile_of(q, &mut values));
                }
            }
            vector.push(Series {
                labels,
                drop_name,
                column,
            })?;
        }
        Ok(vector)
    }
}
