//! The printer: formats a syntax tree on one line.

pub(crate) mod pretty;
pub(crate) mod text;

use std::fmt::{self, Display, Formatter, Write};

use crate::ast::{
    Aggregate, At, Binary, Cardinality, Duration, DurationExpr, DurationExprKind, Expr, ExprKind,
    Extremum, NumberLiteral, RangeExtension, Subquery, UnaryOp, VectorMatching, VectorSelector,
};
use crate::decimal::{General, Plain};
use crate::duration;
use crate::quote::write_quoted;
use varve_model::labels::{METRIC_NAME, is_legacy_name};
use varve_model::{MatchOp, Matcher};

/// Returns the text of an expression on one line. Parsing the text gives the same tree, except for
/// the order of matchers.
#[must_use]
pub fn print(expr: &Expr) -> String {
    expr.to_string()
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Number(literal) => literal.fmt(f),
            ExprKind::String(bytes) => write_quoted(f, bytes),
            ExprKind::Vector(selector) => {
                write_selector(f, selector)?;
                write_at(f, selector.at)?;
                write_extension(f, selector.extension)?;
                write_offset(f, selector.offset.as_ref())
            }
            ExprKind::Matrix(matrix) => {
                let ExprKind::Vector(selector) = &matrix.selector.kind else {
                    return matrix.selector.fmt(f);
                };
                write_selector(f, selector)?;
                write!(f, "[{}]", matrix.range)?;
                write_extension(f, selector.extension)?;
                write_at(f, selector.at)?;
                write_offset(f, selector.offset.as_ref())
            }
            ExprKind::Subquery(subquery) => {
                subquery.expr.fmt(f)?;
                write_subquery_suffix(f, subquery)
            }
            ExprKind::Call(call) => {
                write!(f, "{}({})", call.function.name, Separated(call.args.iter()))
            }
            ExprKind::Aggregate(aggregate) => {
                write_aggregate_head(f, aggregate)?;
                match &aggregate.param {
                    Some(param) => write!(f, "({param}, {})", aggregate.expr),
                    None => write!(f, "({})", aggregate.expr),
                }
            }
            ExprKind::Binary(binary) => binary.fmt(f),
            ExprKind::Unary(unary) => write!(f, "{}{}", unary.op.as_str(), unary.expr),
            ExprKind::Paren(inner) => write!(f, "({inner})"),
        }
    }
}

/// Does not recurse into the left side.
impl Display for Binary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (first, links) = self.chain();
        first.fmt(f)?;
        for link in links {
            f.write_char(' ')?;
            write_operator(f, link)?;
            write!(f, " {}", link.rhs)?;
        }
        Ok(())
    }
}

/// Writes the operator of a binary expression with its modifiers.
pub(crate) fn write_operator(out: &mut dyn Write, binary: &Binary) -> fmt::Result {
    out.write_str(binary.op.as_str())?;
    if binary.return_bool {
        out.write_str(" bool")?;
    }
    match &binary.matching {
        Some(matching) => write_matching(out, matching),
        None => Ok(()),
    }
}

fn write_matching(out: &mut dyn Write, matching: &VectorMatching) -> fmt::Result {
    let group = match matching.cardinality {
        Cardinality::ManyToOne => Some("left"),
        Cardinality::OneToMany => Some("right"),
        Cardinality::OneToOne | Cardinality::ManyToMany => None,
    };
    if matching.on || !matching.labels.is_empty() || group.is_some() {
        write!(
            out,
            " {} ({})",
            if matching.on { "on" } else { "ignoring" },
            labels(&matching.labels)
        )?;
    }
    if let Some(side) = group {
        write!(out, " group_{side} ({})", labels(&matching.include))?;
    }
    let mut fill = |name, value| write!(out, " {name} ({})", General(value));
    match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left == right => fill("fill", left),
        (left, right) => {
            left.map_or(Ok(()), |value| fill("fill_left", value))?;
            right.map_or(Ok(()), |value| fill("fill_right", value))
        }
    }
}

/// Writes an aggregation up to the opening parenthesis of its arguments.
pub(crate) fn write_aggregate_head(out: &mut dyn Write, aggregate: &Aggregate) -> fmt::Result {
    out.write_str(aggregate.op.as_str())?;
    if !aggregate.without && aggregate.grouping.is_empty() {
        return Ok(());
    }
    write!(
        out,
        " {} ({}) ",
        if aggregate.without { "without" } else { "by" },
        labels(&aggregate.grouping)
    )
}

/// Returns the text of label names.
fn labels(names: &[String]) -> impl Display {
    Separated(names.iter().map(|name| Name(name)))
}

/// Returns a label name, in quotes if necessary.
#[must_use]
pub fn print_label(name: &str) -> String {
    Name(name).to_string()
}

/// Returns matchers as a selector without a name before the braces, in their order:
/// `{a="b", c!="d"}`.
#[must_use]
pub fn print_matchers<'a>(matchers: impl IntoIterator<Item = &'a Matcher>) -> String {
    format!(
        "{{{}}}",
        matchers
            .into_iter()
            .map(matcher_text)
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// A label name, in quotes if necessary.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_legacy_name(self.0) {
            f.write_str(self.0)
        } else {
            write_quoted(f, self.0.as_bytes())
        }
    }
}

/// Writes a selector without its modifiers. Matchers are sorted by their text.
fn write_selector(out: &mut dyn Write, selector: &VectorSelector) -> fmt::Result {
    out.write_str(&selector.name)?;
    let mut matchers = Vec::with_capacity(selector.matchers.len());
    for matcher in &selector.matchers {
        let is_written_name = matcher.name() == METRIC_NAME
            && matcher.op() == MatchOp::Equal
            && matcher.value() == selector.name
            && !selector.name.is_empty();
        if !is_written_name {
            matchers.push(matcher_text(matcher));
        }
    }
    if matchers.is_empty() {
        // The second argument of `info` may have no matchers, and is valid only with braces.
        return if selector.name.is_empty() {
            out.write_str("{}")
        } else {
            Ok(())
        };
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
    let mut text = format!("{}{}", Name(matcher.name()), matcher.op().as_str());
    write_quoted(&mut text, matcher.value_bytes()).expect("writing to a string cannot fail");
    text
}

/// Writes the part of a subquery after its expression.
pub(crate) fn write_subquery_suffix(out: &mut dyn Write, subquery: &Subquery) -> fmt::Result {
    match &subquery.step {
        Some(step) => write!(out, "[{}:{step}]", subquery.range)?,
        None => write!(out, "[{}:]", subquery.range)?,
    }
    write_at(out, subquery.at)?;
    write_offset(out, subquery.offset.as_ref())
}

fn write_at(out: &mut dyn Write, at: Option<At>) -> fmt::Result {
    match at {
        None => Ok(()),
        Some(At::Start) => out.write_str(" @ start()"),
        Some(At::End) => out.write_str(" @ end()"),
        Some(At::Timestamp(milliseconds)) => write!(out, " @ {:.3}", milliseconds as f64 / 1000.0),
    }
}

fn write_extension(out: &mut dyn Write, extension: Option<RangeExtension>) -> fmt::Result {
    out.write_str(match extension {
        None => "",
        Some(RangeExtension::Anchored) => " anchored",
        Some(RangeExtension::Smoothed) => " smoothed",
    })
}

fn write_offset(out: &mut dyn Write, offset: Option<&Duration>) -> fmt::Result {
    offset.map_or(Ok(()), |offset| write!(out, " offset {offset}"))
}

impl Display for Duration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(milliseconds) => duration::write(f, *milliseconds),
            Self::Expr(expr) => expr.fmt(f),
        }
    }
}

impl Display for DurationExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DurationExprKind::Number(literal) => literal.fmt(f),
            DurationExprKind::Step => f.write_str("step()"),
            DurationExprKind::Range => f.write_str("range()"),
            DurationExprKind::Unary(UnaryOp::Minus, operand) => write!(f, "-{operand}"),
            DurationExprKind::Unary(UnaryOp::Plus, operand) => operand.fmt(f),
            DurationExprKind::Binary(op, lhs, rhs) => write!(f, "{lhs} {} {rhs}", op.as_str()),
            DurationExprKind::Extremum(Extremum::Min, lhs, rhs) => {
                write!(f, "min_of({lhs}, {rhs})")
            }
            DurationExprKind::Extremum(Extremum::Max, lhs, rhs) => {
                write!(f, "max_of({lhs}, {rhs})")
            }
            DurationExprKind::Paren(inner) => write!(f, "({inner})"),
        }
    }
}

impl Display for NumberLiteral {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_duration {
            // Rounded: Prometheus truncates to milliseconds, and prints 1009ms as 1s8ms.
            duration::write(f, (self.value * 1e3).round() as i64)
        } else {
            Plain(self.value).fmt(f)
        }
    }
}

/// Items with commas between them.
struct Separated<I>(I);

impl<I: Iterator<Item: Display> + Clone> Display for Separated<I> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, item) in self.0.clone().enumerate() {
            write!(f, "{}{item}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_selector;

    #[test]
    fn printed_matchers_parse() {
        for text in [
            "{a=\"b\"}",
            "{__name__=~\"a.*\", \"b.c\"!=\"\\\"\\\\\\n\\x01é\"}",
        ] {
            let matchers = parse_selector(text).unwrap();
            assert_eq!(print_matchers(&matchers), text);
        }
    }
}
