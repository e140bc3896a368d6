//! Durations that depend on the times of the query.

use varve_promql::ast::{
    BinaryOp, Duration, DurationExpr, DurationExprKind, Extremum, Span, UnaryOp,
};
use varve_promql::duration::seconds;

use crate::math::float;
use crate::steps::Steps;

/// Durations from this number of seconds on overflow Prometheus' 64-bit nanoseconds.
const DURATION_MAX_SECONDS: f64 = (1u64 << 63) as f64 / 1e9;

/// Resolves a duration to milliseconds; only offsets may be negative.
///
/// # Errors
/// Prometheus' error message for an invalid duration.
pub(super) fn resolve(
    duration: &Duration,
    steps: Steps,
    may_be_negative: bool,
) -> Result<i64, String> {
    match duration {
        Duration::Fixed(duration_ms) => Ok(*duration_ms),
        Duration::Expr(expr) => resolve_expr(expr, steps, may_be_negative),
    }
}

fn resolve_expr(expr: &DurationExpr, steps: Steps, may_be_negative: bool) -> Result<i64, String> {
    let value = evaluate(expr, steps)?;
    let fail = |why: &str| Err(span(expr) + why);
    if !value.is_finite() {
        return fail("duration is NaN or infinite");
    }
    if value <= 0.0 && !may_be_negative {
        return fail("duration must be greater than 0");
    }
    if value.abs() > DURATION_MAX_SECONDS {
        return fail("duration is out of range");
    }
    Ok((value * 1000.0) as i64)
}

/// Formats the byte range of an expression (end excluded) as the prefix of Prometheus' duration
/// errors.
fn span(expr: &DurationExpr) -> String {
    let Span { start, end } = span_of(expr);
    format!("{start}:{end}: ")
}

/// Returns the byte range of an expression. As in Prometheus, parentheses do not count, except for
/// the left one of a number.
fn span_of(expr: &DurationExpr) -> Span {
    let Span { start, .. } = expr.span;
    match &expr.kind {
        DurationExprKind::Paren(inner) => match &inner.kind {
            DurationExprKind::Number(_) => Span {
                start,
                end: inner.span.end,
            },
            _ => span_of(inner),
        },
        DurationExprKind::Unary(_, operand) => Span {
            start,
            end: span_of(operand).end,
        },
        DurationExprKind::Binary(_, lhs, rhs) => Span {
            start: span_of(lhs).start,
            end: span_of(rhs).end,
        },
        _ => expr.span,
    }
}

fn evaluate(expr: &DurationExpr, steps: Steps) -> Result<f64, String> {
    Ok(match &expr.kind {
        DurationExprKind::Number(number) => number.value,
        DurationExprKind::Step => seconds(steps.step_ms),
        DurationExprKind::Range => seconds(steps.end_ms - steps.start_ms),
        DurationExprKind::Unary(UnaryOp::Plus, inner) => evaluate(inner, steps)?,
        DurationExprKind::Unary(UnaryOp::Minus, inner) => -evaluate(inner, steps)?,
        DurationExprKind::Extremum(Extremum::Min, a, b) => {
            float::min(evaluate(a, steps)?, evaluate(b, steps)?)
        }
        DurationExprKind::Extremum(Extremum::Max, a, b) => {
            float::max(evaluate(a, steps)?, evaluate(b, steps)?)
        }
        DurationExprKind::Paren(inner) => evaluate(inner, steps)?,
        DurationExprKind::Binary(op, a, b) => {
            let a = evaluate(a, steps)?;
            let b = evaluate(b, steps)?;
            binary(*op, a, b).map_err(|why| span(expr) + why)?
        }
    })
}

fn binary(op: BinaryOp, a: f64, b: f64) -> Result<f64, &'static str> {
    match op {
        BinaryOp::Add => Ok(a + b),
        BinaryOp::Sub => Ok(a - b),
        BinaryOp::Mul => Ok(a * b),
        BinaryOp::Div if b == 0.0 => Err("division by zero"),
        BinaryOp::Div => Ok(a / b),
        BinaryOp::Mod if b == 0.0 => Err("modulo by zero"),
        BinaryOp::Mod => Ok(a % b),
        BinaryOp::Pow => Ok(crate::math::pow(a, b)),
        _ => Err("unexpected duration expression operator"),
    }
}
