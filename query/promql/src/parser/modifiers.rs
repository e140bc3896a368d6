//! Modifiers after an operand: `[5m]`, `[5m:1m]`, `offset 5m`, `@ end()`, `anchored`, `smoothed`.

use super::{Context, Node, Parser, Result};
use crate::ast::{
    At, Duration, Expr, ExprKind, MatrixSelector, RangeExtension, Span, Subquery, ValueType,
    VectorSelector,
};
use crate::token::{Keyword, Preprocessor, TokenKind};

impl Parser<'_> {
    #[inline(never)]
    pub(super) fn range_or_subquery(&mut self, node: Node) -> Result<Node> {
        let bracket = self.advance()?.start;
        let range = self.within(Context::RangeStart, Self::positive_duration)?;
        let next = *self.peek()?;
        match next.kind {
            TokenKind::RightBracket => {
                self.advance()?;
                self.range(node, bracket, range)
            }
            TokenKind::Colon => {
                self.advance()?;
                self.subquery(node, range)
            }
            _ => Err(self.unexpected(next, Context::RangeEnd)),
        }
    }

    fn range(&mut self, node: Node, bracket: usize, range: Duration) -> Result<Node> {
        let wrong = match &node.expr.kind {
            ExprKind::Vector(selector) if selector.offset.is_some() => {
                "no offset modifiers allowed before range"
            }
            ExprKind::Vector(selector) if selector.at.is_some() => {
                "no @ modifiers allowed before range"
            }
            ExprKind::Vector(_) => {
                let span = Span {
                    start: node.expr.span.start,
                    end: self.end,
                };
                return self.wrap(node, ValueType::Matrix, span, |selector| {
                    ExprKind::Matrix(MatrixSelector { selector, range })
                });
            }
            _ => "ranges only allowed for vector selectors",
        };
        Err(self.error(bracket, wrong))
    }

    fn subquery(&mut self, node: Node, range: Duration) -> Result<Node> {
        let step = if self.eat(TokenKind::RightBracket)? {
            None
        } else {
            let step = self.within(Context::StepStart, Self::positive_duration)?;
            self.expect_in(TokenKind::RightBracket, Context::StepEnd)?;
            // A step of less than a millisecond is ignored.
            (step != Duration::Fixed(0)).then_some(step)
        };
        let span = Span {
            start: node.expr.span.start,
            end: self.end,
        };
        self.wrap(node, ValueType::Matrix, span, |expr| {
            ExprKind::Subquery(Subquery {
                expr,
                range,
                step,
                offset: None,
                at: None,
            })
        })
    }

    #[inline(never)]
    pub(super) fn offset(&mut self, mut node: Node) -> Result<Node> {
        self.advance()?;
        let duration = self.within(Context::Offset, Self::offset_duration)?;
        let start = node.expr.span.start;
        let Some((offset, _)) = time_modifiers(&mut node.expr) else {
            return Err(self.misplaced("offset", start));
        };
        if offset.is_some() {
            return Err(self.error(start, "offset may not be set multiple times"));
        }
        *offset = (duration != Duration::Fixed(0)).then_some(duration);
        node.expr.span.end = self.end;
        Ok(node)
    }

    #[inline(never)]
    pub(super) fn at(&mut self, mut node: Node) -> Result<Node> {
        self.advance()?;
        let start = node.expr.span.start;
        let time = self.within(Context::At, |parser| parser.at_time(start))?;
        let Some((_, at)) = time_modifiers(&mut node.expr) else {
            return Err(self.misplaced("@", start));
        };
        if at.is_some() {
            return Err(self.error(start, "@ <timestamp> may not be set multiple times"));
        }
        *at = Some(time);
        node.expr.span.end = self.end;
        Ok(node)
    }

    fn at_time(&mut self, start: usize) -> Result<At> {
        let edge = match self.peek()?.kind {
            TokenKind::Preprocessor(Preprocessor::Start) => At::Start,
            TokenKind::Preprocessor(Preprocessor::End) => At::End,
            _ => {
                let seconds = self.signed_number()?;
                // As in Prometheus, seconds are compared with the limits of 64-bit milliseconds.
                if seconds > i64::MIN as f64 && seconds < i64::MAX as f64 {
                    return Ok(At::Timestamp((seconds * 1000.0).round() as i64));
                }
                let message = format!(
                    "timestamp out of bounds for @ modifier: {}",
                    six_digits(seconds)
                );
                return Err(self.error(start, message));
            }
        };
        self.advance()?;
        self.expect(TokenKind::LeftParen)?;
        self.expect(TokenKind::RightParen)?;
        Ok(edge)
    }

    fn misplaced(&self, modifier: &str, start: usize) -> crate::ParseError {
        let allowed = "an instant vector selector or range vector selector or a subquery";
        self.error(
            start,
            format!("{modifier} modifier must be preceded by {allowed}"),
        )
    }

    #[inline(never)]
    pub(super) fn extension(&mut self, mut node: Node) -> Result<Node> {
        let (name, extension) = match self.advance()?.kind {
            TokenKind::Keyword(Keyword::Anchored) => ("anchored", RangeExtension::Anchored),
            _ => ("smoothed", RangeExtension::Smoothed),
        };
        let start = node.expr.span.start;
        if matches!(node.expr.kind, ExprKind::Subquery(_)) {
            let message = format!("{name} modifier is not supported for subqueries");
            return Err(self.error(start, message));
        }
        let Some(selector) = selector_of(&mut node.expr) else {
            return Err(self.error(start, format!("{name} modifier not implemented")));
        };
        if selector
            .extension
            .replace(extension)
            .is_some_and(|before| before != extension)
        {
            let message = "anchored and smoothed modifiers cannot be used together";
            return Err(self.error(start, message));
        }
        Ok(node)
    }
}

/// Returns the selector of an instant or range vector.
fn selector_of(expr: &mut Expr) -> Option<&mut VectorSelector> {
    match &mut expr.kind {
        ExprKind::Vector(selector) => Some(selector),
        ExprKind::Matrix(matrix) => selector_of(&mut matrix.selector),
        _ => None,
    }
}

/// Returns the fields for `offset` and `@` of an expression that supports them.
fn time_modifiers(expr: &mut Expr) -> Option<(&mut Option<Duration>, &mut Option<At>)> {
    match &mut expr.kind {
        ExprKind::Subquery(subquery) => Some((&mut subquery.offset, &mut subquery.at)),
        ExprKind::Vector(selector) => Some((&mut selector.offset, &mut selector.at)),
        ExprKind::Matrix(matrix) => time_modifiers(&mut matrix.selector),
        _ => None,
    }
}

/// Formats a number like Go's `%f`.
fn six_digits(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => format!("{value:.6}"),
    }
}
