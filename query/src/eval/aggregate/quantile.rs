//! `quantile`: of each group and step the values, and nothing else of the series.

use varve_tsdb::labels::LabelHint;

use super::super::Evaluator;
use super::super::grid::Grid;
use super::super::keys::Keys;
use super::super::series::{Series, Vector};
use super::{Groups, labels_for};
use crate::annotations::Note;
use crate::error::Result;
use crate::functions::over_time::quantile_of;
use crate::plan::Aggregate;

/// The values of a group.
struct Values {
    /// By step, in the order in which their series came.
    by_step: Vec<Vec<f64>>,
    drop_name: bool,
}

impl Evaluator<'_> {
    /// `quantile(q, v)`
    pub(super) fn quantile(&mut self, aggregate: &Aggregate, grid: Grid) -> Result<Vector> {
        let (quantiles, range) = self.param(aggregate, grid)?;
        let asked: LabelHint = labels_for(&[aggregate]);
        let (mut groups, mut of_groups): (_, Vec<Values>) = (Groups::new(aggregate), Vec::new());
        let (mut charge, mut hold) = (self.bounds.ctx.charge(), self.bounds.samples.hold());
        let mut ignored_histograms = false;
        self.each_with_labels(&aggregate.expr, grid, &asked, 1, &mut |mut series| {
            // As in Prometheus samples count until the aggregation is done, though histograms are not kept.
            hold.grow(series.column.n_samples())?;
            if !series.column.histograms.is_empty() {
                ignored_histograms |= series.column.histograms().next().is_some();
                series.column.keep_floats();
            }
            if series.column.present.is_empty() {
                return Ok(());
            }
            let (number, is_new) = groups.number(&series.labels);
            if is_new {
                charge.grow(grid.n_steps * size_of::<Vec<f64>>() + Keys::size(groups.labels(number)))?;
                of_groups.push(Values { by_step: vec![Vec::new(); grid.n_steps], drop_name: false });
            }
            // A list that grows may have room for twice as many.
            charge.grow(series.column.present.count() * 2 * size_of::<f64>())?;
            let Values { by_step, drop_name } = &mut of_groups[number];
            series.column.iter().for_each(|(step, value)| by_step[step].push(value));
            *drop_name |= series.drop_name;
            Ok(())
        })?;
        if ignored_histograms {
            self.annotations.add(Note::HistogramIgnored(aggregate.op.as_str()), aggregate.expr.span);
        }
        for q in range.outside(0.0, 1.0) {
            let span = aggregate.param.as_ref().map_or_else(Default::default, |param| param.span);
            self.annotations.add(Note::InvalidQuantile(q), span);
        }
        let mut vector = self.bounds.vector();
        for (labels, Values { by_step, drop_name }) in groups.keys.into_labels().into_iter().zip(of_groups) {
            let mut column = self.bounds.column(grid.n_steps)?;
            for ((step, mut values), &q) in by_step.into_iter().enumerate().zip(quantiles.iter()) {
                self.bounds.check()?;
                if !values.is_empty() {
                    column.set(step, quantile_of(q, &mut values));
                }
            }
            vector.push(Series { labels, drop_name, column })?;
        }
        Ok(vector)
    }
}
