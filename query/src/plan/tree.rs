//! The types of a plan: expressions and their operands.

use varve_promql::ast::{
    AggregateOp, BinaryOp, RangeExtension, Span, UnaryOp, ValueType, VectorMatching,
};
use varve_promql::functions::Function;

use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher};

use super::label_names::contains_name;
use crate::functions::{Implementation, RangeFunction, arithmetic};

/// An expression that is ready to be evaluated.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The kind of expression and its operands.
    pub(crate) kind: PlanKind,
    /// The type of its value.
    pub(crate) value_type: ValueType,
    /// The position of the expression in the query.
    pub(crate) span: Span,
    /// Index of the expression in a pre-order walk of the query.
    pub(crate) id: usize,
}

/// The kinds of expressions in a plan.
#[derive(Debug, Clone)]
pub(crate) enum PlanKind {
    /// A number.
    Number(f64),
    /// A string; its bytes need not be UTF-8.
    String(Box<[u8]>),
    /// The latest sample of each series.
    Selector(Selector),
    /// The samples of each series over a range.
    Range(RangeSelector),
    /// A subquery: an expression evaluated over a range.
    Subquery(Box<Subquery>),
    /// A function call.
    Call(Call),
    /// An aggregation across series.
    Aggregate(Box<Aggregate>),
    /// Binary operators.
    Chain(Chain),
    /// Unary plus or minus.
    Sign(UnaryOp, Box<Plan>),
    /// An expression whose value is the same at every step.
    StepInvariant(Box<Plan>),
}

/// The time shift of a selector or a subquery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shift {
    /// Offset into the past, relative to the step or to `at_ms`.
    pub(crate) offset_ms: i64,
    /// Fixed time (`@`) that replaces the time of every step.
    pub(crate) at_ms: Option<i64>,
}

impl Shift {
    /// No shift: the time of the step.
    pub(crate) const NONE: Self = Self {
        offset_ms: 0,
        at_ms: None,
    };

    /// Returns the evaluation time of a step at `time_ms`.
    pub(crate) fn apply(self, time_ms: i64) -> i64 {
        self.at_ms.unwrap_or(time_ms).saturating_sub(self.offset_ms)
    }
}

/// A selector of series.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    pub(crate) matchers: Vec<Matcher>,
    /// Number of matchers as written. Matcher propagation appends more.
    pub(crate) n_written: usize,
    pub(crate) shift: Shift,
    pub(crate) extension: Option<RangeExtension>,
    /// Only the count and the sum of histograms are read.
    pub(crate) skip_buckets: bool,
    /// Only the times of samples are read, and which of them are staleness markers.
    pub(crate) skip_values: bool,
}

/// A selector with a range: left end excluded, right end included.
#[derive(Debug, Clone)]
pub(crate) struct RangeSelector {
    pub(crate) selector: Selector,
    pub(crate) range_ms: i64,
}

/// A subquery: an expression evaluated over a range.
#[derive(Debug, Clone)]
pub(crate) struct Subquery {
    pub(crate) expr: Plan,
    pub(crate) range_ms: i64,
    /// Interval between evaluations; `None` is the default of the engine.
    pub(crate) step_ms: Option<i64>,
    pub(crate) shift: Shift,
}

/// A function call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    pub(crate) implementation: Implementation,
    pub(crate) args: Vec<Plan>,
}

/// An aggregation across series.
#[derive(Debug, Clone)]
pub(crate) struct Aggregate {
    pub(crate) op: AggregateOp,
    pub(crate) expr: Plan,
    pub(crate) param: Option<Plan>,
    /// Label names of `by` and `without`, sorted for [`contains_name`].
    pub(crate) grouping: Vec<String>,
    pub(crate) without: bool,
}

/// Binary operators from left to right: `a + b - c` is `a` and the links `+ b`, `- c`.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) first: Box<Plan>,
    /// The operators from left to right; not empty.
    pub(crate) links: Vec<Link>,
}

/// A binary operator with its right operand.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) op: BinaryOp,
    pub(crate) rhs: Plan,
    /// `Some` if and only if both sides are vectors. Its label names are sorted for
    /// [`contains_name`].
    pub(crate) matching: Option<VectorMatching>,
    pub(crate) return_bool: bool,
    /// The position of the whole expression, from the leftmost operand to `rhs`.
    pub(crate) span: Span,
}

impl Plan {
    /// Returns the direct children from left to right. The children of a chain are its operands.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            PlanKind::Number(_)
            | PlanKind::String(_)
            | PlanKind::Selector(_)
            | PlanKind::Range(_) => Vec::new(),
            PlanKind::Subquery(subquery) => vec![&subquery.expr],
            PlanKind::Call(call) => call.args.iter().collect(),
            PlanKind::Aggregate(aggregate) => {
                aggregate.param.iter().chain([&aggregate.expr]).collect()
            }
            PlanKind::Chain(chain) => [&*chain.first]
                .into_iter()
                .chain(chain.links.iter().map(|link| &link.rhs))
                .collect(),
            PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => vec![inner],
        }
    }

    /// Returns the links of a chain.
    pub(crate) fn links(&self) -> &[Link] {
        if let PlanKind::Chain(chain) = &self.kind {
            &chain.links
        } else {
            &[]
        }
    }

    /// Like [`Plan::children`], but mutable.
    pub(super) fn children_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.kind {
            PlanKind::Number(_)
            | PlanKind::String(_)
            | PlanKind::Selector(_)
            | PlanKind::Range(_) => Vec::new(),
            PlanKind::Subquery(subquery) => vec![&mut subquery.expr],
            PlanKind::Call(call) => call.args.iter_mut().collect(),
            PlanKind::Aggregate(aggregate) => aggregate
                .param
                .iter_mut()
                .chain([&mut aggregate.expr])
                .collect(),
            PlanKind::Chain(chain) => [&mut *chain.first]
                .into_iter()
                .chain(chain.links.iter_mut().map(|link| &mut link.rhs))
                .collect(),
            PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => vec![inner],
        }
    }

    /// Returns the number of expressions in this tree.
    pub(crate) fn n_nodes(&self) -> usize {
        1 + self
            .children()
            .into_iter()
            .map(Self::n_nodes)
            .sum::<usize>()
    }

    /// Assigns ids to the expressions in this tree, starting with `first`; returns the next id.
    pub(super) fn assign_ids(&mut self, first: usize) -> usize {
        self.id = first;
        self.children_mut()
            .into_iter()
            .fold(first + 1, |next, child| child.assign_ids(next))
    }

    /// Returns the expression without a [`PlanKind::StepInvariant`] around it.
    pub(crate) fn unwrap_step_invariant(&self) -> &Self {
        match &self.kind {
            PlanKind::StepInvariant(inner) => inner,
            _ => self,
        }
    }

    /// Returns the range selector if the expression is one.
    pub(crate) fn range_selector(&self) -> Option<&RangeSelector> {
        if let PlanKind::Range(range) = &self.kind {
            Some(range)
        } else {
            None
        }
    }

    /// Returns the input of an operator that computes each series independently; `None` for other
    /// expressions.
    pub(crate) fn streamed_input(&self) -> Option<&Self> {
        match &self.kind {
            PlanKind::Sign(_, inner) if inner.value_type == ValueType::Vector => Some(inner),
            PlanKind::Call(Call {
                implementation: Implementation::PerSeries(_),
                args,
                ..
            }) => args.first(),
            PlanKind::Chain(chain) => {
                let are_scalars = |links: &[Link]| {
                    links
                        .iter()
                        .all(|link| link.rhs.value_type == ValueType::Scalar)
                };
                match chain.first.value_type {
                    ValueType::Vector if are_scalars(&chain.links) => Some(&chain.first),
                    ValueType::Scalar if chain.links[0].rhs.value_type == ValueType::Vector => {
                        are_scalars(&chain.links[1..]).then_some(&chain.links[0].rhs)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns `true` if all series that a source reads have the same metric name.
    pub(crate) fn reads_one_metric(&self) -> bool {
        match &self.kind {
            PlanKind::Call(call) => call.args.iter().any(Self::has_one_name),
            _ => self.has_one_name(),
        }
    }

    /// Returns `true` if all series of an expression have the same metric name or none, without
    /// delayed name removal. Returns `false` for expressions that rarely are in a subquery.
    fn has_one_name(&self) -> bool {
        match &self.kind {
            PlanKind::Selector(selector) => selector.metric_name().is_some(),
            PlanKind::Range(range) => range.selector.metric_name().is_some(),
            PlanKind::Subquery(subquery) => subquery.expr.has_one_name(),
            PlanKind::StepInvariant(inner) => inner.has_one_name(),
            PlanKind::Aggregate(aggregate) => aggregate.drops_name(),
            PlanKind::Call(call) => match call.implementation {
                Implementation::OverRange(function) if function.keeps_name => {
                    self.reads_one_metric()
                }
                Implementation::OverRange(_) | Implementation::PerSeries(_) => true,
                Implementation::HistogramQuantile | Implementation::HistogramFraction => true,
                _ => false,
            },
            PlanKind::Chain(chain) => chain.links.iter().all(Link::drops_name),
            _ => false,
        }
    }
}

impl Aggregate {
    /// Returns `true` if the result has no metric name.
    fn drops_name(&self) -> bool {
        use AggregateOp::{Bottomk, CountValues, LimitRatio, Limitk, Topk};
        let is_kept = !self.without && contains_name(&self.grouping, METRIC_NAME);
        !is_kept && !matches!(self.op, Bottomk | CountValues | LimitRatio | Limitk | Topk)
    }
}

impl Link {
    /// Returns `true` if the result certainly has no metric name.
    fn drops_name(&self) -> bool {
        arithmetic::drops_metric_name(self.op)
            && self
                .matching
                .as_ref()
                .is_none_or(|matching| matching.include.is_empty())
    }
}

impl Call {
    /// Returns `true` for a function of the samples in a range.
    pub(crate) fn is_over_range(&self) -> bool {
        matches!(self.implementation, Implementation::OverRange(_))
    }

    /// Returns `true` for a range function that returns samples of its input; these keep the metric
    /// name.
    pub(crate) fn keeps_name(&self) -> bool {
        matches!(
            self.implementation,
            Implementation::OverRange(RangeFunction {
                keeps_name: true,
                ..
            })
        )
    }
}

impl Selector {
    /// Returns the metric name that all selected series have, if the matchers require one.
    pub(crate) fn metric_name(&self) -> Option<&str> {
        self.matchers
            .iter()
            .find(|m| m.name() == METRIC_NAME && m.op() == MatchOp::Equal && !m.value().is_empty())
            .map(Matcher::value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::planner::build;
    use crate::steps::Steps;
    use varve_promql::Features;

    fn check(query: &str, expect: bool) {
        let expr = varve_promql::parse(query, &Features::all()).unwrap();
        let plan = build(&expr, Steps::instant(0)).unwrap();
        assert_eq!(plan.reads_one_metric(), expect, "{query}");
    }

    #[test]
    fn series_of_one_metric_stay_distinct_without_their_names() {
        for (inner, expect) in [
            ("m", true),
            ("{i=\"1\"}", false),
            ("rate(m[1m])", true),
            ("rate({i=\"1\"}[1m])", true),
            ("last_over_time({i=\"1\"}[1m])", false),
            ("sum by (i) ({i=\"1\"})", true),
            ("sum by (i, __name__) ({i=\"1\"})", false),
            ("topk(1, {i=\"1\"})", false),
            ("{i=\"1\"} / 2", true),
            ("{i=\"1\"} > 2", false),
            ("m * on (i) group_left (__name__) {i=\"1\"}", false),
            (
                "label_replace(m, \"__name__\", \"$1\", \"i\", \"(.*)\")",
                false,
            ),
        ] {
            check(&format!("max_over_time(({inner})[5m:1m])"), expect);
        }
        check("rate(m[5m])", true);
        check("rate({i=\"1\"}[5m])", false);
    }
}
