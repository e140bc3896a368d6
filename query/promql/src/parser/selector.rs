//! Selectors of series: `up{job="node"}`.

use super::{Context, Node, Parser, Result};
use crate::ast::{BinaryOp, ExprKind, Span, ValueType, VectorSelector};
use crate::quote::quoted;
use crate::token::{Token, TokenKind};
use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher};

impl Parser<'_> {
    /// Parses a selector after its name, or from its opening brace if it has no name.
    #[inline(never)]
    pub(super) fn selector(&mut self, name: Option<Token>) -> Result<Node> {
        let start = match name {
            Some(name) => name.start,
            None => self.peek()?.start,
        };
        let matchers = self.matchers(name)?;
        let name = name.map_or("", |name| name.text(self.text)).to_owned();
        let kind = ExprKind::Vector(VectorSelector {
            name,
            matchers,
            offset: None,
            at: None,
            extension: None,
        });
        Ok(Node::leaf(
            kind,
            ValueType::Vector,
            Span {
                start,
                end: self.end,
            },
        ))
    }

    /// Parses a selector that is the whole text.
    pub(super) fn bare_selector(&mut self) -> Result<Vec<Matcher>> {
        let token = *self.peek()?;
        if token.kind == TokenKind::LeftBrace {
            return self.matchers(None);
        }
        if !token.kind.is_metric_name() {
            return Err(self.unexpected(token, self.context));
        }
        self.advance()?;
        self.matchers(Some(token))
    }

    /// Parses the braces, if any, and appends the matcher of the metric name before them.
    fn matchers(&mut self, name: Option<Token>) -> Result<Vec<Matcher>> {
        let mut matchers = Vec::with_capacity(1);
        if self.eat(TokenKind::LeftBrace)? {
            while !self.eat(TokenKind::RightBrace)? {
                matchers.push(self.matcher()?);
                if self.peek()?.kind != TokenKind::RightBrace {
                    self.expect_in(TokenKind::Comma, Context::MatcherNext)?;
                }
            }
        }
        matchers.extend(name.map(|name| Matcher::equal(METRIC_NAME, name.text(self.text))));
        Ok(matchers)
    }

    /// Parses `label="value"`, `"label"="value"` or `"metric"`.
    fn matcher(&mut self) -> Result<Matcher> {
        let name = *self.peek()?;
        if !matches!(name.kind, TokenKind::Identifier | TokenKind::String) {
            return Err(self.unexpected(name, Context::MatcherStart));
        }
        self.advance()?;
        let unquoted = match name.kind {
            TokenKind::String => Some(self.string_literal(name)?),
            _ => None,
        };
        let operator = *self.peek()?;
        let op = match (operator.kind, &unquoted) {
            (TokenKind::Equal, _) => MatchOp::Equal,
            (TokenKind::Operator(BinaryOp::Ne), _) => MatchOp::NotEqual,
            (TokenKind::EqualRegexp, _) => MatchOp::Regexp,
            (TokenKind::NotEqualRegexp, _) => MatchOp::NotRegexp,
            (_, Some(metric)) => return self.matcher_of(name, MatchOp::Equal, METRIC_NAME, metric),
            (_, None) => return Err(self.unexpected(operator, Context::MatcherOperator)),
        };
        self.advance()?;
        let value = self.expect_in(TokenKind::String, Context::MatcherValue)?;
        let value = self.string_literal(value)?;
        let label = match &unquoted {
            Some(label) => self.utf8(name, label)?,
            None => name.text(self.text),
        };
        self.matcher_of(name, op, label, &value)
    }

    /// Creates the matcher that begins with a token.
    fn matcher_of(&self, token: Token, op: MatchOp, label: &str, value: &[u8]) -> Result<Matcher> {
        Matcher::from_bytes(op, label, value)
            .map_err(|why| self.error(token.start, why.to_string()))
    }

    /// Returns the text of a literal that is a label name. Prometheus accepts any bytes.
    fn utf8<'b>(&self, token: Token, bytes: &'b [u8]) -> Result<&'b str> {
        std::str::from_utf8(bytes).map_err(|_| {
            self.error(
                token.start,
                format!("label name is not UTF-8: {}", quoted(bytes)),
            )
        })
    }
}
