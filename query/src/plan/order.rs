//! The order of series, and whether each step of an expression can be computed without the others.
//!
//! The value of a step must not depend on which other steps are evaluated. Most operators satisfy
//! this, except through the order of series: a float sum depends on the order of its inputs. An
//! operator has a *fixed order* if two series of its result have the same relative order, whatever
//! the steps. Selectors and range functions have one: ascending labels. Groups of an aggregation do
//! not: they are in order of appearance, so a series that is only present at some steps moves its
//! group. In a range query, an aggregation whose result depends on the order of its input sorts an
//! input without a fixed order by labels, unless all its values are small integers. `limitk` does
//! not sort: it needs a fixed order.

use varve_promql::ast::{AggregateOp, BinaryOp, Cardinality, ValueType, VectorMatching};

use super::tree::{Aggregate, Call, Chain, Plan, PlanKind, Subquery};
use crate::functions::Implementation;

/// The order of the series of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The same for any set of steps.
    Fixed,
    /// It may depend on the steps.
    Any,
}

impl Plan {
    /// Returns the order of the series of an expression, or `None` if its steps may depend on each
    /// other. `default_step_ms` is the step of subqueries that do not set one.
    pub(crate) fn order(&self, default_step_ms: i64) -> Option<Order> {
        order(self, default_step_ms)
    }
}

impl Aggregate {
    /// Returns `true` if the parameter is a number.
    pub(crate) fn has_constant_param(&self) -> bool {
        self.param
            .as_ref()
            .is_some_and(|param| matches!(param.kind, PlanKind::Number(_)))
    }

    /// Returns `true` if the result depends on the order of the input.
    pub(crate) fn depends_on_order(&self) -> bool {
        use AggregateOp::{Avg, Max, Min, Quantile, Stddev, Stdvar, Sum};
        match self.op {
            Sum => !is_integral(&self.expr),
            // `min`, `max` and `quantile` return the first of 0 and -0.
            op => matches!(op, Avg | Max | Min | Quantile | Stddev | Stdvar),
        }
    }
}

fn order(plan: &Plan, default_step_ms: i64) -> Option<Order> {
    match &plan.kind {
        PlanKind::Number(_) | PlanKind::String(_) => Some(Order::Fixed),
        // Series of several metrics may have equal labels without their names, which is an error of
        // the whole query.
        PlanKind::Selector(selector) => selector.metric_name().map(|_| Order::Fixed),
        PlanKind::Range(range) => range.selector.metric_name().map(|_| Order::Fixed),
        PlanKind::Subquery(subquery) => order_of_subquery(subquery, default_step_ms),
        PlanKind::Call(call) => order_of_call(plan, call, default_step_ms),
        PlanKind::Aggregate(aggregate) => order_of_aggregate(aggregate, default_step_ms),
        PlanKind::Chain(chain) => order_of_chain(chain, default_step_ms),
        PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => order(inner, default_step_ms),
    }
}

fn order_of_subquery(subquery: &Subquery, default_step_ms: i64) -> Option<Order> {
    let step_ms = subquery.step_ms.unwrap_or(default_step_ms);
    // If its step is longer than its range, some steps of the query have no step of the subquery.
    if step_ms > subquery.range_ms {
        return None;
    }
    order(&subquery.expr, default_step_ms)
}

fn order_of_call(plan: &Plan, call: &Call, default_step_ms: i64) -> Option<Order> {
    // The order of the first argument that has series.
    let mut series_order = None;
    for arg in &call.args {
        let order = order(arg, default_step_ms)?;
        if matches!(arg.value_type, ValueType::Vector | ValueType::Matrix) {
            series_order.get_or_insert(order);
        }
    }
    let series_order = series_order.unwrap_or(Order::Fixed);
    match call.implementation {
        Implementation::OverRange(function) => {
            // Two series with equal labels are an error even if no step has both.
            (function.keeps_name || plan.reads_one_metric()).then_some(series_order)
        }
        Implementation::PerSeries(_)
        | Implementation::Timestamp
        | Implementation::StartTimestamp => Some(series_order),
        Implementation::Time
        | Implementation::Pi
        | Implementation::Scalar
        | Implementation::Vector
        | Implementation::Extremum(_)
        | Implementation::Absent
        | Implementation::AbsentOverTime => Some(Order::Fixed),
        Implementation::LabelReplace
        | Implementation::LabelJoin
        | Implementation::HistogramQuantile
        | Implementation::HistogramQuantiles
        | Implementation::HistogramFraction => Some(Order::Any),
        Implementation::Sort(_) | Implementation::SortByLabel(_) | Implementation::Info => None,
    }
}

fn order_of_aggregate(aggregate: &Aggregate, default_step_ms: i64) -> Option<Order> {
    use AggregateOp::{
        Avg, Bottomk, Count, CountValues, Group, LimitRatio, Limitk, Max, Min, Quantile, Stddev,
        Stdvar, Sum, Topk,
    };
    let input = order(&aggregate.expr, default_step_ms)?;
    if let Some(param) = &aggregate.param {
        order(param, default_step_ms)?;
    }
    // A parameter that varies may be invalid at one step, which fails the whole query.
    let has_constant_param = aggregate.has_constant_param();
    let is_one_group = !aggregate.without && aggregate.grouping.is_empty();
    match aggregate.op {
        CountValues => Some(Order::Any),
        Avg | Count | Group | Max | Min | Quantile | Stddev | Stdvar | Sum => {
            Some(if is_one_group {
                Order::Fixed
            } else {
                Order::Any
            })
        }
        // With a single step, the result is in heap order. The evaluation detects ties that the
        // order of the input decides.
        Topk | Bottomk | LimitRatio => has_constant_param.then_some(Order::Any),
        Limitk => (has_constant_param && input == Order::Fixed).then_some(Order::Any),
    }
}

/// Returns `true` if all values are integers that are small enough to be added exactly.
fn is_integral(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Aggregate(aggregate) => match aggregate.op {
            AggregateOp::Count | AggregateOp::Group | AggregateOp::CountValues => true,
            AggregateOp::Sum => is_integral(&aggregate.expr),
            _ => false,
        },
        _ => false,
    }
}

fn order_of_chain(chain: &Chain, default_step_ms: i64) -> Option<Order> {
    let mut lhs = order(&chain.first, default_step_ms)?;
    let mut lhs_type = chain.first.value_type;
    for link in &chain.links {
        let rhs = order(&link.rhs, default_step_ms)?;
        let rhs_type = link.rhs.value_type;
        lhs = match &link.matching {
            Some(matching) => order_of_match(link.op, matching, lhs, rhs)?,
            None if lhs_type == ValueType::Vector => lhs,
            None => rhs,
        };
        if rhs_type == ValueType::Vector {
            lhs_type = rhs_type;
        }
    }
    Some(lhs)
}

fn order_of_match(
    op: BinaryOp,
    matching: &VectorMatching,
    lhs: Order,
    rhs: Order,
) -> Option<Order> {
    if matching.fill_left.is_some() || matching.fill_right.is_some() {
        return None;
    }
    Some(match matching.cardinality {
        Cardinality::ManyToMany if matches!(op, BinaryOp::And | BinaryOp::Unless) => lhs,
        // Series with equal labels are merged into the first one.
        Cardinality::ManyToMany | Cardinality::OneToOne => Order::Any,
        Cardinality::ManyToOne => lhs,
        Cardinality::OneToMany => rhs,
    })
}
