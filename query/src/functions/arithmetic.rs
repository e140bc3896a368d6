//! Arithmetic and comparison operators on columns of floats.

use varve_promql::ast::BinaryOp;

use crate::math;

/// Returns `true` if the metric name does not describe the result of an operator, so that it is
/// dropped.
pub(crate) fn drops_metric_name(op: BinaryOp) -> bool {
    use BinaryOp::{Add, Atan2, Div, Mod, Mul, Pow, Sub};
    matches!(op, Add | Sub | Mul | Div | Mod | Pow | Atan2)
}

/// Returns the predicate of a comparison operator.
pub(crate) fn comparison(op: BinaryOp) -> Option<fn(f64, f64) -> bool> {
    match op {
        BinaryOp::Eq => Some(|a, b| a == b),
        BinaryOp::Ne => Some(|a, b| a != b),
        BinaryOp::Gt => Some(|a, b| a > b),
        BinaryOp::Lt => Some(|a, b| a < b),
        BinaryOp::Ge => Some(|a, b| a >= b),
        BinaryOp::Le => Some(|a, b| a <= b),
        _ => None,
    }
}

/// Applies an operator to two scalars at every step, and stores the results in `lhs`. Comparisons
/// return 0 or 1.
pub(crate) fn apply_to_scalars(op: BinaryOp, lhs: &mut [f64], rhs: &[f64]) {
    match comparison(op) {
        Some(compare) => zip(lhs, rhs, false, |a, b| f64::from(u8::from(compare(a, b)))),
        None => apply(op, lhs, rhs, false),
    }
}

/// Applies an arithmetic operator to two columns, and stores the results in `column`. `column` is
/// the left operand unless `swapped`.
pub(crate) fn apply(op: BinaryOp, column: &mut [f64], other: &[f64], swapped: bool) {
    match op {
        BinaryOp::Add => zip(column, other, swapped, |a, b| a + b),
        BinaryOp::Sub => zip(column, other, swapped, |a, b| a - b),
        BinaryOp::Mul => zip(column, other, swapped, |a, b| a * b),
        BinaryOp::Div => zip(column, other, swapped, |a, b| a / b),
        BinaryOp::Mod => zip(column, other, swapped, |a, b| a % b),
        BinaryOp::Pow => zip(column, other, swapped, math::pow),
        BinaryOp::Atan2 => zip(column, other, swapped, math::atan2),
        _ => debug_assert!(false, "{op:?} is not arithmetic"),
    }
}

#[inline]
fn zip(column: &mut [f64], other: &[f64], swapped: bool, op: impl Fn(f64, f64) -> f64) {
    let pairs = column.iter_mut().zip(other);
    if swapped {
        for (b, &a) in pairs {
            *b = op(a, *b);
        }
    } else {
        for (a, &b) in pairs {
            *a = op(*a, b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_follow_ieee_754() {
        let check = |op, a: f64, b: f64, expect: f64| {
            let mut left = [a];
            let mut right = [b];
            apply_to_scalars(op, &mut left, &[b]);
            assert!(
                left[0] == expect || (left[0].is_nan() && expect.is_nan()),
                "{op:?}: {}",
                left[0]
            );
            if comparison(op).is_none() {
                apply(op, &mut right, &[a], true);
                assert_eq!(left[0].to_bits(), right[0].to_bits(), "{op:?} swapped");
            }
        };
        check(BinaryOp::Sub, 1.0, 3.0, -2.0);
        check(BinaryOp::Div, 1.0, 0.0, f64::INFINITY);
        check(BinaryOp::Mod, -7.5, 2.0, -1.5);
        check(BinaryOp::Mod, 1.0, 0.0, f64::NAN);
        check(BinaryOp::Pow, 2.0, -1.0, 0.5);
        check(BinaryOp::Atan2, 1.0, 0.0, std::f64::consts::FRAC_PI_2);
        check(BinaryOp::Eq, f64::NAN, f64::NAN, 0.0);
        check(BinaryOp::Ne, f64::NAN, f64::NAN, 1.0);
        check(BinaryOp::Ge, 2.0, 2.0, 1.0);
    }
}
