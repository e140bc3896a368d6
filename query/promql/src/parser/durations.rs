//! Durations in brackets and after `offset`: `5m`, `300`, `step() * 2`.
//!
//! In brackets, a duration expression extends as far as possible. After `offset`, it ends after a
//! single operand such as a duration or `step()`: `x offset 5m * 2` is `(x offset 5m) * 2`. Only an
//! expression that begins with a parenthesis or with two signs continues: `x offset (5m) * 2` is
//! `x offset ((5m) * 2)`. This is Prometheus' grammar.

use super::{Parser, Result, SIGN_POWER, binding_power, span_of};
use crate::ast::{
    BinaryOp, Duration, DurationExpr, DurationExprKind, Extremum, NumberLiteral, Span, UnaryOp,
};
use crate::limits::DURATION_LEN_MAX;
use crate::token::{Preprocessor, TokenKind};

/// Counts the parts of one duration expression.
#[derive(Debug, Default)]
struct Parts(usize);

impl Parser<'_> {
    /// Parses the duration of a range or step.
    pub(super) fn positive_duration(&mut self) -> Result<Duration> {
        let duration = self.duration(0, &mut Parts::default())?;
        match &duration.kind {
            DurationExprKind::Number(literal) if literal.value <= 0.0 => {
                Err(self.error(duration.span.start, "duration must be greater than 0"))
            }
            _ => Ok(fixed_or_expression(duration)),
        }
    }

    /// Parses the duration after `offset`.
    pub(super) fn offset_duration(&mut self) -> Result<Duration> {
        let parts = &mut Parts::default();
        let first = *self.peek()?;
        let duration = match first.kind {
            TokenKind::Operator(BinaryOp::Add | BinaryOp::Sub) => {
                self.advance()?;
                let sign = sign_of(first.kind);
                match self.peek()?.kind {
                    TokenKind::Operator(_) => {
                        let operand = self.duration(SIGN_POWER, parts)?;
                        let signed = self.signed_duration(sign, first.start, operand)?;
                        self.duration_operators(signed, 0, parts)?
                    }
                    TokenKind::LeftParen => {
                        let operand = self.duration_in_parens(parts)?;
                        self.signed_duration(sign, first.start, operand)?
                    }
                    _ => {
                        let operand = self.duration_operand(parts)?;
                        let span = Span {
                            start: first.start,
                            end: operand.span.end,
                        };
                        match &operand.kind {
                            DurationExprKind::Number(_) => {
                                self.signed_duration(sign, first.start, operand)?
                            }
                            // Here, Prometheus' tree keeps `+`.
                            _ => DurationExpr {
                                kind: DurationExprKind::Unary(sign, Box::new(operand)),
                                span,
                            },
                        }
                    }
                }
            }
            TokenKind::LeftParen => self.duration(0, parts)?,
            _ => self.duration_operand(parts)?,
        };
        Ok(fixed_or_expression(duration))
    }

    fn duration(&mut self, power: u8, parts: &mut Parts) -> Result<DurationExpr> {
        let first = *self.peek()?;
        let operand = match first.kind {
            TokenKind::Operator(BinaryOp::Add | BinaryOp::Sub) => {
                self.count(parts)?;
                self.advance()?;
                let operand = self.duration(SIGN_POWER, parts)?;
                self.signed_duration(sign_of(first.kind), first.start, operand)?
            }
            TokenKind::LeftParen => self.duration_in_parens(parts)?,
            _ => self.duration_operand(parts)?,
        };
        self.duration_operators(operand, power, parts)
    }

    fn duration_operators(
        &mut self,
        mut lhs: DurationExpr,
        power: u8,
        parts: &mut Parts,
    ) -> Result<DurationExpr> {
        while let TokenKind::Operator(op) = self.peek()?.kind {
            // Durations have no operators that bind less strongly than addition.
            if binding_power(op) < power.max(binding_power(BinaryOp::Add)) || op == BinaryOp::Atan2
            {
                break;
            }
            let operator = self.advance()?;
            self.count(parts)?;
            let right_to_left = op == BinaryOp::Pow;
            let rhs = self.duration(binding_power(op) + u8::from(!right_to_left), parts)?;
            let by_zero =
                matches!(&rhs.kind, DurationExprKind::Number(literal) if literal.value == 0.0);
            match op {
                BinaryOp::Div if by_zero => {
                    return Err(self.error(operator.start, "division by zero"));
                }
                BinaryOp::Mod if by_zero => {
                    return Err(self.error(operator.start, "modulo by zero"));
                }
                _ => {}
            }
            let span = Span {
                start: lhs.span.start,
                end: rhs.span.end,
            };
            let kind = DurationExprKind::Binary(op, Box::new(lhs), Box::new(rhs));
            lhs = DurationExpr { kind, span };
        }
        Ok(lhs)
    }

    /// Parses a number, a duration or a call.
    fn duration_operand(&mut self, parts: &mut Parts) -> Result<DurationExpr> {
        self.count(parts)?;
        let token = *self.peek()?;
        match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                self.advance()?;
                let literal = self.number_literal(token)?;
                let span = span_of(token);
                self.in_range(&literal, span.start)?;
                Ok(DurationExpr {
                    kind: DurationExprKind::Number(literal),
                    span,
                })
            }
            TokenKind::Preprocessor(function)
                if !matches!(function, Preprocessor::Start | Preprocessor::End) =>
            {
                self.advance()?;
                self.duration_call(function, token.start, parts)
            }
            _ => Err(self.unexpected(token, self.context)),
        }
    }

    fn duration_call(
        &mut self,
        function: Preprocessor,
        start: usize,
        parts: &mut Parts,
    ) -> Result<DurationExpr> {
        self.expect(TokenKind::LeftParen)?;
        let kind = match function {
            Preprocessor::Step => DurationExprKind::Step,
            Preprocessor::Range => DurationExprKind::Range,
            _ => {
                let lhs = Box::new(self.duration(0, parts)?);
                self.expect(TokenKind::Comma)?;
                let rhs = Box::new(self.duration(0, parts)?);
                let least = function == Preprocessor::MinOf;
                DurationExprKind::Extremum(
                    if least { Extremum::Min } else { Extremum::Max },
                    lhs,
                    rhs,
                )
            }
        };
        self.expect(TokenKind::RightParen)?;
        Ok(DurationExpr {
            kind,
            span: Span {
                start,
                end: self.end,
            },
        })
    }

    fn duration_in_parens(&mut self, parts: &mut Parts) -> Result<DurationExpr> {
        self.count(parts)?;
        let start = self.expect(TokenKind::LeftParen)?.start;
        let inner = self.duration(0, parts)?;
        self.expect(TokenKind::RightParen)?;
        let span = Span {
            start,
            end: self.end,
        };
        // Prometheus' tree does not distinguish one pair of parentheses from several pairs.
        Ok(match inner.kind {
            DurationExprKind::Paren(_) => inner,
            _ => DurationExpr {
                kind: DurationExprKind::Paren(Box::new(inner)),
                span,
            },
        })
    }

    /// Applies a sign. The sign of a number becomes part of the number. Drops `+`.
    fn signed_duration(
        &self,
        sign: UnaryOp,
        start: usize,
        mut operand: DurationExpr,
    ) -> Result<DurationExpr> {
        let span = Span {
            start,
            end: operand.span.end,
        };
        if let DurationExprKind::Number(literal) = &mut operand.kind {
            if sign == UnaryOp::Minus {
                literal.value = -literal.value;
            }
            self.in_range(literal, start)?;
            operand.span = span;
            return Ok(operand);
        }
        Ok(match sign {
            UnaryOp::Plus => operand,
            UnaryOp::Minus => DurationExpr {
                kind: DurationExprKind::Unary(sign, Box::new(operand)),
                span,
            },
        })
    }

    fn in_range(&self, literal: &NumberLiteral, start: usize) -> Result<()> {
        if literal.value.abs() <= SECONDS_MAX {
            Ok(())
        } else {
            Err(self.error(start, "duration out of range"))
        }
    }

    fn count(&mut self, parts: &mut Parts) -> Result<()> {
        parts.0 += 1;
        if parts.0 <= DURATION_LEN_MAX {
            return Ok(());
        }
        let start = self.peek()?.start;
        Err(self.error(
            start,
            format!("duration expression has more than {DURATION_LEN_MAX} parts"),
        ))
    }
}

fn sign_of(kind: TokenKind) -> UnaryOp {
    match kind {
        TokenKind::Operator(BinaryOp::Sub) => UnaryOp::Minus,
        _ => UnaryOp::Plus,
    }
}

/// Converts seconds to milliseconds. Rounds to nanoseconds first, as in Prometheus.
fn fixed_or_expression(duration: DurationExpr) -> Duration {
    match &duration.kind {
        DurationExprKind::Number(literal) => {
            Duration::Fixed((literal.value * 1e9).round() as i64 / 1_000_000)
        }
        _ => Duration::Expr(Box::new(duration)),
    }
}

/// Maximum number of seconds whose nanoseconds fit in 64 bits.
const SECONDS_MAX: f64 = 9_223_372_036.854_776;
