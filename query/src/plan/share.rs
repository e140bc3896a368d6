//! Which expressions of a query are the same, so that one evaluation does for all.
//!
//! Expressions are the same if they are written the same, whatever their places, and are evaluated over the same steps. They
//! get one number, their class: a selector occurs twice, and is read once.

use std::fmt::Write;

use hashbrown::HashMap;

use super::{Aggregate, Call, Plan, PlanKind};
use crate::functions::Implementation;
use crate::promql::ast::{AggregateOp, ValueType};

/// What is the same in a plan.
#[derive(Debug, Default)]
pub(crate) struct Sharing<'a> {
    /// By the number of the expression.
    classes: Vec<usize>,
    /// By class.
    uses: Vec<Uses>,
    /// By the class of their argument: aggregations that fold its series as they come.
    folds: HashMap<usize, Vec<(usize, &'a Plan)>>,
    /// By the class of the range: functions of it, each class once.
    over_range: HashMap<usize, Vec<(usize, &'a Plan)>>,
}

/// How the value of a class is used.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    n: usize,
    /// Some use needs all series at once.
    held: bool,
}

impl<'a> Sharing<'a> {
    /// Looks for what is the same in a plan.
    pub(crate) fn of(plan: &'a Plan) -> Self {
        let mut classes = Classes { known: HashMap::new(), of: vec![0; plan.n_inside()] };
        let context = classes.number("the query");
        classes.add(plan, context);
        let uses = vec![Uses::default(); classes.known.len()];
        let mut sharing = Self { classes: classes.of, uses, ..Self::default() };
        sharing.note_use(plan, true);
        sharing
    }

    /// Returns the class of an expression, and how often its value is used that can be kept; 0 if it cannot.
    pub(crate) fn uses(&self, plan: &Plan) -> (usize, usize) {
        let class = self.class(plan);
        (class, if is_shareable(plan) { self.uses[class].n } else { 0 })
    }

    /// Tells whether the value of an expression is used more than once, and all of it at once for some use.
    pub(crate) fn is_held(&self, plan: &Plan) -> bool {
        let Uses { n, held } = self.uses[self.class(plan)];
        n > 1 && held && is_shareable(plan)
    }

    /// Returns the aggregations that fold the same series as one of them does, with their classes and how often each is
    /// used: each class once, that of the given one first.
    pub(crate) fn folds_with<'p>(&self, plan: &'p Plan, aggregate: &Aggregate) -> Vec<(usize, usize, &'p Plan)>
    where
        'a: 'p,
    {
        let own = self.class(plan);
        let others = self.folds.get(&self.class(&aggregate.expr)).map_or(&[][..], |folds| folds);
        let others = others.iter().filter(|(class, _)| *class != own).map(|&(class, other)| (class, other));
        let all = [(own, plan)].into_iter().chain(others);
        all.map(|(class, plan)| (class, self.uses[class].n, plan)).collect()
    }

    /// Returns the functions of the range that `call` is a function of, with their classes, that one among them.
    pub(crate) fn over_range_with(&self, call: &Call) -> &[(usize, &'a Plan)] {
        let others = range_of(call).and_then(|range| self.over_range.get(&self.class(range)));
        others.map_or(&[], |others| others)
    }

    /// Tells whether some use of the value of an expression needs all series at once.
    pub(crate) fn needs_all(&self, plan: &Plan) -> bool {
        self.uses[self.class(plan)].held
    }

    /// Tells whether anything is the same, so that values may be kept.
    pub(crate) fn is_any(&self) -> bool {
        let is_together = |together: &HashMap<_, Vec<_>>| together.values().any(|plans| plans.len() > 1);
        self.uses.iter().any(|uses| uses.n > 1) || is_together(&self.folds) || is_together(&self.over_range)
    }

    fn class(&self, plan: &Plan) -> usize {
        self.classes[plan.id]
    }

    /// Notes that the value of an expression is used; what is inside of it is used once, however often it is itself.
    fn note_use(&mut self, plan: &'a Plan, held: bool) {
        let class = self.class(plan);
        let uses = &mut self.uses[class];
        uses.n += 1;
        uses.held |= held;
        if uses.n > 1 && is_shareable(plan) {
            return;
        }
        if let PlanKind::Aggregate(aggregate) = &plan.kind
            && is_fold(aggregate.op)
        {
            self.folds.entry(self.classes[aggregate.expr.id]).or_default().push((class, plan));
        }
        if let PlanKind::Call(call) = &plan.kind
            && let Some(range) = range_of(call)
        {
            self.over_range.entry(self.classes[range.id]).or_default().push((class, plan));
        }
        let held = !hands_on(plan);
        plan.children().into_iter().for_each(|child| self.note_use(child, held));
    }
}

/// Returns the range of stored samples that a function makes a number of for each series.
fn range_of(call: &Call) -> Option<&Plan> {
    let is_range = |arg: &&Plan| matches!(arg.kind, PlanKind::Range(_));
    matches!(call.implementation, Implementation::OverRange(_)).then(|| call.args.iter().find(is_range)).flatten()
}

/// Tells whether an aggregation holds a few numbers for each group.
fn is_fold(op: AggregateOp) -> bool {
    use AggregateOp::{Avg, Count, Group, Max, Min, Stddev, Stdvar, Sum};
    matches!(op, Avg | Count | Group | Max | Min | Stddev | Stdvar | Sum)
}

/// Tells whether the value of an expression can be kept for another that is the same.
fn is_shareable(plan: &Plan) -> bool {
    plan.value_type == ValueType::Vector && !matches!(plan.kind, PlanKind::StepInvariant(_))
}

/// Tells whether an expression takes the series inside of it one by one.
fn hands_on(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Aggregate(_) => true,
        PlanKind::Call(call) => matches!(call.implementation, Implementation::Absent | Implementation::Scalar),
        _ => false,
    }
}

/// Numbers for texts that say what an expression is.
struct Classes {
    known: HashMap<String, usize>,
    /// By the number of the expression.
    of: Vec<usize>,
}

impl Classes {
    fn number(&mut self, text: &str) -> usize {
        let next = self.known.len();
        *self.known.entry_ref(text).or_insert(next)
    }

    /// Classifies an expression and all inside of it; `context` is the number of the steps that it is evaluated over.
    fn add(&mut self, plan: &Plan, context: usize) -> usize {
        let (mut text, inner_context) = self.own_text(plan, context);
        for child in plan.children() {
            let class = self.add(child, inner_context);
            // Writing to a text cannot fail.
            let _infallible = write!(text, " {class}");
        }
        let class = self.number(&text);
        self.of[plan.id] = class;
        class
    }

    /// Returns what an expression is, but for what is inside of it, and the number of the steps of that.
    fn own_text(&mut self, plan: &Plan, context: usize) -> (String, usize) {
        let mut inner_context = context;
        let own = match &plan.kind {
            PlanKind::Number(value) => format!("number {:x}", value.to_bits()),
            PlanKind::String(text) => format!("text {text:?}"),
            PlanKind::Selector(selector) => format!("{selector:?}"),
            PlanKind::Range(range) => format!("{range:?}"),
            PlanKind::Subquery(subquery) => {
                let steps =
                    format!("steps {context} {} {:?} {:?}", subquery.range_ms, subquery.step_ms, subquery.shift);
                inner_context = self.number(&steps);
                "subquery".to_owned()
            }
            PlanKind::Call(call) => format!("call {}", call.function.name),
            PlanKind::Aggregate(aggregate) => {
                let Aggregate { op, grouping, without, .. } = &**aggregate;
                format!("aggregate {op:?} {grouping:?} {without}")
            }
            PlanKind::Chain(chain) => {
                let links = chain.links.iter().map(|link| (link.op, link.return_bool, &link.matching));
                format!("chain {:?}", links.collect::<Vec<_>>())
            }
            PlanKind::Sign(op, _) => format!("sign {op:?}"),
            PlanKind::StepInvariant(_) => {
                inner_context = self.number(&format!("first of {context}"));
                "once".to_owned()
            }
        };
        (format!("{context} {own}"), inner_context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QueryTimes, build};
    use super::*;
    use crate::promql::{self, Features};

    /// Counts the expressions that are used more than once, and those of them that are held.
    fn check(query: &str, n_shared: usize, n_held: usize) {
        let expr = promql::parse(query, &Features::all()).unwrap();
        let plan = build(&expr, &QueryTimes { start_ms: 0, end_ms: 60_000, step_ms: 1000 }).unwrap();
        let sharing = Sharing::of(&plan);
        let mut all = vec![&plan];
        let mut classes = std::collections::BTreeMap::new();
        while let Some(plan) = all.pop() {
            if let (class, 2..) = sharing.uses(plan) {
                classes.insert(class, sharing.is_held(plan));
            }
            all.extend(plan.children());
        }
        assert_eq!((classes.len(), classes.values().filter(|held| **held).count()), (n_shared, n_held), "{query}");
    }

    #[test]
    fn expressions_written_twice_are_shared() {
        check("x + x", 1, 1);
        check("x{a=\"1\"} + x{a=\"2\"}", 0, 0);
        check("rate(x[5m]) > 0 and rate( (x[5m]) ) < 5", 1, 1);
        check("rate(x[5m]) / rate(x[5m] offset 1m)", 0, 0);
        // The aggregation is the same, so that nothing inside of it counts.
        check("sum(rate(x[5m])) + 2 * sum(rate(x[5m]))", 1, 1);
        check("avg(x) + 2 * stddev(x)", 1, 0);
        check("x / scalar(sum(x))", 1, 1);
    }

    #[test]
    fn other_steps_are_other_values() {
        check("max_over_time(x[1h:1m]) - x", 0, 0);
        check("max_over_time(rate(x[5m])[1h:1m]) - min_over_time(rate(x[5m])[1h:1m])", 1, 1);
        check("max_over_time(rate(x[5m])[1h:1m]) - min_over_time(rate(x[5m])[1h:2m])", 0, 0);
    }
}
