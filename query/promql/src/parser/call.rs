//! Function calls and aggregations.

use super::{Context, Node, Parser, Result, is_grouping};
use crate::ast::{Aggregate, AggregateOp, Call, Expr, ExprKind, Span, ValueType};
use crate::functions;
use crate::quote::quoted;
use crate::token::{Keyword, Token, TokenKind};

/// Parsed arguments in parentheses.
struct Args {
    exprs: Vec<Expr>,
    height: usize,
}

/// `by (...)` or `without (...)`.
struct Grouping {
    labels: Vec<String>,
    without: bool,
}

impl Parser<'_> {
    pub(super) fn call(&mut self, name: Token) -> Result<Node> {
        let args = self.args()?;
        self.build_call(name, args)
    }

    #[inline(never)]
    fn build_call(&self, name: Token, args: Args) -> Result<Node> {
        let text = name.text(self.text);
        let Some(function) = functions::lookup(text) else {
            return Err(self.error(
                name.start,
                format!("unknown function with name {}", quoted(text)),
            ));
        };
        if function.experimental && !self.features.experimental_functions {
            return Err(self.error(
                name.start,
                format!("function {} is not enabled", quoted(text)),
            ));
        }
        let kind = ExprKind::Call(Call {
            function,
            args: args.exprs,
        });
        let expr = Box::new(Expr {
            kind,
            span: Span {
                start: name.start,
                end: self.end,
            },
        });
        self.bounded(Node {
            expr,
            value_type: function.return_type,
            height: args.height + 1,
            chain_len: 0,
        })
    }

    pub(super) fn aggregate(&mut self, name: Token, op: AggregateOp) -> Result<Node> {
        let context = std::mem::replace(&mut self.context, Context::Aggregation);
        let before = self.grouping()?;
        let args = self.args()?;
        let grouping = if before.is_some() {
            before
        } else {
            self.grouping()?
        };
        self.context = context;
        self.build_aggregate(name, op, grouping, args)
    }

    #[inline(never)]
    fn build_aggregate(
        &self,
        name: Token,
        op: AggregateOp,
        grouping: Option<Grouping>,
        args: Args,
    ) -> Result<Node> {
        let height = args.height + 1;
        let (param, expr) = self.aggregate_args(name, op, args.exprs)?;
        let Grouping { labels, without } = grouping.unwrap_or(Grouping {
            labels: Vec::new(),
            without: false,
        });
        let kind = ExprKind::Aggregate(Aggregate {
            op,
            expr,
            param,
            grouping: labels,
            without,
        });
        let expr = Box::new(Expr {
            kind,
            span: Span {
                start: name.start,
                end: self.end,
            },
        });
        self.bounded(Node {
            expr,
            value_type: ValueType::Vector,
            height,
            chain_len: 0,
        })
    }

    /// Splits the arguments of an aggregation into the parameter, if the operator has one, and the
    /// vector.
    fn aggregate_args(
        &self,
        name: Token,
        op: AggregateOp,
        args: Vec<Expr>,
    ) -> Result<(Option<Box<Expr>>, Box<Expr>)> {
        let fail = |message: String| Err(self.error(name.start, message));
        if args.is_empty() {
            return fail("no arguments for aggregate expression provided".to_owned());
        }
        if op.is_experimental() && !self.features.experimental_functions {
            let flag = "--enable-feature=promql-experimental-functions";
            return fail(format!(
                "{}() is experimental and must be enabled with {flag}",
                op.as_str()
            ));
        }
        let expected = 1 + usize::from(op.param_type().is_some());
        let found = args.len();
        let mut args = args.into_iter().map(Box::new);
        let param = op.param_type().and_then(|_| args.next());
        match (found == expected, args.next()) {
            (true, Some(expr)) => Ok((param, expr)),
            _ => fail(format!(
                "wrong number of arguments for aggregate expression provided, expected {expected}, got {found}"
            )),
        }
    }

    #[inline(never)]
    fn grouping(&mut self) -> Result<Option<Grouping>> {
        if !is_grouping(self.peek()?.kind) {
            return Ok(None);
        }
        let without = self.advance()?.kind == TokenKind::Keyword(Keyword::Without);
        Ok(Some(Grouping {
            labels: self.label_list()?,
            without,
        }))
    }

    /// Parses `(expression, ...)`.
    fn args(&mut self) -> Result<Args> {
        self.expect(TokenKind::LeftParen)?;
        let mut args = Args {
            exprs: Vec::new(),
            height: 0,
        };
        if self.eat(TokenKind::RightParen)? {
            return Ok(args);
        }
        loop {
            let node = self.expression(0)?;
            args.height = args.height.max(node.height);
            args.exprs.push(*node.expr);
            if self.eat(TokenKind::RightParen)? {
                return Ok(args);
            }
            let comma = self.expect(TokenKind::Comma)?;
            if !self.peek()?.kind.begins_expression() {
                return Err(self.error(
                    comma.start,
                    "trailing commas not allowed in function call args",
                ));
            }
        }
    }
}
