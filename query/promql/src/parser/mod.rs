//! The parser: from tokens to a syntax tree without type checks.
//!
//! This is a Pratt parser: `expression(power)` reads an operand and then all operators that bind at
//! least as strongly as `power`. The lookahead is one token, and is read only where Prometheus'
//! generated parser reads it, because the order of reading determines which of two errors is
//! reported.
//!
//! Recursive functions are small, and functions that build nodes and errors are not inlined, so
//! that 256 levels need less than a megabyte of stack.

mod call;
mod durations;
mod matching;
pub(crate) mod metric;
mod modifiers;
mod selector;

use super::ast::{
    Binary, BinaryOp, Expr, ExprKind, NumberLiteral, Span, Unary, UnaryOp, ValueType,
    VectorMatching,
};
use super::error::{Error, ParseError};
use super::features::Features;
use super::lexer::Lexer;
use super::token::{Keyword, Token, TokenKind};
use crate::limits::{CHAIN_LEN_MAX, DEPTH_MAX, QUERY_SIZE_MAX};
use crate::{duration, number, quote};
use varve_context::{CHECK_INTERVAL, Charge, Limit, QueryContext};
use varve_model::Matcher;

type Result<T, E = ParseError> = std::result::Result<T, E>;

/// Parses an expression up to the end of the text. Also returns the charge for the memory of the
/// tree.
pub(super) fn parse_expression(
    text: &str,
    features: &Features,
    ctx: &QueryContext,
) -> Result<(Expr, Charge), Error> {
    let mut parser = Parser::new(text, features, ctx)?;
    let expr = parser.whole_expression();
    match parser.interrupt {
        Some(interrupt) => Err(interrupt.into()),
        None => Ok((expr?, parser.charge)),
    }
}

/// Parses a selector of series as in the parameter `match[]`: `up`, `{job="node"}`, without
/// modifiers.
///
/// As in Prometheus' parser, all matchers may match the empty string (`{}`). The caller may reject
/// such a selector.
///
/// # Errors
/// The first [`ParseError`].
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
    let features = Features::default();
    let ctx = QueryContext::unbounded();
    let mut parser = Parser::new(text, &features, &ctx)?;
    let matchers = parser.bare_selector()?;
    parser.expect_end()?;
    Ok(matchers)
}

/// Upper bound of the memory that a token needs in the tree and in the plan, without its text.
const TOKEN_SIZE: usize = 3 * size_of::<Expr>();

/// Number of copies of the text of a token in the tree and in the plan.
const TOKEN_COPIES: usize = 3;

/// The names of the limits on the size and the depth of a query.
const LENGTH_LIMIT: Limit = Limit::Other("query length");
pub(super) const NESTING_LIMIT: Limit = Limit::Other("query nesting");

struct Parser<'q> {
    text: &'q str,
    lexer: Lexer<'q>,
    features: &'q Features,
    ctx: &'q QueryContext,
    /// Charge for the memory of the tree.
    charge: Charge,
    n_tokens: usize,
    /// The reason why parsing ended, if it is not an error in the text.
    interrupt: Option<varve_context::Error>,
    /// Maximum nesting depth, at most [`DEPTH_MAX`].
    depth_max: usize,
    /// The lookahead token, if it was read.
    ahead: Option<Token>,
    /// Byte offset of the end of the last consumed token.
    end: usize,
    /// The construct that is being parsed, for messages about unexpected tokens.
    context: Context,
    /// Number of active calls of `expression`.
    depth: usize,
}

/// An expression, and the properties that its parent needs.
struct Node {
    /// Boxed, so that nodes are small.
    expr: Box<Expr>,
    value_type: ValueType,
    /// Depth of the tree. A chain of operators counts as one level.
    height: usize,
    /// Number of operators if the expression is a chain; otherwise 0.
    chain_len: usize,
}

/// The construct that is being parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    Expression,
    Aggregation,
    GroupingStart,
    GroupingLabel,
    GroupingNext,
    LabelStart,
    LabelOperator,
    LabelValue,
    LabelNext,
    MatcherStart,
    MatcherOperator,
    MatcherValue,
    MatcherNext,
    Offset,
    At,
    RangeStart,
    RangeEnd,
    StepStart,
    StepEnd,
}

impl Context {
    /// Returns the end of the message about an unexpected token.
    fn describe(self) -> &'static str {
        match self {
            Self::Expression => "",
            Self::Aggregation => " in aggregation",
            Self::GroupingStart => " in grouping opts, expected \"(\"",
            Self::GroupingLabel => " in grouping opts, expected label",
            Self::GroupingNext => " in grouping opts, expected \",\" or \")\"",
            Self::LabelStart => " in label set, expected identifier or \"}\"",
            Self::LabelOperator => " in label set, expected \"=\"",
            Self::LabelValue => " in label set, expected string",
            Self::LabelNext => " in label set, expected \",\" or \"}\"",
            Self::MatcherStart => " in label matching, expected identifier or \"}\"",
            Self::MatcherOperator => " in label matching, expected label matching operator",
            Self::MatcherValue => " in label matching, expected string",
            Self::MatcherNext => " in label matching, expected \",\" or \"}\"",
            Self::Offset => " in offset, expected number, duration, step(), or range()",
            Self::At => " in @, expected timestamp",
            Self::RangeStart => {
                " in subquery or range selector, expected number, duration, step(), or range()"
            }
            Self::RangeEnd => " in subquery or range, expected \":\" or \"]\"",
            Self::StepStart => {
                " in subquery selector, expected number, duration, step(), range(), or \"]\""
            }
            Self::StepEnd => " in subquery selector, expected \"]\"",
        }
    }
}

impl<'q> Parser<'q> {
    fn new(text: &'q str, features: &'q Features, ctx: &'q QueryContext) -> Result<Self> {
        let size_max = features.limits.size_max.min(QUERY_SIZE_MAX);
        if text.len() > size_max {
            let size = text.len();
            let message = format!(
                "query of {size} bytes exceeds {size_max}, the limit of the {LENGTH_LIMIT}"
            );
            return Err(ParseError::new(text, 0, message).with_limit(LENGTH_LIMIT));
        }
        let lexer = Lexer::new(text, features.unquoted_utf8_names);
        let depth_max = features.limits.depth_max.min(DEPTH_MAX);
        Ok(Self {
            text,
            lexer,
            features,
            ctx,
            charge: ctx.charge(),
            n_tokens: 0,
            interrupt: None,
            depth_max,
            ahead: None,
            end: 0,
            context: Context::Expression,
            depth: 0,
        })
    }

    fn whole_expression(&mut self) -> Result<Expr> {
        if self.peek()?.kind == TokenKind::EndOfInput {
            return Err(self.error(0, "no expression found in input"));
        }
        let node = self.expression(0)?;
        self.expect_end()?;
        Ok(*node.expr)
    }

    /// Parses an expression whose operators all bind at least as strongly as `power`.
    fn expression(&mut self, power: u8) -> Result<Node> {
        if self.depth == self.depth_max {
            let start = self.peek()?.start;
            return Err(self.too_deep(start));
        }
        self.depth += 1;
        let mut lhs = self.operand()?;
        while let TokenKind::Operator(op) = self.peek()?.kind {
            if binding_power(op) < power {
                break;
            }
            self.advance()?;
            lhs = self.binary(lhs, op)?;
        }
        self.depth -= 1;
        Ok(lhs)
    }

    /// Parses an operand with its modifiers.
    fn operand(&mut self) -> Result<Node> {
        let mut node = self.primary()?;
        loop {
            node = match self.peek()?.kind {
                TokenKind::LeftBracket => self.range_or_subquery(node)?,
                TokenKind::Keyword(Keyword::Offset) => self.offset(node)?,
                TokenKind::Keyword(Keyword::Anchored | Keyword::Smoothed) => {
                    self.extension(node)?
                }
                TokenKind::At => self.at(node)?,
                _ => return Ok(node),
            };
        }
    }

    fn primary(&mut self) -> Result<Node> {
        let token = *self.peek()?;
        match token.kind {
            TokenKind::Number | TokenKind::Duration | TokenKind::String => self.literal(),
            TokenKind::Operator(BinaryOp::Add) => self.signed(UnaryOp::Plus),
            TokenKind::Operator(BinaryOp::Sub) => self.signed(UnaryOp::Minus),
            TokenKind::LeftParen => self.parenthesized(),
            TokenKind::LeftBrace => self.selector(None),
            kind if kind.is_metric_name() => self.named(),
            _ => Err(self.unexpected(token, self.context)),
        }
    }

    #[inline(never)]
    fn literal(&mut self) -> Result<Node> {
        let token = self.advance()?;
        let (kind, value_type) = match token.kind {
            TokenKind::String => (
                ExprKind::String(self.string_literal(token)?.into_boxed_slice()),
                ValueType::String,
            ),
            _ => (
                ExprKind::Number(self.number_literal(token)?),
                ValueType::Scalar,
            ),
        };
        Ok(Node::leaf(kind, value_type, span_of(token)))
    }

    /// Parses a call, an aggregation or a selector.
    fn named(&mut self) -> Result<Node> {
        let name = self.advance()?;
        let next = self.peek()?.kind;
        match name.kind {
            TokenKind::Aggregate(op)
                if matches!(next, TokenKind::LeftParen) || is_grouping(next) =>
            {
                self.aggregate(name, op)
            }
            TokenKind::Identifier | TokenKind::Preprocessor(_) if next == TokenKind::LeftParen => {
                self.call(name)
            }
            _ => self.selector(Some(name)),
        }
    }

    /// Parses a sign and its operand. The sign of a number becomes part of the number.
    fn signed(&mut self, op: UnaryOp) -> Result<Node> {
        let start = self.advance()?.start;
        let mut node = self.expression(SIGN_POWER)?;
        let value_type = node.value_type;
        let span = Span {
            start,
            end: node.expr.span.end,
        };
        if let ExprKind::Number(literal) = &mut node.expr.kind {
            if op == UnaryOp::Minus {
                literal.value = -literal.value;
            }
            node.expr.span = span;
            return Ok(node);
        }
        self.wrap(node, value_type, span, |expr| {
            ExprKind::Unary(Unary { op, expr })
        })
    }

    fn parenthesized(&mut self) -> Result<Node> {
        let start = self.advance()?.start;
        let node = self.expression(0)?;
        self.expect(TokenKind::RightParen)?;
        let value_type = node.value_type;
        let span = Span {
            start,
            end: self.end,
        };
        self.wrap(node, value_type, span, ExprKind::Paren)
    }

    /// Parses the part of a binary expression after its operator.
    fn binary(&mut self, lhs: Node, op: BinaryOp) -> Result<Node> {
        let modifiers = self.binary_modifiers(op)?;
        let right_to_left = op == BinaryOp::Pow;
        let rhs = self.expression(binding_power(op) + u8::from(!right_to_left))?;
        self.build_binary(lhs, op, modifiers, rhs)
    }

    #[inline(never)]
    fn build_binary(
        &self,
        lhs: Node,
        op: BinaryOp,
        modifiers: BinaryModifiers,
        rhs: Node,
    ) -> Result<Node> {
        let span = Span {
            start: lhs.expr.span.start,
            end: rhs.expr.span.end,
        };
        if modifiers.fills() && !self.features.binop_fill_modifiers {
            return Err(self.error(
                span.start,
                "binop fill modifiers are experimental and not enabled",
            ));
        }
        let is_chain = lhs.chain_len > 0;
        let chain_len = lhs.chain_len + 1;
        if chain_len > CHAIN_LEN_MAX {
            return Err(self.error(
                span.start,
                format!("expression has more than {CHAIN_LEN_MAX} operators in a row"),
            ));
        }
        let height = (rhs.height + 1).max(lhs.height + usize::from(!is_chain));
        let return_bool = modifiers.return_bool;
        let matching = modifiers.into_matching(lhs.value_type, rhs.value_type);
        let value_type = match (lhs.value_type, rhs.value_type) {
            (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
            _ => ValueType::Vector,
        };
        let lhs = lhs.expr;
        let rhs = rhs.expr;
        let kind = ExprKind::Binary(Binary {
            op,
            lhs,
            rhs,
            matching,
            return_bool,
        });
        self.bounded(Node {
            expr: Box::new(Expr { kind, span }),
            value_type,
            height,
            chain_len,
        })
    }

    /// Builds the parent of an expression.
    #[inline(never)]
    fn wrap(
        &self,
        node: Node,
        value_type: ValueType,
        span: Span,
        kind: impl FnOnce(Box<Expr>) -> ExprKind,
    ) -> Result<Node> {
        let expr = Box::new(Expr {
            kind: kind(node.expr),
            span,
        });
        self.bounded(Node {
            expr,
            value_type,
            height: node.height + 1,
            chain_len: 0,
        })
    }

    fn bounded(&self, node: Node) -> Result<Node> {
        // Modifiers such as `[5m:]` nest expressions without recursion in the parser.
        if node.height > self.depth_max {
            Err(self.too_deep(node.expr.span.start))
        } else {
            Ok(node)
        }
    }

    fn number_literal(&self, token: Token) -> Result<NumberLiteral> {
        let text = token.text(self.text);
        if token.kind == TokenKind::Duration {
            let milliseconds = duration::parse(text).map_err(|why| self.error(token.start, why))?;
            return Ok(NumberLiteral {
                value: duration::seconds(milliseconds as i64),
                is_duration: true,
            });
        }
        Ok(NumberLiteral {
            value: number::parse_literal(text)
                .map_err(|why| self.error(token.start, format!("error parsing number: {why}")))?,
            is_duration: false,
        })
    }

    fn string_literal(&self, token: Token) -> Result<Vec<u8>> {
        let text = token.text(self.text);
        quote::unquote(text).ok_or_else(|| {
            self.error(
                token.start,
                format!(
                    "error unquoting string {}: invalid syntax",
                    quote::quoted(text)
                ),
            )
        })
    }

    fn peek(&mut self) -> Result<&Token> {
        if self.ahead.is_none() {
            self.ahead = Some(self.lex()?);
        }
        Ok(self.ahead.as_ref().expect("filled above"))
    }

    #[inline(never)]
    fn lex(&mut self) -> Result<Token> {
        let token = self
            .lexer
            .next_token()
            .map_err(|e| ParseError::new(self.text, e.offset, e.message))?;
        self.n_tokens += 1;
        let is_due = self.n_tokens.is_multiple_of(CHECK_INTERVAL);
        let checked = if is_due { self.ctx.check() } else { Ok(()) };
        let charged = checked.and_then(|()| {
            self.charge
                .grow(TOKEN_SIZE + TOKEN_COPIES * (token.end - token.start))
        });
        charged.map_err(|interrupt| {
            self.interrupt = Some(interrupt);
            self.error(token.start, "parsing was interrupted")
        })?;
        Ok(token)
    }

    fn advance(&mut self) -> Result<Token> {
        let token = *self.peek()?;
        self.ahead = None;
        self.end = token.end;
        Ok(token)
    }

    /// Consumes the next token if it has this kind. Returns `true` if it does.
    fn eat(&mut self, kind: TokenKind) -> Result<bool> {
        let found = self.peek()?.kind == kind;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, kind: TokenKind) -> Result<Token> {
        self.expect_in(kind, self.context)
    }

    fn expect_in(&mut self, kind: TokenKind, context: Context) -> Result<Token> {
        let token = *self.peek()?;
        if token.kind == kind {
            self.advance()
        } else {
            Err(self.unexpected(token, context))
        }
    }

    fn expect_end(&mut self) -> Result<()> {
        self.expect(TokenKind::EndOfInput).map(|_| ())
    }

    /// Calls `read` in another context.
    fn within<T>(
        &mut self,
        context: Context,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = std::mem::replace(&mut self.context, context);
        let result = read(self)?;
        self.context = outer;
        Ok(result)
    }

    #[cold]
    #[inline(never)]
    fn unexpected(&self, token: Token, context: Context) -> ParseError {
        let message = format!(
            "unexpected {}{}",
            token.describe(self.text),
            context.describe()
        );
        self.error(token.start, message)
    }

    #[cold]
    #[inline(never)]
    fn too_deep(&self, offset: usize) -> ParseError {
        let depth_max = self.depth_max;
        let message = format!(
            "expression is nested more than {depth_max} levels deep, the limit of the {NESTING_LIMIT}"
        );
        self.error(offset, message).with_limit(NESTING_LIMIT)
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> ParseError {
        ParseError::new(self.text, offset, message)
    }
}

impl Node {
    fn leaf(kind: ExprKind, value_type: ValueType, span: Span) -> Self {
        Self {
            expr: Box::new(Expr { kind, span }),
            value_type,
            height: 1,
            chain_len: 0,
        }
    }
}

/// The modifiers between a binary operator and its right side.
struct BinaryModifiers {
    return_bool: bool,
    matching: VectorMatching,
}

fn is_grouping(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Keyword(Keyword::By | Keyword::Without))
}

fn span_of(token: Token) -> Span {
    Span {
        start: token.start,
        end: token.end,
    }
}

/// Returns how strongly an operator binds.
fn binding_power(op: BinaryOp) -> u8 {
    use BinaryOp::{Add, And, Atan2, Div, Mod, Mul, Or, Pow, Sub, Unless};
    match op {
        Or => 1,
        And | Unless => 2,
        Add | Sub => 4,
        Mul | Div | Mod | Atan2 => 5,
        Pow => 6,
        _ => 3,
    }
}

/// A sign binds as strongly as `*`, its operand more strongly: `-a ^ b` is `-(a ^ b)`.
const SIGN_POWER: u8 = 6;
