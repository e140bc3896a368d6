//! The pretty printer of `format_query`: splits and indents expressions that do not fit on a line.

use std::fmt::{self, Write};

use varve_context::{Charge, QueryContext};

use super::text::Text;
use super::{print, write_aggregate_head, write_operator, write_subquery_suffix};
use crate::ast::{Binary, Expr, ExprKind};
use crate::deep_stack;
use crate::error::Result;

/// Maximum size in bytes of an expression on one line; longer expressions are split.
const LINE_SIZE_MAX: usize = 100;

/// Maximum size of the text in bytes. If it is longer, the expression is printed on one line.
///
/// In a chain of operators, each link indents all previous links, so the size is quadratic in the
/// length of the chain.
const TEXT_SIZE_MAX: usize = 16 << 20;

/// Returns the text of an expression like `format_query`: long parts are split into indented lines.
#[must_use]
pub fn prettify(expr: &Expr) -> String {
    let printed = prettify_within(&QueryContext::unbounded(), expr);
    printed.map_or_else(|_unbounded| print(expr), |(text, _)| text)
}

/// Like [`prettify`], within the deadline and the memory limit of a request. Also returns the
/// charge for the text.
///
/// # Errors
/// [`Error::Context`](crate::Error::Context). [`Error::Thread`](crate::Error::Thread) for deep
/// expressions.
pub fn prettify_within(ctx: &QueryContext, expr: &Expr) -> Result<(String, Charge)> {
    deep_stack::run(ctx, deep_stack::is_deep(expr), || {
        prettify_on_this_stack(ctx, expr)
    })?
}

fn prettify_on_this_stack(ctx: &QueryContext, expr: &Expr) -> Result<(String, Charge)> {
    match Text::build(TEXT_SIZE_MAX, ctx, |out| write_expr(out, expr, 0))? {
        Some(pretty) => Ok(pretty),
        None => {
            // Without a maximum size, writing fails only because of an interrupt, which is an error
            // above.
            let plain = Text::build(usize::MAX, ctx, |out| write!(out, "{expr}"))?;
            Ok(plain.unwrap_or_else(|| (String::new(), ctx.charge())))
        }
    }
}

/// Writes an expression with its first line indented.
fn write_expr(out: &mut dyn Write, expr: &Expr, level: usize) -> fmt::Result {
    match &expr.kind {
        ExprKind::Unary(unary) => {
            indent(out, level)?;
            out.write_str(unary.op.as_str())?;
            write_operand(out, &unary.expr, level)
        }
        // As in Prometheus, a subquery that fits on a line is not indented.
        ExprKind::Subquery(_) if fits_on_line(expr) => write!(out, "{expr}"),
        ExprKind::Subquery(subquery) => {
            write_expr(out, &subquery.expr, level)?;
            write_subquery_suffix(out, subquery)
        }
        _ if fits_on_line(expr) => {
            indent(out, level)?;
            write!(out, "{expr}")
        }
        ExprKind::Binary(binary) => write_chain(out, binary, level),
        _ => {
            indent(out, level)?;
            write_split(out, expr, level)
        }
    }
}

/// Writes an expression that is too long for a line.
fn write_split(out: &mut dyn Write, expr: &Expr, level: usize) -> fmt::Result {
    match &expr.kind {
        ExprKind::Call(call) => {
            writeln!(out, "{}(", call.function.name)?;
            for (at, arg) in call.args.iter().enumerate() {
                out.write_str(if at == 0 { "" } else { ",\n" })?;
                write_expr(out, arg, level + 1)?;
            }
        }
        ExprKind::Aggregate(aggregate) => {
            write_aggregate_head(out, aggregate)?;
            out.write_str("(\n")?;
            if let Some(param) = &aggregate.param {
                write_expr(out, param, level + 1)?;
                out.write_str(",\n")?;
            }
            write_expr(out, &aggregate.expr, level + 1)?;
        }
        ExprKind::Paren(inner) => {
            out.write_str("(\n")?;
            write_expr(out, inner, level + 1)?;
        }
        _ => return write!(out, "{expr}"),
    }
    out.write_char('\n')?;
    indent(out, level)?;
    out.write_char(')')
}

/// Writes a chain of operators: each operator on its own line, and each link one level deeper than
/// the next link.
fn write_chain(out: &mut dyn Write, binary: &Binary, level: usize) -> fmt::Result {
    let (first, links) = binary.chain();
    // The first links that together fit on a line are printed as one expression. Each link has at
    // least 4 bytes (` + a`).
    let n_on_line = links
        .iter()
        .take(LINE_SIZE_MAX / 4)
        .take_while(|link| {
            !exceeds_line(&link.lhs)
                && !exceeds_line(&link.rhs)
                && fits_on_line_as(|out| write!(out, "{link}"))
        })
        .count();
    let (on_line, split) = links.split_at(n_on_line);
    let n_split = split.len();
    match on_line.last() {
        Some(link) => {
            indent(out, level + n_split)?;
            write!(out, "{link}")?;
        }
        None => write_expr(out, first, level + n_split)?,
    }
    for (link, level) in split.iter().zip((level..level + n_split).rev()) {
        out.write_char('\n')?;
        indent(out, level)?;
        write_operator(out, link)?;
        out.write_char('\n')?;
        write_expr(out, &link.rhs, level + 1)?;
    }
    Ok(())
}

/// Writes the operand of a sign, without blanks between sign and operand.
fn write_operand(out: &mut dyn Write, expr: &Expr, level: usize) -> fmt::Result {
    let mut trimmed = Trimmed {
        out,
        started: false,
    };
    write_expr(&mut trimmed, expr, level)
}

fn indent(out: &mut dyn Write, level: usize) -> fmt::Result {
    for _ in 0..level {
        out.write_str("  ")?;
    }
    Ok(())
}

fn fits_on_line(expr: &Expr) -> bool {
    !exceeds_line(expr) && fits_on_line_as(|out| write!(out, "{expr}"))
}

fn fits_on_line_as(write: impl FnOnce(&mut dyn Write) -> fmt::Result) -> bool {
    write(&mut Line { size: 0 }).is_ok()
}

/// Returns `true` if an expression is certainly longer than a line. Cost: constant. Printing sorts
/// the matchers of a selector before it writes the first one, which would be repeated at every
/// level above the selector.
fn exceeds_line(expr: &Expr) -> bool {
    let mut size = 0;
    let mut pending = vec![expr];
    while let Some(expr) = pending.pop() {
        size += match &expr.kind {
            ExprKind::Vector(selector) => {
                let sizes = selector
                    .matchers
                    .iter()
                    .map(|matcher| matcher.name().len().min(1) + matcher.value().len());
                sizes.take(LINE_SIZE_MAX + 1).sum()
            }
            ExprKind::String(bytes) => bytes.len(),
            ExprKind::Call(call) => 2 * call.args.len(),
            ExprKind::Aggregate(aggregate) => 2 * aggregate.grouping.len(),
            ExprKind::Binary(Binary {
                matching: Some(matching),
                ..
            }) => matching.labels.len() + matching.include.len(),
            _ => 1,
        };
        if size > LINE_SIZE_MAX {
            return true;
        }
        pending.extend(expr.children());
    }
    false
}

/// Counts the bytes of a line. Fails if it is too long.
struct Line {
    size: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.size += text.len();
        if self.size > LINE_SIZE_MAX {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// Removes leading blanks.
struct Trimmed<'a> {
    out: &'a mut dyn Write,
    started: bool,
}

impl Write for Trimmed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = if self.started {
            text
        } else {
            text.trim_start()
        };
        self.started |= !text.is_empty();
        self.out.write_str(text)
    }
}
