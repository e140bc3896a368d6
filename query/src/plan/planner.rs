//! Builds the plan of a query from its syntax tree.

use varve_promql::ast::{self, At, Expr, ExprKind, UnaryOp, ValueType};
use varve_promql::duration::seconds;

use crate::functions::operators::is_trim;
use crate::functions::{self, arithmetic};
use crate::steps::Steps;

use super::duration::resolve;
use super::tree::{
    Aggregate, Call, Chain, Link, Plan, PlanKind, RangeSelector, Selector, Shift, Subquery,
};
use super::{info_shift, label_names, skip_buckets, skip_values};

/// Creates the plan of an expression.
///
/// # Errors
/// Prometheus' error message if a duration in the expression is invalid for `steps`.
pub(crate) fn build(expr: &Expr, steps: Steps) -> Result<Plan, String> {
    let built = Planner { steps }.build(expr)?;
    let mut plan = built.wrapped_if_beneficial();
    skip_buckets::mark(&mut plan);
    skip_values::mark(&mut plan);
    plan.assign_ids(0);
    Ok(plan)
}

/// Functions whose value changes with the step even if their arguments do not.
const STEP_DEPENDENT: [&str; 11] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "hour",
    "minute",
    "month",
    "predict_linear",
    "time",
    "timestamp",
    "year",
];

/// A plan, and whether it can be evaluated once for all steps.
struct Built {
    plan: Plan,
    /// The value is the same at every step.
    invariant: bool,
    /// Wrapping in [`PlanKind::StepInvariant`] is allowed and saves work.
    beneficial: bool,
}

impl Built {
    fn new(kind: PlanKind, expr: &Expr, value_type: ValueType) -> Self {
        Self {
            plan: Plan {
                kind,
                value_type,
                span: expr.span,
                id: 0,
            },
            invariant: false,
            beneficial: false,
        }
    }

    fn invariant(mut self, invariant: bool, beneficial: bool) -> Self {
        self.invariant = invariant;
        self.beneficial = beneficial;
        self
    }

    fn wrapped_if_beneficial(self) -> Plan {
        if self.beneficial {
            self.wrapped()
        } else {
            self.plan
        }
    }

    fn wrapped(self) -> Plan {
        let Plan {
            value_type, span, ..
        } = self.plan;
        Plan {
            kind: PlanKind::StepInvariant(Box::new(self.plan)),
            value_type,
            span,
            id: 0,
        }
    }
}

/// Plans the expressions of a query at these steps.
struct Planner {
    steps: Steps,
}

impl Planner {
    fn build(&self, expr: &Expr) -> Result<Built, String> {
        match &expr.kind {
            ExprKind::Number(number) => Ok(constant(number.value, expr)),
            ExprKind::String(text) => {
                let kind = PlanKind::String(text.clone());
                Ok(Built::new(kind, expr, ValueType::String).invariant(true, false))
            }
            ExprKind::Vector(selector) => {
                let selector = self.selector(selector)?;
                let fixed = selector.shift.at_ms.is_some();
                Ok(
                    Built::new(PlanKind::Selector(selector), expr, ValueType::Vector)
                        .invariant(fixed, fixed),
                )
            }
            ExprKind::Matrix(matrix) => self.range_selector(expr, matrix),
            ExprKind::Subquery(subquery) => self.subquery(expr, subquery),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::Aggregate(aggregate) => self.aggregate(expr, aggregate),
            ExprKind::Binary(binary) => self.chain(expr, binary),
            ExprKind::Unary(unary) => {
                let Built {
                    plan,
                    invariant,
                    beneficial,
                } = self.build(&unary.expr)?;
                let value_type = plan.value_type;
                let kind = match plan.kind {
                    PlanKind::Number(value) if unary.op == UnaryOp::Minus => {
                        PlanKind::Number(-value)
                    }
                    _ => PlanKind::Sign(unary.op, Box::new(plan)),
                };
                Ok(Built::new(kind, expr, value_type).invariant(invariant, beneficial))
            }
            ExprKind::Paren(inner) => self.build(inner),
        }
    }

    fn selector(&self, selector: &ast::VectorSelector) -> Result<Selector, String> {
        let shift = self.shift(selector.offset.as_ref(), selector.at)?;
        let matchers = selector.matchers.clone();
        let extension = selector.extension;
        Ok(Selector {
            n_written: matchers.len(),
            matchers,
            shift,
            extension,
            skip_buckets: false,
            skip_values: false,
        })
    }

    fn shift(&self, offset: Option<&ast::Duration>, at: Option<At>) -> Result<Shift, String> {
        let offset_ms = offset.map_or(Ok(0), |offset| resolve(offset, self.steps, true))?;
        let at_ms = at.map(|at| match at {
            At::Timestamp(at_ms) => at_ms,
            At::Start => self.steps.start_ms,
            At::End => self.steps.end_ms,
        });
        Ok(Shift { offset_ms, at_ms })
    }

    fn range_selector(&self, expr: &Expr, matrix: &ast::MatrixSelector) -> Result<Built, String> {
        let ExprKind::Vector(selector) = &matrix.selector.kind else {
            return Err("the expression of a range is not a selector".into());
        };
        let range_ms = resolve(&matrix.range, self.steps, false)?;
        let selector = self.selector(selector)?;
        let fixed = selector.shift.at_ms.is_some();
        let kind = PlanKind::Range(RangeSelector { selector, range_ms });
        Ok(Built::new(kind, expr, ValueType::Matrix).invariant(fixed, false))
    }

    /// Builds a subquery. Its expression is evaluated once if it is step-invariant, even if the
    /// subquery is not.
    fn subquery(&self, expr: &Expr, subquery: &ast::Subquery) -> Result<Built, String> {
        let shift = self.shift(subquery.offset.as_ref(), subquery.at)?;
        let step_ms = subquery
            .step
            .as_ref()
            .map(|step| resolve(step, self.steps, false))
            .transpose()?;
        // As in Prometheus, a step below a millisecond is the default one.
        let step_ms = step_ms.filter(|&step_ms| step_ms > 0);
        let range_ms = resolve(&subquery.range, self.steps, false)?;
        let inner = self.build(&subquery.expr)?;
        let inner = if inner.invariant {
            inner.wrapped()
        } else {
            inner.plan
        };
        let kind = PlanKind::Subquery(Box::new(Subquery {
            expr: inner,
            range_ms,
            step_ms,
            shift,
        }));
        Ok(Built::new(kind, expr, ValueType::Matrix).invariant(shift.at_ms.is_some(), false))
    }

    fn call(&self, expr: &Expr, call: &ast::Call) -> Result<Built, String> {
        if let Some(value) = self.query_constant(call.function.name) {
            return Ok(constant(value, expr));
        }
        let args = call
            .args
            .iter()
            .map(|arg| self.build(arg))
            .collect::<Result<Vec<_>, _>>()?;
        // The timestamp of a sample at a fixed time (`@`) is step-invariant. For other arguments it
        // is the time of the step.
        let fixed_timestamp = call.function.name == "timestamp"
            && args
                .iter()
                .all(|arg| arg.invariant && is_selector(&arg.plan));
        let invariant = match call.function.name {
            name if STEP_DEPENDENT.contains(&name) => fixed_timestamp,
            // The second argument has the syntax of a selector, and is not evaluated.
            "info" => args[0].invariant && info_shift(&args[0].plan).is_some(),
            _ => args.iter().all(|arg| arg.invariant),
        };
        let args = if invariant {
            args.into_iter().map(|arg| arg.plan).collect()
        } else {
            args.into_iter().map(Built::wrapped_if_beneficial).collect()
        };
        let implementation = functions::implementation(call.function.name);
        let implementation =
            implementation.ok_or_else(|| format!("unknown function {}", call.function.name))?;
        let kind = PlanKind::Call(Call {
            function: call.function,
            implementation,
            args,
        });
        Ok(Built::new(kind, expr, call.function.return_type).invariant(invariant, invariant))
    }

    /// Returns the value of a function that depends only on the times of the query.
    fn query_constant(&self, name: &str) -> Option<f64> {
        let Steps {
            start_ms,
            end_ms,
            step_ms,
            ..
        } = self.steps;
        match name {
            "start" => Some(start_ms as f64 / 1000.0),
            "end" => Some(end_ms as f64 / 1000.0),
            "range" => Some(seconds(end_ms - start_ms)),
            "step" => Some(if start_ms == end_ms {
                0.0
            } else {
                seconds(step_ms)
            }),
            _ => None,
        }
    }

    /// Builds an aggregation. As in Prometheus, its parameter does not affect whether it is
    /// step-invariant.
    fn aggregate(&self, expr: &Expr, aggregate: &ast::Aggregate) -> Result<Built, String> {
        let param = aggregate
            .param
            .as_deref()
            .map(|param| self.build(param))
            .transpose()?;
        let Built {
            plan,
            invariant,
            beneficial,
        } = self.build(&aggregate.expr)?;
        let kind = PlanKind::Aggregate(Box::new(Aggregate {
            op: aggregate.op,
            expr: plan,
            param: param.map(|param| param.plan),
            grouping: label_names::sort(aggregate.grouping.clone()),
            without: aggregate.without,
        }));
        Ok(Built::new(kind, expr, ValueType::Vector).invariant(invariant, beneficial))
    }

    fn chain(&self, expr: &Expr, binary: &ast::Binary) -> Result<Built, String> {
        let (first, operators) = binary.chain();
        let mut lhs = self.build(first)?;
        for (idx, operator) in operators.iter().enumerate() {
            // The span of an operator ends with its right side, like the left side of the next
            // operator.
            let span = operators
                .get(idx + 1)
                .map_or(expr.span, |next| next.lhs.span);
            let rhs = self.build(&operator.rhs)?;
            // Constant folding. An operator that is not for scalars fails during the evaluation.
            if let PlanKind::Number(a) = &lhs.plan.kind
                && let PlanKind::Number(b) = &rhs.plan.kind
                && !is_trim(operator.op)
            {
                let mut value = [*a];
                arithmetic::apply_to_scalars(operator.op, &mut value, &[*b]);
                lhs.plan = Plan {
                    kind: PlanKind::Number(value[0]),
                    span,
                    ..lhs.plan
                };
                continue;
            }
            let invariant = lhs.invariant && rhs.invariant;
            let (lhs_plan, rhs) = if invariant {
                (lhs.plan, rhs.plan)
            } else {
                (lhs.wrapped_if_beneficial(), rhs.wrapped_if_beneficial())
            };
            let mut matching = operator.matching.clone();
            if let Some(matching) = &mut matching {
                matching.labels = label_names::sort(std::mem::take(&mut matching.labels));
                matching.include = label_names::sort(std::mem::take(&mut matching.include));
            }
            let link = Link {
                op: operator.op,
                rhs,
                matching,
                return_bool: operator.return_bool,
                span,
            };
            lhs = Built {
                plan: extend(lhs_plan, link),
                invariant,
                beneficial: invariant,
            };
        }
        Ok(lhs)
    }
}

/// Appends a link to a chain, or creates a chain.
fn extend(lhs: Plan, link: Link) -> Plan {
    let scalars = lhs.value_type == ValueType::Scalar && link.rhs.value_type == ValueType::Scalar;
    let value_type = if scalars {
        ValueType::Scalar
    } else {
        ValueType::Vector
    };
    let span = link.span;
    let chain = match lhs.kind {
        PlanKind::Chain(mut chain) => {
            chain.links.push(link);
            chain
        }
        kind => Chain {
            first: Box::new(Plan { kind, ..lhs }),
            links: vec![link],
        },
    };
    Plan {
        kind: PlanKind::Chain(chain),
        value_type,
        span,
        id: 0,
    }
}

fn constant(value: f64, expr: &Expr) -> Built {
    Built::new(PlanKind::Number(value), expr, ValueType::Scalar).invariant(true, false)
}

fn is_selector(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Selector(_))
}
