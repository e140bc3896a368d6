//! Durations that are computed from the times of the query.

use crate::float;
use crate::promql::ast::{BinaryOp, Duration, DurationExpr, DurationExprKind, Extremum, UnaryOp};

use super::build::QueryTimes;

/// Durations at and beyond this many seconds do not fit Prometheus' nanoseconds.
const DURATION_MAX_SECONDS: f64 = (1u64 << 63) as f64 / 1e9;

/// Resolves a range or a step, which must be positive.
///
/// # Errors
/// A text that says why there is no such duration, in Prometheus' words.
pub(super) fn positive(duration: &Duration, times: &QueryTimes) -> Result<i64, String> {
    match duration {
        Duration::Fixed(duration_ms) => Ok(*duration_ms),
        Duration::Expr(expr) => resolve(expr, times, false),
    }
}

/// Resolves an offset, which may be negative.
///
/// # Errors
/// As [`positive`].
pub(super) fn signed(duration: &Duration, times: &QueryTimes) -> Result<i64, String> {
    match duration {
        Duration::Fixed(duration_ms) => Ok(*duration_ms),
        Duration::Expr(expr) => resolve(expr, times, true),
    }
}

/// Returns milliseconds as seconds, with the rounding of Go's `Duration.Seconds`.
pub(crate) fn seconds(duration_ms: i64) -> f64 {
    (duration_ms / 1000) as f64 + (duration_ms % 1000 * 1_000_000) as f64 / 1e9
}

fn resolve(expr: &DurationExpr, times: &QueryTimes, negative: bool) -> Result<i64, String> {
    let value = evaluate(expr, times)?;
    let fail = |why: &str| Err(place(expr) + why);
    if !value.is_finite() {
        return fail("duration is NaN or infinite");
    }
    if value <= 0.0 && !negative {
        return fail("duration must be greater than 0");
    }
    if value.abs() > DURATION_MAX_SECONDS {
        return fail("duration is out of range");
    }
    Ok((value * 1000.0) as i64)
}

/// Prints where an expression stands: its first byte and the one past its last, as Prometheus does here.
fn place(expr: &DurationExpr) -> String {
    format!("{}:{}: ", expr.span.start, expr.span.end)
}

fn evaluate(expr: &DurationExpr, times: &QueryTimes) -> Result<f64, String> {
    Ok(match &expr.kind {
        DurationExprKind::Number(number) => number.value,
        DurationExprKind::Step => seconds(times.step_ms),
        DurationExprKind::Range => seconds(times.end_ms - times.start_ms),
        DurationExprKind::Unary(UnaryOp::Plus, inner) => evaluate(inner, times)?,
        DurationExprKind::Unary(UnaryOp::Minus, inner) => -evaluate(inner, times)?,
        DurationExprKind::Extremum(Extremum::Min, a, b) => float::min(evaluate(a, times)?, evaluate(b, times)?),
        DurationExprKind::Extremum(Extremum::Max, a, b) => float::max(evaluate(a, times)?, evaluate(b, times)?),
        DurationExprKind::Paren(inner) => evaluate(inner, times)?,
        DurationExprKind::Binary(op, a, b) => {
            let (a, b) = (evaluate(a, times)?, evaluate(b, times)?);
            binary(*op, a, b).map_err(|why| place(expr) + why)?
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
