//! Common subexpression elimination: finds equal expressions of a query, so that they are evaluated
//! once.
//!
//! Two expressions are equal if they have the same text and are evaluated over the same steps;
//! their positions may differ. Equal expressions have the same class. For example, a selector that
//! occurs twice is read once.

use std::fmt::Write;

use hashbrown::HashMap;
use varve_promql::ast::{AggregateOp, ValueType};

use super::tree::{Aggregate, Call, Plan, PlanKind};
use crate::functions::Implementation;

/// The common subexpressions of a plan.
#[derive(Debug, Default)]
pub(crate) struct CommonSubexpressions<'a> {
    /// Class of each expression, by expression id.
    classes: Vec<usize>,
    /// Uses of each class.
    uses: Vec<Uses>,
    /// Aggregations that fold streamed series, by the class of their input.
    folds: HashMap<usize, Vec<(usize, &'a Plan)>>,
    /// Range functions by the class of their range; each class of functions is listed once.
    over_range: HashMap<usize, Vec<(usize, &'a Plan)>>,
}

/// The uses of the value of a class.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    n: usize,
    /// At least one use needs all series at once.
    needs_all: bool,
}

impl<'a> CommonSubexpressions<'a> {
    /// Finds the common subexpressions of a plan.
    pub(crate) fn of(plan: &'a Plan) -> Self {
        let mut classes = Classes {
            known: HashMap::new(),
            by_id: vec![0; plan.n_nodes()],
        };
        let context = classes.intern("the query");
        classes.add(plan, context);
        let uses = vec![Uses::default(); classes.known.len()];
        let mut subexpressions = Self {
            classes: classes.by_id,
            uses,
            ..Self::default()
        };
        subexpressions.add_use(plan, true);
        subexpressions
    }

    /// Returns the class of an expression and its number of uses, which is 0 if the value cannot be
    /// shared.
    pub(crate) fn uses(&self, plan: &Plan) -> (usize, usize) {
        let class = self.class(plan);
        (
            class,
            if is_shareable(plan) {
                self.uses[class].n
            } else {
                0
            },
        )
    }

    /// Returns `true` if the value of an expression is used more than once and at least one use
    /// needs all series at once.
    pub(crate) fn is_kept_whole(&self, plan: &Plan) -> bool {
        let Uses { n, needs_all } = self.uses[self.class(plan)];
        n > 1 && needs_all && is_shareable(plan)
    }

    /// Returns the folds that have the same input as `aggregate`, with their classes and numbers of
    /// uses. Each class is listed once, the class of `plan` first.
    pub(crate) fn folds_of_same_input<'p>(
        &self,
        plan: &'p Plan,
        aggregate: &Aggregate,
    ) -> Vec<(usize, usize, &'p Plan)>
    where
        'a: 'p,
    {
        let own = self.class(plan);
        let others = self
            .folds
            .get(&self.class(&aggregate.expr))
            .map_or(&[][..], |folds| folds);
        let others = others
            .iter()
            .filter(|(class, _)| *class != own)
            .map(|&(class, other)| (class, other));
        let all = [(own, plan)].into_iter().chain(others);
        all.map(|(class, plan)| (class, self.uses[class].n, plan))
            .collect()
    }

    /// Returns the functions of the same range as `call`, including `call`, with their classes.
    pub(crate) fn functions_of_same_range(&self, call: &Call) -> &[(usize, &'a Plan)] {
        let others = range_of(call).and_then(|range| self.over_range.get(&self.class(range)));
        others.map_or(&[], |others| others)
    }

    /// Returns `true` if at least one use of an expression needs all series at once.
    pub(crate) fn needs_all_series(&self, plan: &Plan) -> bool {
        self.uses[self.class(plan)].needs_all
    }

    fn class(&self, plan: &Plan) -> usize {
        self.classes[plan.id]
    }

    /// Records a use of an expression. Only the first use counts as a use of its children.
    fn add_use(&mut self, plan: &'a Plan, needs_all: bool) {
        let class = self.class(plan);
        let uses = &mut self.uses[class];
        uses.n += 1;
        uses.needs_all |= needs_all;
        if uses.n > 1 && is_shareable(plan) {
            return;
        }
        if let PlanKind::Aggregate(aggregate) = &plan.kind
            && is_fold(aggregate.op)
        {
            self.folds
                .entry(self.classes[aggregate.expr.id])
                .or_default()
                .push((class, plan));
        }
        if let PlanKind::Call(call) = &plan.kind
            && let Some(range) = range_of(call)
        {
            self.over_range
                .entry(self.classes[range.id])
                .or_default()
                .push((class, plan));
        }
        let needs_all = !streams_input(plan);
        for child in plan.children() {
            self.add_use(child, needs_all);
        }
    }
}

/// Returns the range selector argument of a range function.
fn range_of(call: &Call) -> Option<&Plan> {
    call.is_over_range()
        .then(|| call.args.iter().find(|arg| arg.range_selector().is_some()))
        .flatten()
}

/// Returns `true` if an aggregation holds only a few numbers per group and step.
fn is_fold(op: AggregateOp) -> bool {
    use AggregateOp::{Avg, Count, Group, Max, Min, Stddev, Stdvar, Sum};
    matches!(op, Avg | Count | Group | Max | Min | Stddev | Stdvar | Sum)
}

/// Returns `true` if the value of an expression can be shared.
fn is_shareable(plan: &Plan) -> bool {
    plan.value_type == ValueType::Vector && !matches!(plan.kind, PlanKind::StepInvariant(_))
}

/// Returns `true` if an expression consumes the series of its input one by one.
fn streams_input(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Aggregate(_) => true,
        PlanKind::Call(call) => matches!(
            call.implementation,
            Implementation::Absent | Implementation::Scalar
        ),
        _ => false,
    }
}

/// Interns descriptions of expressions.
struct Classes {
    known: HashMap<String, usize>,
    /// Class of each expression, by expression id.
    by_id: Vec<usize>,
}

impl Classes {
    fn intern(&mut self, text: &str) -> usize {
        let next = self.known.len();
        *self.known.entry_ref(text).or_insert(next)
    }

    /// Classifies an expression and its descendants; `context` identifies the steps over which it
    /// is evaluated.
    fn add(&mut self, plan: &Plan, context: usize) -> usize {
        let (mut text, inner_context) = self.description(plan, context);
        for child in plan.children() {
            let class = self.add(child, inner_context);
            // Writing to a string cannot fail.
            let _infallible = write!(text, " {class}");
        }
        let class = self.intern(&text);
        self.by_id[plan.id] = class;
        class
    }

    /// Returns a description of an expression without its children, and the context of the
    /// children.
    fn description(&mut self, plan: &Plan, context: usize) -> (String, usize) {
        let mut inner_context = context;
        let own = match &plan.kind {
            PlanKind::Number(value) => format!("number {:x}", value.to_bits()),
            PlanKind::String(text) => format!("text {text:?}"),
            PlanKind::Selector(selector) => format!("{selector:?}"),
            PlanKind::Range(range) => format!("{range:?}"),
            PlanKind::Subquery(subquery) => {
                let steps = format!(
                    "steps {context} {} {:?} {:?}",
                    subquery.range_ms, subquery.step_ms, subquery.shift
                );
                inner_context = self.intern(&steps);
                "subquery".to_owned()
            }
            PlanKind::Call(call) => format!("call {}", call.function.name),
            PlanKind::Aggregate(aggregate) => {
                let Aggregate {
                    op,
                    grouping,
                    without,
                    ..
                } = &**aggregate;
                format!("aggregate {op:?} {grouping:?} {without}")
            }
            PlanKind::Chain(chain) => {
                let links = chain
                    .links
                    .iter()
                    .map(|link| (link.op, link.return_bool, &link.matching));
                format!("chain {:?}", links.collect::<Vec<_>>())
            }
            PlanKind::Sign(op, _) => format!("sign {op:?}"),
            PlanKind::StepInvariant(_) => {
                inner_context = self.intern(&format!("first of {context}"));
                "once".to_owned()
            }
        };
        (format!("{context} {own}"), inner_context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::planner::build;
    use super::*;
    use crate::steps::Steps;
    use varve_promql::Features;

    /// Checks the number of shared expressions, and how many of these are kept whole.
    fn check(query: &str, n_shared: usize, n_kept_whole: usize) {
        let expr = varve_promql::parse(query, &Features::all()).unwrap();
        let plan = build(&expr, Steps::range(0, 60_000, 1000)).unwrap();
        let subexpressions = CommonSubexpressions::of(&plan);
        let mut all = vec![&plan];
        let mut classes = std::collections::BTreeMap::new();
        while let Some(plan) = all.pop() {
            if let (class, 2..) = subexpressions.uses(plan) {
                classes.insert(class, subexpressions.is_kept_whole(plan));
            }
            all.extend(plan.children());
        }
        assert_eq!(
            (
                classes.len(),
                classes
                    .values()
                    .filter(|is_kept_whole| **is_kept_whole)
                    .count()
            ),
            (n_shared, n_kept_whole),
            "{query}"
        );
    }

    #[test]
    fn equal_expressions_are_shared() {
        check("x + x", 1, 1);
        check("x{a=\"1\"} + x{a=\"2\"}", 0, 0);
        check("rate(x[5m]) > 0 and rate( (x[5m]) ) < 5", 1, 1);
        check("rate(x[5m]) / rate(x[5m] offset 1m)", 0, 0);
        // The aggregation is shared, so its descendants are used only once.
        check("sum(rate(x[5m])) + 2 * sum(rate(x[5m]))", 1, 1);
        check("avg(x) + 2 * stddev(x)", 1, 0);
        check("x / scalar(sum(x))", 1, 1);
    }

    #[test]
    fn expressions_over_different_steps_are_not_shared() {
        check("max_over_time(x[1h:1m]) - x", 0, 0);
        check(
            "max_over_time(rate(x[5m])[1h:1m]) - min_over_time(rate(x[5m])[1h:1m])",
            1,
            1,
        );
        check(
            "max_over_time(rate(x[5m])[1h:1m]) - min_over_time(rate(x[5m])[1h:2m])",
            0,
            0,
        );
    }
}
