//! Stages: operators that compute each series independently.

use crate::annotations::Annotations;
use crate::error::Result;
use crate::eval::columns::combine::{OperatorAnnotations, drops_metric_name, with_scalar};
use crate::eval::columns::{Column, Limits, Scalars, Series};
use crate::histogram::FloatHistogram;
use crate::plan::Link;

/// An operator of a pipeline.
pub(in crate::eval) struct Stage<'p> {
    /// The id of the expression.
    pub(in crate::eval) id: usize,
    pub(in crate::eval) kind: StageKind<'p>,
}

type ColumnFn<'p> = Box<dyn Fn(&mut Column) + Send + Sync + 'p>;

/// The operator of a [`Stage`].
pub(in crate::eval) enum StageKind<'p> {
    /// Maps floats to floats and drops histograms.
    Floats(ColumnFn<'p>),
    /// Maps histograms to floats and drops floats.
    Histograms(fn(&FloatHistogram) -> f64),
    /// Unary minus.
    Negate,
    /// A binary operator with a scalar. The scalar is the left operand if `swapped`.
    WithScalar {
        link: &'p Link,
        scalar: Scalars,
        swapped: bool,
    },
}

impl Stage<'_> {
    /// Returns `true` if the metric name no longer describes the result.
    pub(super) fn drops_name(&self) -> bool {
        match &self.kind {
            StageKind::Floats(_) | StageKind::Histograms(_) | StageKind::Negate => true,
            StageKind::WithScalar { link, .. } => drops_metric_name(link),
        }
    }

    /// Adds the annotations of the stage to those of the query. Returns `true` if they depend on
    /// the order of the series.
    pub(super) fn annotate(
        &self,
        stage_annotations: OperatorAnnotations,
        annotations: &mut Annotations,
    ) -> bool {
        match &self.kind {
            StageKind::WithScalar { link, .. } => stage_annotations.add_to(annotations, link.span),
            StageKind::Floats(_) | StageKind::Histograms(_) | StageKind::Negate => false,
        }
    }

    /// Applies the stage to the `order`-th series. The result may have no values.
    pub(super) fn apply(
        &self,
        series: &mut Series,
        order: usize,
        annotations: &mut OperatorAnnotations,
        limits: &Limits,
        delayed: bool,
    ) -> Result<()> {
        match &self.kind {
            StageKind::Floats(change) => {
                series.column.keep_floats();
                change(&mut series.column);
            }
            StageKind::Histograms(f) => {
                let mut floats = limits.column(series.column.values.len())?;
                for (step, histogram) in series.column.histograms() {
                    floats.set(step, f(histogram));
                }
                series.column = floats;
            }
            StageKind::Negate => negate(&mut series.column),
            StageKind::WithScalar {
                link,
                scalar,
                swapped,
            } => {
                with_scalar(
                    link,
                    &mut series.column,
                    scalar,
                    *swapped,
                    order,
                    annotations,
                    limits,
                )?;
            }
        }
        if self.drops_name() {
            series.drop_name(delayed);
        }
        Ok(())
    }
}

fn negate(column: &mut Column) {
    for value in &mut column.values {
        *value = -*value;
    }
    column.map_histograms(|histogram| {
        let mut negated = histogram.clone();
        negated.multiply(-1.0);
        negated
    });
}
