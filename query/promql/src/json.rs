//! The syntax tree as JSON, in the format of Prometheus' `parse_query`.
//!
//! All fields of Prometheus 3.16 are written, also if the query does not use them. Keys are sorted.

use std::fmt::{self, Display, Formatter, Write};

use super::ast::{
    Aggregate, At, Binary, Call, Cardinality, Duration, DurationExpr, DurationExprKind, Expr,
    ExprKind, Extremum, NumberLiteral, RangeExtension, Subquery, Unary, ValueType, VectorMatching,
    VectorSelector,
};
use super::print::text::Text;
use crate::decimal::Plain;
use crate::deep_stack;
use crate::error::Result;
use varve_context::{Charge, QueryContext};
use varve_model::Matcher;

/// Returns the syntax tree of an expression as JSON, as `parse_query` does.
#[must_use]
pub fn to_json(expr: &Expr) -> String {
    to_json_within(&QueryContext::unbounded(), expr)
        .map_or_else(|_unbounded| String::new(), |(text, _)| text)
}

/// Like [`to_json`], within the deadline and the memory limit of a request. Also returns the charge
/// for the text.
///
/// # Errors
/// [`Error::Context`](crate::Error::Context). [`Error::Thread`](crate::Error::Thread) for deep
/// expressions.
pub fn to_json_within(ctx: &QueryContext, expr: &Expr) -> Result<(String, Charge)> {
    let written = deep_stack::run(ctx, deep_stack::is_deep(expr), || {
        Text::build(usize::MAX, ctx, |out| write!(out, "{}", Json(expr)))
    })??;
    // Without a maximum size, writing fails only because of an interrupt, which is an error above.
    Ok(written.unwrap_or_else(|| (String::new(), ctx.charge())))
}

/// A part of the tree, which displays as JSON.
struct Json<'a, T: ?Sized>(&'a T);

impl Display for Json<'_, Expr> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ExprKind::Number(literal) => {
                write!(
                    f,
                    "{{\"type\":\"numberLiteral\",\"val\":{}}}",
                    Quoted(literal.value)
                )
            }
            ExprKind::String(bytes) => {
                write!(f, "{{\"type\":\"stringLiteral\",\"val\":{}}}", Bytes(bytes))
            }
            ExprKind::Vector(selector) => {
                f.write_char('{')?;
                write_selector(f, selector, None)?;
                f.write_str(",\"type\":\"vectorSelector\"}")
            }
            ExprKind::Matrix(matrix) => {
                let ExprKind::Vector(selector) = &matrix.selector.kind else {
                    return Json(&*matrix.selector).fmt(f);
                };
                f.write_char('{')?;
                write_selector(f, selector, Some(&matrix.range))?;
                f.write_str(",\"type\":\"matrixSelector\"}")
            }
            ExprKind::Subquery(Subquery {
                expr,
                range,
                step,
                offset,
                at,
            }) => {
                write!(f, "{{\"expr\":{}", Json(&**expr))?;
                write_duration(f, "offset", offset.as_ref())?;
                write_duration(f, "range", Some(range))?;
                write_duration(f, "step", step.as_ref())?;
                write_at(f, *at)?;
                f.write_str(",\"type\":\"subquery\"}")
            }
            ExprKind::Call(Call { function, args }) => {
                let name = function.name;
                let variadic = function.variadic;
                let types = Json(function.args);
                let returns = Json(&function.return_type);
                write!(
                    f,
                    "{{\"args\":{},\"func\":{{\"argTypes\":{types},\"name\":\"{name}\"",
                    Json(&args[..])
                )?;
                write!(
                    f,
                    ",\"returnType\":{returns},\"variadic\":{variadic}}},\"type\":\"call\"}}"
                )
            }
            ExprKind::Aggregate(Aggregate {
                op,
                expr,
                param,
                grouping,
                without,
            }) => {
                write!(
                    f,
                    "{{\"expr\":{},\"grouping\":{}",
                    Json(&**expr),
                    Json(&grouping[..])
                )?;
                write!(
                    f,
                    ",\"op\":\"{}\",\"param\":{}",
                    op.as_str(),
                    Json(&param.as_deref())
                )?;
                write!(f, ",\"type\":\"aggregation\",\"without\":{without}}}")
            }
            ExprKind::Binary(binary) => write_chain(f, binary),
            ExprKind::Unary(Unary { op, expr }) => {
                write!(
                    f,
                    "{{\"expr\":{},\"op\":\"{}\",\"type\":\"unaryExpr\"}}",
                    Json(&**expr),
                    op.as_str()
                )
            }
            ExprKind::Paren(inner) => {
                write!(f, "{{\"expr\":{},\"type\":\"parenExpr\"}}", Json(&**inner))
            }
        }
    }
}

/// Writes the fields that instant and range selectors share. Writes the range, if any, between
/// them.
fn write_selector(
    f: &mut Formatter<'_>,
    selector: &VectorSelector,
    range: Option<&Duration>,
) -> fmt::Result {
    let VectorSelector {
        name,
        matchers,
        offset,
        at,
        extension,
    } = selector;
    let is_anchored = *extension == Some(RangeExtension::Anchored);
    let matchers = Json(&matchers[..]);
    let name = Json(name);
    write!(
        f,
        "\"anchored\":{is_anchored},\"matchers\":{matchers},\"name\":{name}"
    )?;
    write_duration(f, "offset", offset.as_ref())?;
    if range.is_some() {
        write_duration(f, "range", range)?;
    }
    write!(
        f,
        ",\"smoothed\":{}",
        *extension == Some(RangeExtension::Smoothed)
    )?;
    write_at(f, *at)
}

/// Writes a chain of operators without recursion: the starts of the links from the outside in, then
/// their ends from the inside out.
fn write_chain(f: &mut Formatter<'_>, binary: &Binary) -> fmt::Result {
    let (first, links) = binary.chain();
    for link in links.iter().rev() {
        write!(f, "{{\"bool\":{},\"lhs\":", link.return_bool)?;
    }
    Json(first).fmt(f)?;
    for Binary {
        matching, op, rhs, ..
    } in links
    {
        let matching = Json(&matching.as_ref());
        let op = Bytes(op.as_str().as_bytes());
        write!(
            f,
            ",\"matching\":{matching},\"op\":{op},\"rhs\":{},\"type\":\"binaryExpr\"}}",
            Json(&**rhs)
        )?;
    }
    Ok(())
}

impl Display for Json<'_, VectorMatching> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let VectorMatching {
            cardinality,
            labels,
            on,
            include,
            fill_left,
            fill_right,
        } = self.0;
        let cardinality = match cardinality {
            Cardinality::OneToOne => "one-to-one",
            Cardinality::ManyToOne => "many-to-one",
            Cardinality::OneToMany => "one-to-many",
            Cardinality::ManyToMany => "many-to-many",
        };
        let [lhs, rhs] = [fill_left.as_ref(), fill_right.as_ref()];
        let lhs = Json(&lhs);
        let rhs = Json(&rhs);
        write!(
            f,
            "{{\"card\":\"{cardinality}\",\"fillValues\":{{\"lhs\":{lhs},\"rhs\":{rhs}}}"
        )?;
        write!(
            f,
            ",\"include\":{},\"labels\":{},\"on\":{on}}}",
            Json(&include[..]),
            Json(&labels[..])
        )
    }
}

/// A fill value: a JSON number if it is finite.
impl Display for Json<'_, f64> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() {
            Plain(*self.0).fmt(f)
        } else {
            Quoted(*self.0).fmt(f)
        }
    }
}

impl Display for Json<'_, Matcher> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = Bytes(self.0.name().as_bytes());
        let value = Bytes(self.0.value_bytes());
        write!(
            f,
            "{{\"name\":{name},\"type\":\"{}\",\"value\":{value}}}",
            self.0.op().as_str()
        )
    }
}

/// Writes a duration in milliseconds after a comma. Writes a duration expression as 0 and the
/// expression.
fn write_duration(f: &mut Formatter<'_>, name: &str, duration: Option<&Duration>) -> fmt::Result {
    let (milliseconds, expr) = match duration {
        Some(Duration::Fixed(milliseconds)) => (*milliseconds, None),
        Some(Duration::Expr(expr)) => (0, Some(&**expr)),
        None => (0, None),
    };
    write!(
        f,
        ",\"{name}\":{milliseconds},\"{name}Expr\":{}",
        Json(&expr)
    )
}

impl Display for Json<'_, DurationExpr> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_duration_expr(f, self.0, false)
    }
}

fn write_duration_expr(f: &mut Formatter<'_>, expr: &DurationExpr, wrapped: bool) -> fmt::Result {
    let (op, lhs, rhs) = match &expr.kind {
        DurationExprKind::Number(literal) if wrapped => {
            // In Prometheus' tree, only operations have parentheses, so it turns a number in
            // parentheses into an operation.
            let number = Json(literal);
            return write!(
                f,
                "{{\"lhs\":null,\"op\":\"+\",\"rhs\":{number},\"type\":\"durationExpr\",\"wrapped\":true}}"
            );
        }
        DurationExprKind::Number(literal) => return Json(literal).fmt(f),
        DurationExprKind::Paren(inner) => return write_duration_expr(f, inner, true),
        DurationExprKind::Step => ("step", None, None),
        DurationExprKind::Range => ("range", None, None),
        DurationExprKind::Unary(op, operand) => (op.as_str(), None, Some(&**operand)),
        DurationExprKind::Binary(op, lhs, rhs) => (op.as_str(), Some(&**lhs), Some(&**rhs)),
        DurationExprKind::Extremum(Extremum::Min, lhs, rhs) => {
            ("min_of", Some(&**lhs), Some(&**rhs))
        }
        DurationExprKind::Extremum(Extremum::Max, lhs, rhs) => {
            ("max_of", Some(&**lhs), Some(&**rhs))
        }
    };
    let lhs = Json(&lhs);
    let rhs = Json(&rhs);
    write!(
        f,
        "{{\"lhs\":{lhs},\"op\":\"{op}\",\"rhs\":{rhs},\"type\":\"durationExpr\",\"wrapped\":{wrapped}}}"
    )
}

impl Display for Json<'_, NumberLiteral> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let NumberLiteral { value, is_duration } = *self.0;
        write!(
            f,
            "{{\"duration\":{is_duration},\"type\":\"numberLiteral\",\"val\":{}}}",
            Quoted(value)
        )
    }
}

fn write_at(f: &mut Formatter<'_>, at: Option<At>) -> fmt::Result {
    let (edge, timestamp) = match at {
        None => ("null", None),
        Some(At::Start) => ("\"start\"", None),
        Some(At::End) => ("\"end\"", None),
        Some(At::Timestamp(milliseconds)) => ("null", Some(milliseconds)),
    };
    match timestamp {
        Some(milliseconds) => write!(f, ",\"startOrEnd\":{edge},\"timestamp\":{milliseconds}"),
        None => write!(f, ",\"startOrEnd\":{edge},\"timestamp\":null"),
    }
}

impl Display for Json<'_, ValueType> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.as_str())
    }
}

impl Display for Json<'_, String> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Bytes(self.0.as_bytes()).fmt(f)
    }
}

impl<'a, T> Display for Json<'_, Option<&'a T>>
where
    Json<'a, T>: Display,
{
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(part) => Json(*part).fmt(f),
            None => f.write_str("null"),
        }
    }
}

impl<T> Display for Json<'_, [T]>
where
    for<'a> Json<'a, T>: Display,
{
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (at, item) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { "," } else { "" }, Json(item))?;
        }
        f.write_char(']')
    }
}

/// A number as a string, because it may be infinite.
struct Quoted(f64);

impl Display for Quoted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Plain(self.0))
    }
}

/// A string. Each byte that is not valid UTF-8 is replaced by a replacement character.
struct Bytes<'a>(&'a [u8]);

impl Display for Bytes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    // Prometheus' encoder escapes the last three characters for browsers.
                    '\0'..='\x1f' | '<' | '>' | '&' => write!(f, "\\u{:04x}", u32::from(c))?,
                    _ => f.write_char(c)?,
                }
            }
            chunk
                .invalid()
                .iter()
                .try_for_each(|_| f.write_char(char::REPLACEMENT_CHARACTER))?;
        }
        f.write_char('"')
    }
}
