//! The plan of a query: its tree with everything resolved that the times of the query decide.
//!
//! What a plan has that the tree has not: `@ start()` and `@ end()` are times, durations are milliseconds, `start()`,
//! `step()` and their like are numbers, chains of operators are flat, parentheses are gone, functions have their
//! implementations, and what gives the same value at every step is marked, to be evaluated once.
//!
//! Invariants
//! 1. No [`PlanKind::StepInvariant`] stands on a range of samples or a string, nor directly on another one.
//! 2. The depth of a plan is bounded by that of the tree; a chain of operators counts as one level.

mod build;
mod describe;
mod duration;
mod propagate;
mod share;
mod totals;

pub(crate) use build::{QueryTimes, build};
pub(crate) use describe::describe;
pub(crate) use duration::seconds;
pub(crate) use propagate::propagate;
pub(crate) use share::Sharing;

use varve_tsdb::Matcher;

use crate::functions::Implementation;
use crate::promql::ast::{AggregateOp, BinaryOp, RangeExtension, Span, UnaryOp, ValueType, VectorMatching};
use crate::promql::functions::Function;

/// An expression, ready to be evaluated.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// What it is.
    pub(crate) kind: PlanKind,
    /// The type of its value.
    pub(crate) value_type: ValueType,
    /// Where it stands in the query.
    pub(crate) span: Span,
    /// Its number among the expressions of the query, which go from the outside to the inside and from left to right.
    pub(crate) id: usize,
}

/// The kinds of plans.
#[derive(Debug, Clone)]
pub(crate) enum PlanKind {
    /// A number.
    Number(f64),
    /// A text, any bytes.
    String(Box<[u8]>),
    /// The newest sample of each series.
    Selector(Selector),
    /// The samples of each series over a range.
    Range(RangeSelector),
    /// An expression evaluated over a range.
    Subquery(Box<Subquery>),
    /// A function call.
    Call(Call),
    /// An aggregation across series.
    Aggregate(Box<Aggregate>),
    /// Binary operators.
    Chain(Chain),
    /// A sign.
    Sign(UnaryOp, Box<Plan>),
    /// An expression that gives the same at every step.
    StepInvariant(Box<Plan>),
}

/// At which times a selector or a subquery is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shift {
    /// How far back from the step, or from `at_ms`.
    pub(crate) offset_ms: i64,
    /// The time that stands for that of every step.
    pub(crate) at_ms: Option<i64>,
}

impl Shift {
    /// Returns the time that a step looks at.
    pub(crate) fn apply(self, step_ms: i64) -> i64 {
        self.at_ms.unwrap_or(step_ms).saturating_sub(self.offset_ms)
    }
}

/// A selector of series.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) shift: Shift,
    pub(crate) extension: Option<RangeExtension>,
    /// Of histograms nothing but count and sum is needed.
    pub(crate) only_totals: bool,
}

/// A selector with a range: the left end is excluded, the right end included.
#[derive(Debug, Clone)]
pub(crate) struct RangeSelector {
    pub(crate) selector: Selector,
    pub(crate) range_ms: i64,
}

/// An expression evaluated over a range.
#[derive(Debug, Clone)]
pub(crate) struct Subquery {
    pub(crate) expr: Plan,
    pub(crate) range_ms: i64,
    /// `None` is the engine's default.
    pub(crate) step_ms: Option<i64>,
    pub(crate) shift: Shift,
}

/// A function call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    pub(crate) implementation: Implementation,
    pub(crate) args: Vec<Plan>,
}

/// An aggregation across series.
#[derive(Debug, Clone)]
pub(crate) struct Aggregate {
    pub(crate) op: AggregateOp,
    pub(crate) expr: Plan,
    pub(crate) param: Option<Plan>,
    /// Ascending, each once.
    pub(crate) grouping: Vec<String>,
    pub(crate) without: bool,
}

/// Binary operators from left to right: `a + b - c` is `a` and the links `+ b`, `- c`.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) first: Box<Plan>,
    /// Not empty.
    pub(crate) links: Vec<Link>,
}

/// An operator with its right side.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) op: BinaryOp,
    pub(crate) rhs: Plan,
    /// `Some` exactly if both sides are vectors.
    pub(crate) matching: Option<VectorMatching>,
    pub(crate) return_bool: bool,
    /// Where left side, operator and right side stand.
    pub(crate) span: Span,
}

impl Plan {
    /// Returns the expressions right inside of this one, from left to right; those of a chain without its inner links.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            PlanKind::Number(_) | PlanKind::String(_) | PlanKind::Selector(_) | PlanKind::Range(_) => Vec::new(),
            PlanKind::Subquery(subquery) => vec![&subquery.expr],
            PlanKind::Call(call) => call.args.iter().collect(),
            PlanKind::Aggregate(aggregate) => aggregate.param.iter().chain([&aggregate.expr]).collect(),
            PlanKind::Chain(chain) => {
                [&*chain.first].into_iter().chain(chain.links.iter().map(|link| &link.rhs)).collect()
            }
            PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => vec![inner],
        }
    }

    /// Returns the links of a chain.
    pub(crate) fn links(&self) -> &[Link] {
        if let PlanKind::Chain(chain) = &self.kind { &chain.links } else { &[] }
    }

    /// As [`Plan::children`].
    fn children_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.kind {
            PlanKind::Number(_) | PlanKind::String(_) | PlanKind::Selector(_) | PlanKind::Range(_) => Vec::new(),
            PlanKind::Subquery(subquery) => vec![&mut subquery.expr],
            PlanKind::Call(call) => call.args.iter_mut().collect(),
            PlanKind::Aggregate(aggregate) => aggregate.param.iter_mut().chain([&mut aggregate.expr]).collect(),
            PlanKind::Chain(chain) => {
                [&mut *chain.first].into_iter().chain(chain.links.iter_mut().map(|link| &mut link.rhs)).collect()
            }
            PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => vec![inner],
        }
    }

    /// Counts this expression and all inside of it.
    pub(crate) fn n_inside(&self) -> usize {
        1 + self.children().into_iter().map(Self::n_inside).sum::<usize>()
    }

    /// Gives this expression and all inside of it their numbers, from `first` on; returns the next.
    fn number(&mut self, first: usize) -> usize {
        self.id = first;
        self.children_mut().into_iter().fold(first + 1, |next, child| child.number(next))
    }

    /// Returns the expression that is evaluated, behind the mark that it is invariant.
    pub(crate) fn unmarked(&self) -> &Self {
        match &self.kind {
            PlanKind::StepInvariant(inner) => inner,
            _ => self,
        }
    }
}
