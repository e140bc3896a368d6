//! The syntax tree of an expression.
//!
//! Times and durations are in milliseconds. Positions are byte offsets into the query.

mod chain;
pub(crate) mod value_type;

use varve_model::Matcher;

use crate::functions::Function;
pub use value_type::ValueType;

/// Bytes `start..end` of the query text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

/// An expression and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// The kind of expression and its operands.
    pub kind: ExprKind,
    /// The position, for error messages and annotations.
    pub span: Span,
}

/// The kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `1.5`, `0x1f`, `Inf`, `5m` (300).
    Number(NumberLiteral),
    /// `"text"`; the bytes need not be UTF-8.
    String(Box<[u8]>),
    /// `up{job="node"} offset 5m @ 100`
    Vector(VectorSelector),
    /// `up[5m]`
    Matrix(MatrixSelector),
    /// `rate(up[1m])[10m:1m]`
    Subquery(Subquery),
    /// `rate(up[1m])`
    Call(Call),
    /// `sum by (job) (up)`
    Aggregate(Aggregate),
    /// `a + on (job) b`
    Binary(Binary),
    /// `-a`, `+a`
    Unary(Unary),
    /// `(a)`
    Paren(Box<Expr>),
}

/// A number.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberLiteral {
    /// The value; for durations, in seconds.
    pub value: f64,
    /// The number was written as a duration, and is printed as one.
    pub is_duration: bool,
}

/// A duration in `[...]` or after `offset`: fixed, or an expression that depends on the times of
/// the query.
#[derive(Debug, Clone, PartialEq)]
pub enum Duration {
    /// Milliseconds.
    Fixed(i64),
    /// A duration expression.
    Expr(Box<DurationExpr>),
}

/// A duration expression and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationExpr {
    /// The kind of expression and its operands.
    pub kind: DurationExprKind,
    /// The position of the expression.
    pub span: Span,
}

/// The kinds of duration expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationExprKind {
    /// A number of seconds or a duration.
    Number(NumberLiteral),
    /// `step()`: the query's step.
    Step,
    /// `range()`: the query's range.
    Range,
    /// `-d`, `+d`
    Unary(UnaryOp, Box<DurationExpr>),
    /// `a * b`; only arithmetic operators.
    Binary(BinaryOp, Box<DurationExpr>, Box<DurationExpr>),
    /// `min_of(a, b)`, `max_of(a, b)`
    Extremum(Extremum, Box<DurationExpr>, Box<DurationExpr>),
    /// `(d)`
    Paren(Box<DurationExpr>),
}

/// `min_of` or `max_of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extremum {
    /// `min_of`
    Min,
    /// `max_of`
    Max,
}

/// The `@` modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A fixed time, in milliseconds.
    Timestamp(i64),
    /// The start of the query's range.
    Start,
    /// The end of the query's range.
    End,
}

/// A selector of series.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// The metric name before the braces; empty if there is none.
    pub name: String,
    /// All matchers in the order of the text. The matcher of `name` is last.
    pub matchers: Vec<Matcher>,
    /// `offset`. Positive offsets are into the past.
    pub offset: Option<Duration>,
    /// `@`
    pub at: Option<At>,
    /// `anchored` or `smoothed`.
    pub extension: Option<RangeExtension>,
}

/// The treatment of the ends of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeExtension {
    /// The last sample at or before the start of the range is used as its first sample.
    Anchored,
    /// Values at the ends of the range are interpolated.
    Smoothed,
}

/// A selector with a range. The left end is excluded, the right end included.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSelector {
    /// The selector, always an [`ExprKind::Vector`].
    pub selector: Box<Expr>,
    /// The length of the range.
    pub range: Duration,
}

/// An expression evaluated over a range.
#[derive(Debug, Clone, PartialEq)]
pub struct Subquery {
    /// The expression, of type vector.
    pub expr: Box<Expr>,
    /// The length of the range.
    pub range: Duration,
    /// Interval between evaluations; `None` is the default of the engine.
    pub step: Option<Duration>,
    /// `offset`
    pub offset: Option<Duration>,
    /// `@`
    pub at: Option<At>,
}

/// A function call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The function.
    pub function: &'static Function,
    /// The arguments. Their number and types are valid for the function.
    pub args: Vec<Expr>,
}

/// An aggregation across series.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// The operator.
    pub op: AggregateOp,
    /// The aggregated vector.
    pub expr: Box<Expr>,
    /// The parameter: `k`, a quantile or a label name.
    pub param: Option<Box<Expr>>,
    /// Label names of `by` or `without`, in the order of the text.
    pub grouping: Vec<String>,
    /// `true` for `without`, `false` for `by`.
    pub without: bool,
}

/// The aggregation operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in PromQL")]
pub enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    Quantile,
    CountValues,
    Limitk,
    LimitRatio,
}

/// Two expressions and an operator.
///
/// A chain such as `a or b or c` leans to the left and may have
/// [`CHAIN_LEN_MAX`](crate::CHAIN_LEN_MAX) operators. Dropping, cloning and comparing a chain is
/// not recursive. Other code must use [`Binary::chain`] instead of recursing into `lhs`.
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// The left operand.
    pub lhs: Box<Expr>,
    /// The right operand.
    pub rhs: Box<Expr>,
    /// The matching of series; `Some` if and only if both operands are vectors.
    pub matching: Option<VectorMatching>,
    /// `bool`: comparisons return 0 or 1 instead of filtering.
    pub return_bool: bool,
}

/// The binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in PromQL")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
    And,
    Or,
    Unless,
    /// `</`
    TrimUpper,
    /// `>/`
    TrimLower,
}

/// The matching of the series of two vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorMatching {
    /// The number of series that may match on each side.
    pub cardinality: Cardinality,
    /// Labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// `true` for `on`, `false` for `ignoring`.
    pub on: bool,
    /// Labels in `group_left(...)` and `group_right(...)`.
    pub include: Vec<String>,
    /// `fill`, `fill_left`: the value of a missing series on the left side.
    pub fill_left: Option<f64>,
    /// `fill`, `fill_right`: the value of a missing series on the right side.
    pub fill_right: Option<f64>,
}

/// The number of series that may match on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in Prometheus")]
pub enum Cardinality {
    OneToOne,
    /// `group_left`
    ManyToOne,
    /// `group_right`
    OneToMany,
    /// Set operators
    ManyToMany,
}

/// A unary operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Unary {
    /// The operator.
    pub op: UnaryOp,
    /// The operand, a scalar or a vector.
    pub expr: Box<Expr>,
}

/// The unary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in PromQL")]
pub enum UnaryOp {
    Plus,
    Minus,
}

impl Expr {
    /// Returns the type of the expression's value. Cost: linear in the length of a chain of
    /// operators on scalars.
    #[must_use]
    pub fn value_type(&self) -> ValueType {
        match &self.kind {
            ExprKind::Number(_) => ValueType::Scalar,
            ExprKind::String(_) => ValueType::String,
            ExprKind::Vector(_) | ExprKind::Aggregate(_) => ValueType::Vector,
            ExprKind::Matrix(_) | ExprKind::Subquery(_) => ValueType::Matrix,
            ExprKind::Call(call) => call.function.return_type,
            ExprKind::Binary(binary) => binary.value_type(),
            ExprKind::Unary(unary) => unary.expr.value_type(),
            ExprKind::Paren(inner) => inner.value_type(),
        }
    }

    /// Returns the direct children in Prometheus' order. The children of an aggregation are the
    /// vector, then the parameter.
    #[must_use]
    pub fn children(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Vector(_) => Vec::new(),
            ExprKind::Matrix(matrix) => vec![&matrix.selector],
            ExprKind::Subquery(subquery) => vec![&subquery.expr],
            ExprKind::Call(call) => call.args.iter().collect(),
            ExprKind::Aggregate(aggregate) => [&aggregate.expr]
                .into_iter()
                .chain(&aggregate.param)
                .map(|e| &**e)
                .collect(),
            ExprKind::Binary(binary) => vec![&binary.lhs, &binary.rhs],
            ExprKind::Unary(unary) => vec![&unary.expr],
            ExprKind::Paren(inner) => vec![inner],
        }
    }

    /// Returns the children as [`Self::children`] does, to be changed.
    pub fn children_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.kind {
            ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Vector(_) => Vec::new(),
            ExprKind::Matrix(matrix) => vec![&mut matrix.selector],
            ExprKind::Subquery(subquery) => vec![&mut subquery.expr],
            ExprKind::Call(call) => call.args.iter_mut().collect(),
            ExprKind::Aggregate(aggregate) => [&mut aggregate.expr]
                .into_iter()
                .chain(&mut aggregate.param)
                .map(|e| &mut **e)
                .collect(),
            ExprKind::Binary(binary) => vec![&mut binary.lhs, &mut binary.rhs],
            ExprKind::Unary(unary) => vec![&mut unary.expr],
            ExprKind::Paren(inner) => vec![inner],
        }
    }
}

impl Binary {
    fn value_type(&self) -> ValueType {
        let (first, links) = self.chain();
        // The result is a scalar only if both operands are scalars. A link with a matching has two
        // vectors.
        let all_scalars = links
            .iter()
            .all(|link| link.matching.is_none() && link.rhs.value_type() == ValueType::Scalar)
            && first.value_type() == ValueType::Scalar;
        if all_scalars {
            ValueType::Scalar
        } else {
            ValueType::Vector
        }
    }
}

impl AggregateOp {
    /// All operators, in ascending order of names.
    pub const ALL: [Self; 14] = [
        Self::Avg,
        Self::Bottomk,
        Self::Count,
        Self::CountValues,
        Self::Group,
        Self::LimitRatio,
        Self::Limitk,
        Self::Max,
        Self::Min,
        Self::Quantile,
        Self::Stddev,
        Self::Stdvar,
        Self::Sum,
        Self::Topk,
    ];

    /// Returns the operator in PromQL syntax.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Count => "count",
            Self::Min => "min",
            Self::Max => "max",
            Self::Group => "group",
            Self::Stddev => "stddev",
            Self::Stdvar => "stdvar",
            Self::Topk => "topk",
            Self::Bottomk => "bottomk",
            Self::Quantile => "quantile",
            Self::CountValues => "count_values",
            Self::Limitk => "limitk",
            Self::LimitRatio => "limit_ratio",
        }
    }

    /// Returns the type of the parameter before the vector; `None` if the operator has none.
    #[must_use]
    pub const fn param_type(self) -> Option<ValueType> {
        match self {
            Self::Topk | Self::Bottomk | Self::Quantile | Self::Limitk | Self::LimitRatio => {
                Some(ValueType::Scalar)
            }
            Self::CountValues => Some(ValueType::String),
            _ => None,
        }
    }

    /// Returns `true` if the operator needs the feature `promql-experimental-functions`.
    #[must_use]
    pub const fn is_experimental(self) -> bool {
        matches!(self, Self::Limitk | Self::LimitRatio)
    }
}

impl BinaryOp {
    /// Returns the operator in PromQL syntax.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Mod => "%",
            Self::Pow => "^",
            Self::Atan2 => "atan2",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Gt => ">",
            Self::Lt => "<",
            Self::Ge => ">=",
            Self::Le => "<=",
            Self::And => "and",
            Self::Or => "or",
            Self::Unless => "unless",
            Self::TrimUpper => "</",
            Self::TrimLower => ">/",
        }
    }

    /// Returns `true` if the operator is one of `==`, `!=`, `>`, `<`, `>=`, `<=`.
    #[inline]
    #[must_use]
    pub const fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Eq | Self::Ne | Self::Gt | Self::Lt | Self::Ge | Self::Le
        )
    }

    /// Returns `true` if the operator is one of `and`, `or`, `unless`.
    #[inline]
    #[must_use]
    pub const fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

impl UnaryOp {
    /// Returns the operator in PromQL syntax.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Minus => "-",
        }
    }
}
