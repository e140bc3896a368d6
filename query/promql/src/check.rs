//! The type checker: rejects expressions that have valid syntax but that Prometheus rejects.
//!
//! Expressions are checked in Prometheus' order, operands first, so the first error is the same.

use super::ast::{
    Aggregate, Binary, Call, Cardinality, Expr, ExprKind, Span, ValueType, VectorMatching,
    VectorSelector,
};
use super::error::ParseError;
use super::quote::quoted;
use hashbrown::HashSet;
use varve_model::labels::METRIC_NAME;

type Result<T> = std::result::Result<T, ParseError>;

/// Checks the tree that the parser built from `text`.
pub(crate) fn check(text: &str, expr: &Expr) -> Result<()> {
    Checker { text }.expr(expr).map(|_| ())
}

/// The context in which an expression must have a type.
#[derive(Debug, Clone, Copy)]
enum TypeContext {
    AggregationExpression,
    AggregationParameter,
    /// An argument of the function with this name.
    Argument(&'static str),
}

struct Checker<'q> {
    text: &'q str,
}

impl Checker<'_> {
    fn expr(&self, expr: &Expr) -> Result<ValueType> {
        match &expr.kind {
            ExprKind::Number(_) => Ok(ValueType::Scalar),
            ExprKind::String(_) => Ok(ValueType::String),
            ExprKind::Vector(selector) => self.selector(selector, expr.span),
            ExprKind::Matrix(matrix) => {
                self.expr(&matrix.selector)?;
                Ok(ValueType::Matrix)
            }
            ExprKind::Subquery(subquery) => match self.expr(&subquery.expr)? {
                ValueType::Vector => Ok(ValueType::Matrix),
                found => {
                    let found = found.as_str();
                    self.fail(
                        expr.span,
                        format!("subquery is only allowed on instant vector, got {found} instead"),
                    )
                }
            },
            ExprKind::Call(call) => self.call(call, expr.span),
            ExprKind::Aggregate(aggregate) => self.aggregate(aggregate),
            ExprKind::Binary(binary) => self.chain(binary, expr.span),
            ExprKind::Unary(unary) => match self.expr(&unary.expr)? {
                found @ (ValueType::Scalar | ValueType::Vector) => Ok(found),
                found => {
                    let allowed = "unary expression only allowed on expressions of type scalar or instant vector";
                    self.fail(
                        expr.span,
                        format!("{allowed}, got {}", quoted(found.documented())),
                    )
                }
            },
            ExprKind::Paren(inner) => self.expr(inner),
        }
    }

    #[inline(never)]
    fn selector(&self, selector: &VectorSelector, span: Span) -> Result<ValueType> {
        if selector.name.is_empty() {
            let is_bounded = selector
                .matchers
                .iter()
                .any(|matcher| !matcher.matches_empty());
            if is_bounded {
                return Ok(ValueType::Vector);
            }
            return self.fail(
                span,
                "vector selector must contain at least one non-empty matcher",
            );
        }
        self.named_selector(selector, span)
    }

    /// Checks a selector with a name before its braces; the name is its last matcher.
    fn named_selector(&self, selector: &VectorSelector, span: Span) -> Result<ValueType> {
        let in_braces = selector.matchers.iter().rev().skip(1);
        match in_braces
            .rev()
            .find(|matcher| matcher.name() == METRIC_NAME)
        {
            None => Ok(ValueType::Vector),
            Some(matcher) => {
                let outside = quoted(&selector.name);
                let inside = quoted(matcher.value());
                self.fail(
                    span,
                    format!("metric name must not be set twice: {outside} or {inside}"),
                )
            }
        }
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Result<ValueType> {
        self.expect(
            &aggregate.expr,
            ValueType::Vector,
            TypeContext::AggregationExpression,
        )?;
        if let Some(param) = &aggregate.param
            && let Some(expected) = aggregate.op.param_type()
        {
            self.expect(param, expected, TypeContext::AggregationParameter)?;
        }
        Ok(ValueType::Vector)
    }

    fn call(&self, call: &Call, span: Span) -> Result<ValueType> {
        self.arg_count(call, span)?;
        let is_info = call.function.name == "info";
        for (position, arg) in call.args.iter().enumerate() {
            if is_info && position == 0 {
                self.info_labels(call, span)?;
            }
            let Some(expected) = call.function.arg_type(position) else {
                break;
            };
            match &arg.kind {
                // The second argument of `info` selects labels, not series, so it may match
                // everything.
                ExprKind::Vector(_) if is_info && position == 1 => {}
                _ => self.expect(arg, expected, TypeContext::Argument(call.function.name))?,
            }
        }
        Ok(call.function.return_type)
    }

    #[inline(never)]
    fn arg_count(&self, call: &Call, span: Span) -> Result<()> {
        let found = call.args.len();
        let min = call.function.args_min();
        let max = call.function.args_max();
        let expected = match max {
            Some(max) if max == min && found != min => format!("{min}"),
            _ if found < min => format!("at least {min}"),
            Some(max) if found > max => format!("at most {max}"),
            _ => return Ok(()),
        };
        let name = quoted(call.function.name);
        self.fail(
            span,
            format!("expected {expected} argument(s) in call to {name}, got {found}"),
        )
    }

    /// Checks that the second argument of `info` has only matchers.
    #[inline(never)]
    fn info_labels(&self, call: &Call, span: Span) -> Result<()> {
        let Some(labels) = call.args.get(1) else {
            return Ok(());
        };
        let found = labels.value_type();
        if found != ValueType::Vector {
            let found = found.documented();
            return self.fail(
                span,
                format!("expected type instant vector in call to function \"info\", got {found}"),
            );
        }
        match &labels.kind {
            ExprKind::Vector(selector) if selector.name.is_empty() => Ok(()),
            ExprKind::Vector(_) => self.fail(
                labels.span,
                "expected label selectors only, got vector selector instead",
            ),
            _ => self.fail(labels.span, "expected label selectors only"),
        }
    }

    /// Checks a chain of binary operators from left to right.
    fn chain(&self, binary: &Binary, span: Span) -> Result<ValueType> {
        let (first, links) = binary.chain();
        let mut lhs = self.expr(first)?;
        for link in links {
            let rhs = self.expr(&link.rhs)?;
            let span = Span {
                end: link.rhs.span.end,
                ..span
            };
            lhs = self.binary(link, lhs, rhs, span)?;
        }
        Ok(lhs)
    }

    #[inline(never)]
    fn binary(
        &self,
        binary: &Binary,
        lhs: ValueType,
        rhs: ValueType,
        span: Span,
    ) -> Result<ValueType> {
        let scalars = lhs == ValueType::Scalar && rhs == ValueType::Scalar;
        if binary.return_bool && !binary.op.is_comparison() {
            return self.fail_at_operator(
                binary,
                "bool modifier can only be used on comparison operators",
            );
        }
        if binary.op.is_comparison() && !binary.return_bool && scalars {
            return self
                .fail_at_operator(binary, "comparisons between scalars must use BOOL modifier");
        }
        if let Some(label) = binary.matching.as_ref().and_then(label_on_and_included) {
            let why = format!(
                "label {} must not occur in ON and GROUP clause at once",
                quoted(label)
            );
            return self.fail_at_operator(binary, why);
        }
        for (side, value_type) in [(&binary.lhs, lhs), (&binary.rhs, rhs)] {
            if !matches!(value_type, ValueType::Scalar | ValueType::Vector) {
                let why = "binary expression must contain only scalar and instant vector types";
                return self.fail(side.span, why);
            }
        }
        if lhs == ValueType::Vector && rhs == ValueType::Vector {
            self.vectors(binary, span)?;
        } else {
            self.not_both_vectors(binary, span)?;
        }
        Ok(if scalars {
            ValueType::Scalar
        } else {
            ValueType::Vector
        })
    }

    fn vectors(&self, binary: &Binary, span: Span) -> Result<()> {
        if !binary.op.is_set() {
            return Ok(());
        }
        let Some(matching) = &binary.matching else {
            return Ok(());
        };
        if matching.cardinality != Cardinality::ManyToMany {
            return self.fail(
                span,
                format!(
                    "no grouping allowed for {} operation",
                    quoted(binary.op.as_str())
                ),
            );
        }
        if fills(matching) {
            return self.fail(
                span,
                "filling in missing series not allowed for set operators",
            );
        }
        Ok(())
    }

    fn not_both_vectors(&self, binary: &Binary, span: Span) -> Result<()> {
        // Unless both operands are vectors, the parser creates a matching only if it has labels or
        // fill values.
        match &binary.matching {
            Some(matching) if !matching.labels.is_empty() => {
                self.fail(span, "vector matching only allowed between instant vectors")
            }
            Some(_) => self.fail(
                span,
                "filling in missing series only allowed between instant vectors",
            ),
            None if binary.op.is_set() => {
                let op = quoted(binary.op.as_str());
                self.fail(
                    span,
                    format!("set operator {op} not allowed in binary scalar expression"),
                )
            }
            None => Ok(()),
        }
    }

    /// Checks an expression and its type.
    fn expect(&self, expr: &Expr, expected: ValueType, context: TypeContext) -> Result<()> {
        let found = self.expr(expr)?;
        if found == expected {
            Ok(())
        } else {
            self.wrong_type(expr.span, expected, context, found)
        }
    }

    #[cold]
    #[inline(never)]
    fn wrong_type(
        &self,
        span: Span,
        expected: ValueType,
        context: TypeContext,
        found: ValueType,
    ) -> Result<()> {
        let expected = expected.documented();
        let found = found.documented();
        let context = match context {
            TypeContext::AggregationExpression => "aggregation expression".to_owned(),
            TypeContext::AggregationParameter => "aggregation parameter".to_owned(),
            TypeContext::Argument(function) => format!("call to function {}", quoted(function)),
        };
        self.fail(
            span,
            format!("expected type {expected} in {context}, got {found}"),
        )
    }

    /// Fails at the position of the operator, after the left side and blanks.
    fn fail_at_operator<T>(&self, binary: &Binary, message: impl Into<String>) -> Result<T> {
        let end = binary.lhs.span.end;
        let blanks = self.text[end..]
            .bytes()
            .take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
        Err(ParseError::new(self.text, end + blanks, message))
    }

    fn fail<T>(&self, span: Span, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.text, span.start, message))
    }
}

fn fills(matching: &VectorMatching) -> bool {
    matching.fill_left.is_some() || matching.fill_right.is_some()
}

/// Returns a label that is both in `on` and in `group_left` or `group_right`.
fn label_on_and_included(matching: &VectorMatching) -> Option<&str> {
    if !matching.on {
        return None;
    }
    let included: HashSet<_> = matching.include.iter().collect();
    matching
        .labels
        .iter()
        .find(|label| included.contains(label))
        .map(String::as_str)
}
