//! `count_values`: counts the series that have each value.

use hashbrown::HashMap;
use varve_model::Labels;
use varve_promql::ast::{Expr, ExprKind, Span};
use varve_promql::decimal::Plain;
use varve_tsdb::select::LabelHint;

use super::is_grouping;
use crate::error::{Error, Result};
use crate::eval::columns::{Column, Series, Vector};
use crate::eval::evaluator::Evaluator;
use crate::plan::{Aggregate, PlanKind};
use crate::steps::Steps;

/// Copies of a label set while the value is added: those of the group, those with the value, and a
/// buffer for each.
const LABELS_COPIES: usize = 4;
/// Maximum length of the text of a histogram per byte of its size in memory: a bucket of 8 bytes is
/// printed as two bounds and a count.
const TEXT_PER_HISTOGRAM_SIZE: usize = 10;

impl Evaluator<'_> {
    /// `count_values("label", v)`
    pub(super) fn count_values(&mut self, aggregate: &Aggregate, steps: Steps) -> Result<Vector> {
        let label = value_label(aggregate)?;
        let mut counts = Counts {
            groups: HashMap::new(),
            columns: Vec::new(),
        };
        let limits = self.limits.clone();
        let mut charge = limits.ctx.charge();
        self.each_input(
            &aggregate.expr,
            steps,
            &LabelHint::All,
            false,
            1,
            &mut |series| {
                let mut last: Option<(u64, usize)> = None;
                for (step, value) in series.column.iter() {
                    let histogram = series.column.histogram(step);
                    let group = match last {
                        // Fast path: the same value as at the previous step.
                        Some((bits, group)) if bits == value.to_bits() && histogram.is_none() => {
                            group
                        }
                        _ => {
                            limits.check()?;
                            let text_size = histogram
                                .map_or(0, |histogram| histogram.size() * TEXT_PER_HISTOGRAM_SIZE);
                            let _building = limits.charge_building(
                                LABELS_COPIES * (series.labels.size() + text_size),
                            )?;
                            let text = histogram.map_or_else(
                                || Plain(value).to_string(),
                                |histogram| histogram.to_string(),
                            );
                            let labels = with_value(&series.labels, aggregate, &label, &text);
                            if !counts.groups.contains_key(&labels) {
                                charge.grow(Column::size(steps.n_steps) + 2 * labels.size())?;
                            }
                            counts.group(labels, steps.n_steps)
                        }
                    };
                    last = histogram.is_none().then_some((value.to_bits(), group));
                    counts.count(group, step);
                }
                Ok(())
            },
        )?;
        let mut vector = self.limits.vector();
        for (labels, column) in counts.columns {
            self.limits.check()?;
            vector.push(Series {
                labels,
                drop_name: false,
                column,
            })?;
        }
        Ok(vector)
    }
}

/// Returns the labels of the group that counts a value.
fn with_value(labels: &Labels, aggregate: &Aggregate, label: &str, value: &str) -> Labels {
    let group = labels.filter(|name| is_grouping(aggregate, name));
    if aggregate.without && !is_grouping(aggregate, label) {
        return group;
    }
    group.with(label, value)
}

/// Counts per step for each label set, in order of appearance.
struct Counts {
    groups: HashMap<Labels, usize>,
    columns: Vec<(Labels, Column)>,
}

impl Counts {
    fn group(&mut self, labels: Labels, n_steps: usize) -> usize {
        let Self { groups, columns } = self;
        *groups.entry(labels.clone()).or_insert_with(|| {
            columns.push((labels, Column::absent(n_steps)));
            columns.len() - 1
        })
    }

    fn count(&mut self, group: usize, step: usize) {
        let column = &mut self.columns[group].1;
        let count = column.get(step).unwrap_or(0.0);
        column.set(step, count + 1.0);
    }
}

/// Returns the name of the label that receives the values.
fn value_label(aggregate: &Aggregate) -> Result<String> {
    let Some(PlanKind::String(text)) = aggregate.param.as_ref().map(|param| &param.kind) else {
        return Err(Error::Execution(
            "count_values needs the name of a label".into(),
        ));
    };
    match std::str::from_utf8(text) {
        Ok(label) if !label.is_empty() => Ok(label.to_owned()),
        _ => {
            let printed = varve_promql::print(&Expr {
                kind: ExprKind::String(text.clone()),
                span: Span::default(),
            });
            Err(Error::Execution(format!("invalid label name {printed}")))
        }
    }
}
