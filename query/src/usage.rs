//! What an expression needs of the series that it reads: which it selects, and which of their labels its value depends on.
//!
//! Used by the binary to tell which metrics and labels nobody asks for. What is said here may be more than an expression
//! needs, never less: dropping the series that no selector of an expression selects leaves its value as it is, and so does
//! taking a label away that none of its selectors uses, as long as no two series become one by that.
//!
//! Labels are followed from the outside in: the whole of the result is wanted, `sum by (job)` wants only `job` of what it
//! adds up, `a * on (node) b` wants `node` of both sides, and so on down to the selectors.

use std::collections::BTreeSet;

use varve_tsdb::Matcher;
use varve_tsdb::labels::METRIC_NAME;

use crate::promql::ast::VectorMatching;
use crate::promql::ast::{Aggregate, AggregateOp, Binary, BinaryOp, Call, Cardinality, Expr, ExprKind, ValueType};

/// Labels that a set names at most; one that would name more becomes [`LabelSet::all`].
pub const LABELS_MAX: usize = 64;

/// The metric that `info` reads when it is given no other.
const INFO_METRIC: &str = "target_info";

/// A set of label names, of which there are endlessly many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelSet {
    /// These.
    Only(BTreeSet<String>),
    /// All but these.
    AllBut(BTreeSet<String>),
}

/// A selector of an expression, and the labels that the expression uses of what it selects.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectorUse {
    /// Its matchers.
    pub matchers: Vec<Matcher>,
    /// The labels that the value depends on, besides those of the matchers.
    pub labels: LabelSet,
}

/// Returns what an expression uses, selector by selector; one that stands there twice comes twice.
#[must_use]
pub fn of(expr: &Expr) -> Vec<SelectorUse> {
    let mut found = Vec::new();
    visit(expr, LabelSet::all(), &mut found);
    found
}

impl SelectorUse {
    /// Tells whether the expression depends on a label of what the selector selects.
    #[must_use]
    pub fn uses_label(&self, name: &str) -> bool {
        self.labels.contains(name) || self.matchers.iter().any(|matcher| matcher.name() == name)
    }
}

impl LabelSet {
    /// Returns the set of all labels.
    #[must_use]
    pub fn all() -> Self {
        Self::AllBut(BTreeSet::new())
    }

    /// Returns the set without any label.
    #[must_use]
    pub fn none() -> Self {
        Self::Only(BTreeSet::new())
    }

    /// Tells whether a label is in the set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::Only(names) => names.contains(name),
            Self::AllBut(names) => !names.contains(name),
        }
    }

    /// Returns the labels of both sets; beyond [`LABELS_MAX`] names, all labels.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let united = match (self, other) {
            (Self::Only(mut a), Self::Only(b)) => {
                a.extend(b);
                Self::Only(a)
            }
            (Self::AllBut(a), Self::AllBut(b)) => Self::AllBut(a.intersection(&b).cloned().collect()),
            (Self::Only(only), Self::AllBut(mut but)) | (Self::AllBut(mut but), Self::Only(only)) => {
                but.retain(|name| !only.contains(name));
                Self::AllBut(but)
            }
        };
        united.bounded()
    }

    fn only<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        Self::Only(names.into_iter().cloned().collect()).bounded()
    }

    fn all_but<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        Self::AllBut(names.into_iter().cloned().collect()).bounded()
    }

    fn bounded(self) -> Self {
        let (Self::Only(names) | Self::AllBut(names)) = &self;
        if names.len() > LABELS_MAX { Self::all() } else { self }
    }
}

/// Goes down an expression of which the labels `wanted` are used.
fn visit(expr: &Expr, wanted: LabelSet, found: &mut Vec<SelectorUse>) {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Vector(selector) => {
            found.push(SelectorUse { matchers: selector.matchers.clone(), labels: wanted });
        }
        ExprKind::Matrix(matrix) => visit(&matrix.selector, wanted, found),
        ExprKind::Subquery(subquery) => visit(&subquery.expr, wanted, found),
        ExprKind::Call(call) => visit_call(call, wanted, found),
        ExprKind::Aggregate(aggregate) => visit_aggregate(aggregate, found),
        ExprKind::Binary(binary) => visit_chain(binary, wanted, found),
        ExprKind::Unary(unary) => visit(&unary.expr, wanted, found),
        ExprKind::Paren(inner) => visit(inner, wanted, found),
    }
}

fn visit_call(call: &Call, wanted: LabelSet, found: &mut Vec<SelectorUse>) {
    if call.function.name == "info" {
        return visit_info(call, found);
    }
    let wanted = wanted_by_call(call, wanted);
    for arg in &call.args {
        // A number has no labels.
        let is_scalar = arg.value_type() == ValueType::Scalar;
        visit(arg, if is_scalar { LabelSet::none() } else { wanted.clone() }, found);
    }
}

/// Returns the labels that a call uses of the vectors that it is given.
fn wanted_by_call(call: &Call, wanted: LabelSet) -> LabelSet {
    match call.function.name {
        // What they give has nothing of the labels of the series.
        "scalar" | "absent" | "absent_over_time" => LabelSet::none(),
        "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => {
            wanted.union(LabelSet::only(&["le".to_owned()]))
        }
        // The label is written, or stays as it was.
        "label_replace" => wanted.union(named_by(call, &[1, 3])),
        "label_join" => wanted.union(named_by(call, &Vec::from_iter(1..call.args.len()))),
        // The order of the result depends on labels.
        "sort_by_label" | "sort_by_label_desc" => LabelSet::all(),
        _ => wanted,
    }
}

/// Returns the labels that the arguments at some positions name.
fn named_by(call: &Call, positions: &[usize]) -> LabelSet {
    let name = |position: &usize| match &call.args.get(*position)?.kind {
        ExprKind::String(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    LabelSet::only(&Vec::from_iter(positions.iter().filter_map(name)))
}

/// `info` joins on labels that it finds by itself, and its second argument only looks like a selector of its own.
fn visit_info(call: &Call, found: &mut Vec<SelectorUse>) {
    let [base, rest @ ..] = call.args.as_slice() else { return };
    visit(base, LabelSet::all(), found);
    let mut matchers = match rest.first().map(|arg| &arg.kind) {
        Some(ExprKind::Vector(selector)) => selector.matchers.clone(),
        _ => Vec::new(),
    };
    if !matchers.iter().any(|matcher| matcher.name() == METRIC_NAME) {
        matchers.push(Matcher::equal(METRIC_NAME, INFO_METRIC));
    }
    // Matchers of data labels do not select info series: what has no such label is joined as well.
    matchers.retain(|matcher| matcher.name() == METRIC_NAME);
    found.push(SelectorUse { matchers, labels: LabelSet::all() });
}

fn visit_aggregate(aggregate: &Aggregate, found: &mut Vec<SelectorUse>) {
    let wanted = match aggregate.op {
        // The series come out whole; of equal values the order of labels decides.
        AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio => LabelSet::all(),
        _ if aggregate.without => LabelSet::all_but(&aggregate.grouping),
        _ => LabelSet::only(&aggregate.grouping),
    };
    visit(&aggregate.expr, wanted, found);
    aggregate.param.iter().for_each(|param| visit(param, LabelSet::none(), found));
}

/// Goes from the last operator of a chain to the first, which takes no stack.
fn visit_chain(binary: &Binary, mut wanted: LabelSet, found: &mut Vec<SelectorUse>) {
    let (first, links) = binary.chain();
    for link in links.iter().rev() {
        let (of_left, of_right) = wanted_by_sides(link, wanted);
        visit(&link.rhs, of_right, found);
        wanted = of_left;
    }
    visit(first, wanted, found);
}

/// Returns the labels that an operator uses of its left side and of its right side.
fn wanted_by_sides(binary: &Binary, wanted: LabelSet) -> (LabelSet, LabelSet) {
    let Some(matching) = &binary.matching else { return (wanted.clone(), wanted) };
    let matched = matched(matching);
    let one = || matched.clone().union(LabelSet::only(&matching.include));
    match (binary.op, matching.cardinality) {
        (BinaryOp::And | BinaryOp::Unless, _) => (wanted.union(matched.clone()), matched),
        (BinaryOp::Or, _) => (wanted.clone().union(matched.clone()), wanted.union(matched)),
        (_, Cardinality::ManyToOne) => (wanted.union(matched.clone()), one()),
        (_, Cardinality::OneToMany) => (one(), wanted.union(matched.clone())),
        // Of series that match one to one, the labels that are matched stay, and no others.
        (_, Cardinality::OneToOne | Cardinality::ManyToMany) => (matched.clone(), matched),
    }
}

fn matched(matching: &VectorMatching) -> LabelSet {
    if matching.on { LabelSet::only(&matching.labels) } else { LabelSet::all_but(&matching.labels) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promql::{CHAIN_LEN_MAX, Features, parse};

    fn features() -> Features {
        let mut features = Features::default();
        features.enable("promql-experimental-functions");
        features
    }

    /// `expect` lists metric and labels: `a: x y`, or `a: all but x`.
    fn check(text: &str, expect: &[&str]) {
        let names = |names: &BTreeSet<String>| names.iter().map(|name| format!(" {name}")).collect::<String>();
        let print = |used: &SelectorUse| {
            let metric = used.matchers.iter().find(|matcher| matcher.name() == METRIC_NAME).unwrap().value().to_owned();
            match &used.labels {
                LabelSet::Only(only) => format!("{metric}:{}", names(only)),
                LabelSet::AllBut(but) if but.is_empty() => format!("{metric}: all"),
                LabelSet::AllBut(but) => format!("{metric}: all but{}", names(but)),
            }
        };
        let mut found: Vec<_> = of(&parse(text, &features()).unwrap()).iter().map(print).collect();
        found.sort();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn a_result_shows_all_labels() {
        check("1", &[]);
        check("-rate(a{x=\"1\"}[5m])", &["a: all"]);
        check("a > 0", &["a: all"]);
        check("max_over_time((a + 1)[1h:])", &["a: all"]);
    }

    #[test]
    fn aggregations_use_what_they_group_by() {
        check("sum(a)", &["a:"]);
        check("sum by (x, y) (rate(a[5m]))", &["a: x y"]);
        check("count without (x) (a)", &["a: all but x"]);
        check("sum(max by (x) (a))", &["a: x"]);
        check("topk by (x) (scalar(b), a)", &["a: all", "b:"]);
        check("limit_ratio(0.5, a)", &["a: all"]);
    }

    #[test]
    fn operators_use_what_they_match() {
        check("sum by (x) (a / on (y) b)", &["a: y", "b: y"]);
        check("a / ignoring (y) b", &["a: all but y", "b: all but y"]);
        check("sum by (x) (a * on (y) group_left (z) b)", &["a: x y", "b: y z"]);
        check("sum by (x) (b * on (y) group_right (z) a)", &["a: x y", "b: y z"]);
        check("sum by (x) (a and on (y) b)", &["a: x y", "b: y"]);
        check("sum by (x) (a or on () b)", &["a: x", "b: x"]);
        check("sum by (x) (a unless b)", &["a: all", "b: all"]);
        check("sum by (x) (a * 2) > scalar(c)", &["a: x", "c:"]);
    }

    #[test]
    fn functions_use_what_they_name() {
        check("absent(a{x=\"1\"})", &["a:"]);
        check("histogram_quantile(0.9, sum by (le) (a))", &["a: le"]);
        check("sum(histogram_quantile(0.9, a))", &["a: le"]);
        check("sum by (x) (label_replace(a, \"x\", \"$1\", \"y\", \"(.*)\"))", &["a: x y"]);
        check("sum by (x) (label_join(a, \"x\", \",\", \"y\", \"z\"))", &["a: , x y z"]);
        check("sum(sort_by_label(a, \"x\"))", &["a: all"]);
        check("sum by (x) (info(a))", &["a: all", "target_info: all"]);
        check("info(a, {__name__=\"b_info\", x=~\".+\"})", &["a: all", "b_info: all"]);
    }

    #[test]
    fn a_label_of_a_matcher_is_used() {
        let used = &of(&parse("sum(a{x=\"1\"})", &features()).unwrap())[0];
        assert!(used.uses_label("x") && !used.uses_label("y"));
    }

    #[test]
    fn long_chains_take_no_stack_and_bounded_memory() {
        let term = |i: usize| format!("or on (l{i}) a");
        let text = format!("a {}", (0..CHAIN_LEN_MAX).map(term).collect::<Vec<_>>().join(" "));
        let found = of(&parse(&text, &features()).unwrap());
        assert_eq!(found.len(), CHAIN_LEN_MAX + 1);
        let sum = |text: &str| of(&parse(&format!("sum(a {text})"), &features()).unwrap());
        let many = (0..=LABELS_MAX).map(|i| format!("l{i}")).collect::<Vec<_>>().join(", ");
        assert_eq!(sum(&format!("+ on ({many}) b"))[0].labels, LabelSet::all());
    }
}
