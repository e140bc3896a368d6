//! The printer: formats a syntax tree on one line.

use std::fmt::{self, Write};

use super::ast::{
    Aggregate, At, Binary, Cardinality, Duration, DurationExpr, DurationExprKind, Expr, ExprKind, Extremum,
    MatrixSelector, NumberLiteral, RangeExtension, Subquery, UnaryOp, VectorMatching, VectorSelector,
};
use super::duration;
use super::quote::write_quoted;
use crate::decimal::{General, Plain};
use varve_tsdb::labels::{METRIC_NAME, is_legacy_name};
use varve_tsdb::{MatchOp, Matcher};

type Out<'a> = &'a mut dyn Write;

/// Returns the text of an expression on one line. Parsing the text gives the same tree, except for the order of
/// matchers.
#[must_use]
pub fn print(expr: &Expr) -> String {
    let mut out = String::new();
    write_expr(&mut out, expr).expect("writing to a string cannot fail");
    out
}

/// Writes an expression. Fails only if `out` does.
pub(super) fn write_expr(out: Out<'_>, expr: &Expr) -> fmt::Result {
    match &expr.kind {
        ExprKind::Number(literal) => write_number(out, literal),
        ExprKind::String(bytes) => write_quoted(out, bytes),
        ExprKind::Vector(selector) => {
            write_selector(out, selector)?;
            write_at(out, selector.at)?;
            write_extension(out, selector.extension)?;
            write_offset(out, selector.offset.as_ref())
        }
        ExprKind::Matrix(matrix) => write_matrix(out, matrix),
        ExprKind::Subquery(subquery) => {
            write_expr(out, &subquery.expr)?;
            write_subquery_suffix(out, subquery)
        }
        ExprKind::Call(call) => {
            write!(out, "{}(", call.function.name)?;
            write_separated(out, &call.args, write_expr)?;
            out.write_char(')')
        }
        ExprKind::Aggregate(aggregate) => {
            write_aggregate_head(out, aggregate)?;
            out.write_char('(')?;
            if let Some(param) = &aggregate.param {
                write_expr(out, param)?;
                out.write_str(", ")?;
            }
            write_expr(out, &aggregate.expr)?;
            out.write_char(')')
        }
        ExprKind::Binary(binary) => write_binary(out, binary),
        ExprKind::Unary(unary) => {
            out.write_str(unary.op.as_str())?;
            write_expr(out, &unary.expr)
        }
        ExprKind::Paren(inner) => {
            out.write_char('(')?;
            write_expr(out, inner)?;
            out.write_char(')')
        }
    }
}

/// Writes a binary expression. Does not recurse into the left side.
pub(super) fn write_binary(out: Out<'_>, binary: &Binary) -> fmt::Result {
    let (first, links) = binary.chain();
    write_expr(out, first)?;
    for link in links {
        out.write_char(' ')?;
        write_operator(out, link)?;
        out.write_char(' ')?;
        write_expr(out, &link.rhs)?;
    }
    Ok(())
}

/// Writes the operator of a binary expression with its modifiers.
pub(super) fn write_operator(out: Out<'_>, binary: &Binary) -> fmt::Result {
    out.write_str(binary.op.as_str())?;
    if binary.return_bool {
        out.write_str(" bool")?;
    }
    match &binary.matching {
        Some(matching) => write_matching(out, matching),
        None => Ok(()),
    }
}

fn write_matching(out: Out<'_>, matching: &VectorMatching) -> fmt::Result {
    let group = match matching.cardinality {
        Cardinality::ManyToOne => Some("left"),
        Cardinality::OneToMany => Some("right"),
        Cardinality::OneToOne | Cardinality::ManyToMany => None,
    };
    if matching.on || !matching.labels.is_empty() || group.is_some() {
        out.write_str(if matching.on { " on (" } else { " ignoring (" })?;
        write_separated(out, &matching.labels, write_label)?;
        out.write_char(')')?;
    }
    if let Some(side) = group {
        write!(out, " group_{side} (")?;
        write_separated(out, &matching.include, write_label)?;
        out.write_char(')')?;
    }
    match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left == right => write_fill(out, "fill", left),
        (left, right) => {
            left.map_or(Ok(()), |value| write_fill(out, "fill_left", value))?;
            right.map_or(Ok(()), |value| write_fill(out, "fill_right", value))
        }
    }
}

fn write_fill(out: Out<'_>, name: &str, value: f64) -> fmt::Result {
    write!(out, " {name} (")?;
    write!(out, "{}", General(value))?;
    out.write_char(')')
}

/// Writes an aggregation up to the opening parenthesis of its arguments.
pub(super) fn write_aggregate_head(out: Out<'_>, aggregate: &Aggregate) -> fmt::Result {
    out.write_str(aggregate.op.as_str())?;
    if !aggregate.without && aggregate.grouping.is_empty() {
        return Ok(());
    }
    out.write_str(if aggregate.without { " without (" } else { " by (" })?;
    write_separated(out, &aggregate.grouping, write_label)?;
    out.write_str(") ")
}

fn write_label(out: Out<'_>, name: &String) -> fmt::Result {
    if is_legacy_name(name) { out.write_str(name) } else { write_quoted(out, name.as_bytes()) }
}

/// Writes a selector without its modifiers. Matchers are sorted by their text.
fn write_selector(out: Out<'_>, selector: &VectorSelector) -> fmt::Result {
    out.write_str(&selector.name)?;
    let is_name = |matcher: &&Matcher| {
        let name_of_metric = matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
        name_of_metric && matcher.value() == selector.name && !selector.name.is_empty()
    };
    let mut matchers: Vec<_> = selector.matchers.iter().filter(|m| !is_name(m)).map(matcher_text).collect();
    if matchers.is_empty() {
        // The second argument of `info` may have no matchers, and is valid only with braces.
        return if selector.name.is_empty() { out.write_str("{}") } else { Ok(()) };
    }
    matchers.sort_unstable();
    out.write_char('{')?;
    for (at, matcher) in matchers.iter().enumerate() {
        out.write_str(if at == 0 { "" } else { "," })?;
        out.write_str(matcher)?;
    }
    out.write_char('}')
}

fn matcher_text(matcher: &Matcher) -> String {
    let mut text = String::with_capacity(matcher.name().len() + matcher.value().len() + 4);
    let name = match is_legacy_name(matcher.name()) {
        true => text.write_str(matcher.name()),
        false => write_quoted(&mut text, matcher.name().as_bytes()),
    };
    name.and_then(|()| text.write_str(matcher.op().as_str()))
        .and_then(|()| write_quoted(&mut text, matcher.value_bytes()))
        .expect("writing to a string cannot fail");
    text
}

fn write_matrix(out: Out<'_>, matrix: &MatrixSelector) -> fmt::Result {
    let ExprKind::Vector(selector) = &matrix.selector.kind else {
        return write_expr(out, &matrix.selector);
    };
    write_selector(out, selector)?;
    out.write_char('[')?;
    write_duration(out, &matrix.range)?;
    out.write_char(']')?;
    write_extension(out, selector.extension)?;
    write_at(out, selector.at)?;
    write_offset(out, selector.offset.as_ref())
}

/// Writes the part of a subquery after its expression.
pub(super) fn write_subquery_suffix(out: Out<'_>, subquery: &Subquery) -> fmt::Result {
    out.write_char('[')?;
    write_duration(out, &subquery.range)?;
    out.write_char(':')?;
    if let Some(step) = &subquery.step {
        write_duration(out, step)?;
    }
    out.write_char(']')?;
    write_at(out, subquery.at)?;
    write_offset(out, subquery.offset.as_ref())
}

fn write_at(out: Out<'_>, at: Option<At>) -> fmt::Result {
    match at {
        None => Ok(()),
        Some(At::Start) => out.write_str(" @ start()"),
        Some(At::End) => out.write_str(" @ end()"),
        Some(At::Timestamp(milliseconds)) => write!(out, " @ {:.3}", milliseconds as f64 / 1000.0),
    }
}

fn write_extension(out: Out<'_>, extension: Option<RangeExtension>) -> fmt::Result {
    out.write_str(match extension {
        None => "",
        Some(RangeExtension::Anchored) => " anchored",
        Some(RangeExtension::Smoothed) => " smoothed",
    })
}

fn write_offset(out: Out<'_>, offset: Option<&Duration>) -> fmt::Result {
    let Some(offset) = offset else { return Ok(()) };
    out.write_str(" offset ")?;
    write_duration(out, offset)
}

fn write_duration(out: Out<'_>, duration: &Duration) -> fmt::Result {
    match duration {
        Duration::Fixed(milliseconds) => duration::write(out, *milliseconds),
        Duration::Expr(expr) => write_duration_expr(out, expr),
    }
}

fn write_duration_expr(out: Out<'_>, expr: &DurationExpr) -> fmt::Result {
    match &expr.kind {
        DurationExprKind::Number(literal) => write_number(out, literal),
        DurationExprKind::Step => out.write_str("step()"),
        DurationExprKind::Range => out.write_str("range()"),
        DurationExprKind::Unary(op, operand) => {
            out.write_str(if *op == UnaryOp::Minus { "-" } else { "" })?;
            write_duration_expr(out, operand)
        }
        DurationExprKind::Binary(op, lhs, rhs) => {
            write_duration_expr(out, lhs)?;
            write!(out, " {} ", op.as_str())?;
            write_duration_expr(out, rhs)
        }
        DurationExprKind::Extremum(extremum, lhs, rhs) => {
            out.write_str(if *extremum == Extremum::Min { "min_of(" } else { "max_of(" })?;
            write_duration_expr(out, lhs)?;
            out.write_str(", ")?;
            write_duration_expr(out, rhs)?;
            out.write_char(')')
        }
        DurationExprKind::Paren(inner) => {
            out.write_char('(')?;
            write_duration_expr(out, inner)?;
            out.write_char(')')
        }
    }
}

fn write_number(out: Out<'_>, literal: &NumberLiteral) -> fmt::Result {
    match literal.is_duration {
        // Rounded: Prometheus truncates to milliseconds, and prints 1009ms as 1s8ms.
        true => duration::write(out, (literal.value * 1e3).round() as i64),
        false => write!(out, "{}", Plain(literal.value)),
    }
}

fn write_separated<T>(out: Out<'_>, items: &[T], write: impl Fn(Out<'_>, &T) -> fmt::Result) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.write_str(", ")?;
        }
        write(out, item)?;
    }
    Ok(())
}
