//! Modifiers of binary operators: `bool`, `on`, `ignoring`, `group_left`, `fill`, ... Also label
//! lists, which `by` and `without` use, too.

use super::{BinaryModifiers, Context, Parser, Result};
use crate::ast::{BinaryOp, Cardinality, ValueType, VectorMatching};
use crate::quote::quoted;
use crate::token::{Keyword, TokenKind};

impl Parser<'_> {
    #[inline(never)]
    pub(super) fn binary_modifiers(&mut self, op: BinaryOp) -> Result<BinaryModifiers> {
        let return_bool = self.eat(TokenKind::Keyword(Keyword::Bool))?;
        let mut matching = VectorMatching {
            cardinality: Cardinality::OneToOne,
            labels: Vec::new(),
            on: false,
            include: Vec::new(),
            fill_left: None,
            fill_right: None,
        };
        if let TokenKind::Keyword(keyword @ (Keyword::On | Keyword::Ignoring)) = self.peek()?.kind {
            self.advance()?;
            matching.on = keyword == Keyword::On;
            matching.labels = self.label_list()?;
            self.group_modifier(&mut matching)?;
        }
        self.fill_modifiers(&mut matching)?;
        if op.is_set() && matching.cardinality == Cardinality::OneToOne {
            matching.cardinality = Cardinality::ManyToMany;
        }
        Ok(BinaryModifiers {
            return_bool,
            matching,
        })
    }

    fn group_modifier(&mut self, matching: &mut VectorMatching) -> Result<()> {
        matching.cardinality = match self.peek()?.kind {
            TokenKind::Keyword(Keyword::GroupLeft) => Cardinality::ManyToOne,
            TokenKind::Keyword(Keyword::GroupRight) => Cardinality::OneToMany,
            _ => return Ok(()),
        };
        self.advance()?;
        let next = self.peek()?.kind;
        if next == TokenKind::LeftParen || !next.begins_expression() {
            matching.include = self.label_list()?;
        }
        Ok(())
    }

    fn fill_modifiers(&mut self, matching: &mut VectorMatching) -> Result<()> {
        if self.eat(TokenKind::Keyword(Keyword::Fill))? {
            let value = self.fill_value()?;
            matching.fill_left = Some(value);
            matching.fill_right = Some(value);
            return Ok(());
        }
        // Each side occurs at most once, in either order.
        for _ in 0..2 {
            if matching.fill_left.is_none() && self.eat(TokenKind::Keyword(Keyword::FillLeft))? {
                matching.fill_left = Some(self.fill_value()?);
            } else if matching.fill_right.is_none()
                && self.eat(TokenKind::Keyword(Keyword::FillRight))?
            {
                matching.fill_right = Some(self.fill_value()?);
            }
        }
        Ok(())
    }

    fn fill_value(&mut self) -> Result<f64> {
        self.expect(TokenKind::LeftParen)?;
        let value = self.signed_number()?;
        self.expect(TokenKind::RightParen)?;
        Ok(value)
    }

    /// Parses a number or duration with at most one sign.
    pub(super) fn signed_number(&mut self) -> Result<f64> {
        let negative = self.eat(TokenKind::Operator(BinaryOp::Sub))?;
        if !negative {
            self.eat(TokenKind::Operator(BinaryOp::Add))?;
        }
        let token = *self.peek()?;
        if !matches!(token.kind, TokenKind::Number | TokenKind::Duration) {
            return Err(self.unexpected(token, self.context));
        }
        self.advance()?;
        let value = self.number_literal(token)?.value;
        Ok(if negative { -value } else { value })
    }

    /// Parses `(label, "label", ...)`.
    pub(super) fn label_list(&mut self) -> Result<Vec<String>> {
        self.expect_in(TokenKind::LeftParen, Context::GroupingStart)?;
        let mut labels = Vec::new();
        while !self.eat(TokenKind::RightParen)? {
            labels.push(self.label_of_list()?);
            if self.peek()?.kind != TokenKind::RightParen {
                self.expect_in(TokenKind::Comma, Context::GroupingNext)?;
            }
        }
        Ok(labels)
    }

    fn label_of_list(&mut self) -> Result<String> {
        let token = *self.peek()?;
        let is_name = token.kind.is_label_name();
        if is_name && self.features.unquoted_utf8_names && token.kind == TokenKind::MetricIdentifier
        {
            let name = quoted(token.text(self.text));
            return Err(self.error(
                token.start,
                format!("invalid label name for grouping: {name}"),
            ));
        }
        if is_name {
            self.advance()?;
            return Ok(token.text(self.text).to_owned());
        }
        if token.kind != TokenKind::String {
            return Err(self.unexpected(token, Context::GroupingLabel));
        }
        self.advance()?;
        let invalid = match String::from_utf8(self.string_literal(token)?) {
            Ok(name) if !name.is_empty() => return Ok(name),
            Ok(_) => Vec::new(),
            Err(error) => error.into_bytes(),
        };
        let message = format!("invalid label name for grouping: {}", quoted(&invalid));
        Err(self.error(token.start, message))
    }
}

impl BinaryModifiers {
    pub(super) fn fills(&self) -> bool {
        self.matching.fill_left.is_some() || self.matching.fill_right.is_some()
    }

    /// Returns the matching of two operands; `None` if one is not a vector. Invalid labels and fill
    /// values remain in the matching, and the type checker rejects them.
    pub(super) fn into_matching(self, lhs: ValueType, rhs: ValueType) -> Option<VectorMatching> {
        let vectors = lhs == ValueType::Vector && rhs == ValueType::Vector;
        let used = vectors || self.fills() || !self.matching.labels.is_empty();
        used.then_some(self.matching)
    }
}
