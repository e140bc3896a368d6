//! The syntax tree as JSON, in the format of Prometheus' `parse_query`.
//!
//! All fields of Prometheus 3.16 are written, also if the query does not use them. Keys are sorted.

use std::fmt::{self, Write};

use super::ast::{
    Aggregate, At, Binary, Call, Cardinality, Duration, DurationExpr, DurationExprKind, Expr, ExprKind, Extremum,
    MatrixSelector, NumberLiteral, RangeExtension, Subquery, Unary, VectorMatching, VectorSelector,
};
use super::text::Text;
use crate::decimal::Plain;
use crate::deep_stack;
use crate::error::Result;
use varve_tsdb::context::Charge;
use varve_tsdb::{Matcher, QueryContext};

/// Returns the syntax tree of an expression as JSON, as `parse_query` does.
#[must_use]
pub fn to_json(expr: &Expr) -> String {
    to_json_within(&QueryContext::unbounded(), expr).map_or_else(|_unbounded| String::new(), |(text, _)| text)
}

/// Like [`to_json`], within the deadline and the memory limit of a request. Also returns the charge for the text.
///
/// # Errors
/// [`Error::Limit`](crate::Error::Limit), and the interrupts of the request.
pub fn to_json_within(ctx: &QueryContext, expr: &Expr) -> Result<(String, Charge)> {
    let build = || Text::build(usize::MAX, ctx, |out| Json { out }.expr(expr));
    let written = deep_stack::run(ctx, deep_stack::is_deep(expr), build)??;
    // Without a maximum size, writing fails only because of an interrupt, which is an error above.
    Ok(written.unwrap_or_else(|| (String::new(), ctx.charge())))
}

struct Json<'o> {
    out: &'o mut Text,
}

impl Json<'_> {
    fn expr(&mut self, expr: &Expr) -> fmt::Result {
        match &expr.kind {
            ExprKind::Number(literal) => {
                self.out.write_str("{\"type\":\"numberLiteral\",\"val\":")?;
                self.number(literal.value)?;
                self.end()
            }
            ExprKind::String(bytes) => {
                self.out.write_str("{\"type\":\"stringLiteral\",\"val\":")?;
                self.string(bytes)?;
                self.end()
            }
            ExprKind::Vector(selector) => self.vector(selector),
            ExprKind::Matrix(matrix) => self.matrix(matrix),
            ExprKind::Subquery(subquery) => self.subquery(subquery),
            ExprKind::Call(call) => self.call(call),
            ExprKind::Aggregate(aggregate) => self.aggregate(aggregate),
            ExprKind::Binary(binary) => self.chain(binary),
            ExprKind::Unary(Unary { op, expr }) => {
                self.out.write_str("{\"expr\":")?;
                self.expr(expr)?;
                write!(self.out, ",\"op\":\"{}\",\"type\":\"unaryExpr\"}}", op.as_str())
            }
            ExprKind::Paren(inner) => {
                self.out.write_str("{\"expr\":")?;
                self.expr(inner)?;
                self.out.write_str(",\"type\":\"parenExpr\"}")
            }
        }
    }

    fn vector(&mut self, selector: &VectorSelector) -> fmt::Result {
        self.out.write_char('{')?;
        self.selector(selector, None)?;
        self.out.write_str(",\"type\":\"vectorSelector\"}")
    }

    fn matrix(&mut self, matrix: &MatrixSelector) -> fmt::Result {
        let ExprKind::Vector(selector) = &matrix.selector.kind else { return self.expr(&matrix.selector) };
        self.out.write_char('{')?;
        self.selector(selector, Some(&matrix.range))?;
        self.out.write_str(",\"type\":\"matrixSelector\"}")
    }

    /// Writes the fields that instant and range selectors share. Writes the range, if any, between them.
    fn selector(&mut self, selector: &VectorSelector, range: Option<&Duration>) -> fmt::Result {
        let is_anchored = selector.extension == Some(RangeExtension::Anchored);
        write!(self.out, "\"anchored\":{is_anchored},\"matchers\":")?;
        self.list(&selector.matchers, Self::matcher)?;
        self.out.write_str(",\"name\":")?;
        self.string(selector.name.as_bytes())?;
        self.out.write_char(',')?;
        self.duration("offset", selector.offset.as_ref())?;
        if range.is_some() {
            self.out.write_char(',')?;
            self.duration("range", range)?;
        }
        write!(self.out, ",\"smoothed\":{}", selector.extension == Some(RangeExtension::Smoothed))?;
        self.at(selector.at)
    }

    fn matcher(&mut self, matcher: &Matcher) -> fmt::Result {
        self.out.write_str("{\"name\":")?;
        self.string(matcher.name().as_bytes())?;
        write!(self.out, ",\"type\":\"{}\",\"value\":", matcher.op().as_str())?;
        self.string(matcher.value_bytes())?;
        self.end()
    }

    fn subquery(&mut self, subquery: &Subquery) -> fmt::Result {
        self.out.write_str("{\"expr\":")?;
        self.expr(&subquery.expr)?;
        self.out.write_char(',')?;
        self.duration("offset", subquery.offset.as_ref())?;
        self.out.write_char(',')?;
        self.duration("range", Some(&subquery.range))?;
        self.out.write_char(',')?;
        self.duration("step", subquery.step.as_ref())?;
        self.at(subquery.at)?;
        self.out.write_str(",\"type\":\"subquery\"}")
    }

    fn call(&mut self, call: &Call) -> fmt::Result {
        self.out.write_str("{\"args\":")?;
        self.list(&call.args, Self::expr)?;
        self.out.write_str(",\"func\":{\"argTypes\":")?;
        self.list(call.function.args, |json, arg| write!(json.out, "\"{}\"", arg.as_str()))?;
        let (name, returns) = (call.function.name, call.function.return_type.as_str());
        let variadic = call.function.variadic;
        write!(self.out, ",\"name\":\"{name}\",\"returnType\":\"{returns}\",\"variadic\":{variadic}}}")?;
        self.out.write_str(",\"type\":\"call\"}")
    }

    fn aggregate(&mut self, aggregate: &Aggregate) -> fmt::Result {
        self.out.write_str("{\"expr\":")?;
        self.expr(&aggregate.expr)?;
        self.out.write_str(",\"grouping\":")?;
        self.list(&aggregate.grouping, Self::label)?;
        write!(self.out, ",\"op\":\"{}\",\"param\":", aggregate.op.as_str())?;
        match &aggregate.param {
            Some(param) => self.expr(param)?,
            None => self.out.write_str("null")?,
        }
        write!(self.out, ",\"type\":\"aggregation\",\"without\":{}}}", aggregate.without)
    }

    /// Writes a chain of operators without recursion: the starts of the links from the outside in, then their ends from
    /// the inside out.
    fn chain(&mut self, binary: &Binary) -> fmt::Result {
        let (first, links) = binary.chain();
        for link in links.iter().rev() {
            write!(self.out, "{{\"bool\":{},\"lhs\":", link.return_bool)?;
        }
        self.expr(first)?;
        for link in links {
            self.out.write_str(",\"matching\":")?;
            match &link.matching {
                Some(matching) => self.matching(matching)?,
                None => self.out.write_str("null")?,
            }
            self.out.write_str(",\"op\":")?;
            self.string(link.op.as_str().as_bytes())?;
            self.out.write_str(",\"rhs\":")?;
            self.expr(&link.rhs)?;
            self.out.write_str(",\"type\":\"binaryExpr\"}")?;
        }
        Ok(())
    }

    fn matching(&mut self, matching: &VectorMatching) -> fmt::Result {
        let cardinality = match matching.cardinality {
            Cardinality::OneToOne => "one-to-one",
            Cardinality::ManyToOne => "many-to-one",
            Cardinality::OneToMany => "one-to-many",
            Cardinality::ManyToMany => "many-to-many",
        };
        write!(self.out, "{{\"card\":\"{cardinality}\",\"fillValues\":{{\"lhs\":")?;
        self.fill(matching.fill_left)?;
        self.out.write_str(",\"rhs\":")?;
        self.fill(matching.fill_right)?;
        self.out.write_str("},\"include\":")?;
        self.list(&matching.include, Self::label)?;
        self.out.write_str(",\"labels\":")?;
        self.list(&matching.labels, Self::label)?;
        write!(self.out, ",\"on\":{}}}", matching.on)
    }

    /// Writes a fill value, as a JSON number if it is finite.
    fn fill(&mut self, value: Option<f64>) -> fmt::Result {
        match value {
            Some(value) if value.is_finite() => write!(self.out, "{}", Plain(value)),
            Some(value) => self.number(value),
            None => self.out.write_str("null"),
        }
    }

    /// Writes a duration in milliseconds. Writes a duration expression as 0 and the expression.
    fn duration(&mut self, name: &str, duration: Option<&Duration>) -> fmt::Result {
        let milliseconds = match duration {
            Some(Duration::Fixed(milliseconds)) => *milliseconds,
            _ => 0,
        };
        write!(self.out, "\"{name}\":{milliseconds},\"{name}Expr\":")?;
        match duration {
            Some(Duration::Expr(expr)) => self.duration_expr(expr, false),
            _ => self.out.write_str("null"),
        }
    }

    fn duration_expr(&mut self, expr: &DurationExpr, wrapped: bool) -> fmt::Result {
        let (op, lhs, rhs): (_, Option<&DurationExpr>, Option<&DurationExpr>) = match &expr.kind {
            DurationExprKind::Number(literal) if wrapped => {
                // In Prometheus' tree, only operations have parentheses, so it turns a number in parentheses into an
                // operation.
                self.out.write_str("{\"lhs\":null,\"op\":\"+\",\"rhs\":")?;
                self.duration_number(literal)?;
                return self.out.write_str(",\"type\":\"durationExpr\",\"wrapped\":true}");
            }
            DurationExprKind::Number(literal) => return self.duration_number(literal),
            DurationExprKind::Paren(inner) => return self.duration_expr(inner, true),
            DurationExprKind::Step => ("step", None, None),
            DurationExprKind::Range => ("range", None, None),
            DurationExprKind::Unary(op, operand) => (op.as_str(), None, Some(operand)),
            DurationExprKind::Binary(op, lhs, rhs) => (op.as_str(), Some(lhs), Some(rhs)),
            DurationExprKind::Extremum(Extremum::Min, lhs, rhs) => ("min_of", Some(lhs), Some(rhs)),
            DurationExprKind::Extremum(Extremum::Max, lhs, rhs) => ("max_of", Some(lhs), Some(rhs)),
        };
        self.out.write_str("{\"lhs\":")?;
        self.optional_duration(lhs)?;
        write!(self.out, ",\"op\":\"{op}\",\"rhs\":")?;
        self.optional_duration(rhs)?;
        write!(self.out, ",\"type\":\"durationExpr\",\"wrapped\":{wrapped}}}")
    }

    fn optional_duration(&mut self, expr: Option<&DurationExpr>) -> fmt::Result {
        match expr {
            Some(expr) => self.duration_expr(expr, false),
            None => self.out.write_str("null"),
        }
    }

    fn duration_number(&mut self, literal: &NumberLiteral) -> fmt::Result {
        write!(self.out, "{{\"duration\":{},\"type\":\"numberLiteral\",\"val\":", literal.is_duration)?;
        self.number(literal.value)?;
        self.end()
    }

    fn at(&mut self, at: Option<At>) -> fmt::Result {
        let (edge, timestamp) = match at {
            None => ("null", None),
            Some(At::Start) => ("\"start\"", None),
            Some(At::End) => ("\"end\"", None),
            Some(At::Timestamp(milliseconds)) => ("null", Some(milliseconds)),
        };
        write!(self.out, ",\"startOrEnd\":{edge},\"timestamp\":")?;
        match timestamp {
            Some(milliseconds) => write!(self.out, "{milliseconds}"),
            None => self.out.write_str("null"),
        }
    }

    /// Writes a number as a string, because it may be infinite.
    fn number(&mut self, value: f64) -> fmt::Result {
        self.out.write_char('"')?;
        write!(self.out, "{}", Plain(value))?;
        self.out.write_char('"')
    }

    fn label(&mut self, name: &String) -> fmt::Result {
        self.string(name.as_bytes())
    }

    /// Writes a string. Replaces each byte that is not valid UTF-8 by a replacement character.
    fn string(&mut self, bytes: &[u8]) -> fmt::Result {
        self.out.write_char('"')?;
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(self.out, "\\{c}")?,
                    // Prometheus' encoder escapes the last three characters for browsers.
                    '\0'..='\x1f' | '<' | '>' | '&' => write!(self.out, "\\u{:04x}", u32::from(c))?,
                    _ => self.out.write_char(c)?,
                }
            }
            chunk.invalid().iter().try_for_each(|_| self.out.write_char(char::REPLACEMENT_CHARACTER))?;
        }
        self.out.write_char('"')
    }

    fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T) -> fmt::Result) -> fmt::Result {
        self.out.write_char('[')?;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.out.write_char(',')?;
            }
            write(self, item)?;
        }
        self.out.write_char(']')
    }

    fn end(&mut self) -> fmt::Result {
        self.out.write_char('}')
    }
}
