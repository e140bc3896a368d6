//! Finds the series that an expression selects, and the labels that its value depends on.
//!
//! The server notes this for each query, and `varve-advise` finds unused metrics and labels by it.
//! The result is conservative: an expression never needs more series or labels than reported.
//! Dropping unselected series or unused labels does not change its value if the remaining label
//! sets stay unique.
//!
//! Labels are propagated from the root to the selectors: the result needs all labels,
//! `sum by (job)` needs only `job` of its input, `a * on (node) b` needs `node` of both sides.

use std::collections::BTreeSet;

use varve_model::Matcher;
use varve_model::labels::METRIC_NAME;

use varve_promql::ast::{
    Aggregate, AggregateOp, Binary, BinaryOp, Call, Cardinality, Expr, ExprKind, ValueType,
    VectorMatching,
};

/// Maximum number of names in a set; a larger set becomes [`LabelSet::all`].
pub const LABELS_MAX: usize = 64;

/// The default metric of `info`.
const INFO_METRIC: &str = "target_info";

/// A set of label names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LabelSet {
    /// The listed labels.
    Only(BTreeSet<String>),
    /// All labels except the listed ones.
    AllBut(BTreeSet<String>),
}

/// A selector of an expression, and the labels of its series that the expression uses.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectorUse {
    /// The matchers of the selector.
    pub matchers: Vec<Matcher>,
    /// The labels that the value depends on, without those that only matchers use.
    pub labels: LabelSet,
}

/// Returns the usage of each selector of an expression, including repeated ones.
#[must_use]
pub fn of(expr: &Expr) -> Vec<SelectorUse> {
    let mut found = Vec::new();
    let mut pending = vec![(expr, LabelSet::all())];
    while let Some((expr, used)) = pending.pop() {
        visit(expr, used, &mut found, &mut pending);
    }
    found
}

impl LabelSet {
    /// Returns the set of all labels.
    #[must_use]
    pub fn all() -> Self {
        Self::AllBut(BTreeSet::new())
    }

    /// Returns the empty set.
    #[must_use]
    pub fn none() -> Self {
        Self::Only(BTreeSet::new())
    }

    /// Returns `true` if a label is in the set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::Only(names) => names.contains(name),
            Self::AllBut(names) => !names.contains(name),
        }
    }

    /// Returns the union of two sets; all labels if it has more than [`LABELS_MAX`] names.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let united = match (self, other) {
            (Self::Only(mut a), Self::Only(b)) => {
                a.extend(b);
                Self::Only(a)
            }
            (Self::AllBut(a), Self::AllBut(b)) => {
                Self::AllBut(a.intersection(&b).cloned().collect())
            }
            (Self::Only(only), Self::AllBut(mut but))
            | (Self::AllBut(mut but), Self::Only(only)) => {
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
        if names.len() > LABELS_MAX {
            Self::all()
        } else {
            self
        }
    }
}

/// Expressions to visit, with the labels that their parents use of them.
type Pending<'e> = Vec<(&'e Expr, LabelSet)>;

/// Visits an expression whose parent uses the labels `used` of it. Appends its children to
/// `pending`.
fn visit<'e>(
    expr: &'e Expr,
    used: LabelSet,
    found: &mut Vec<SelectorUse>,
    pending: &mut Pending<'e>,
) {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Vector(selector) => {
            found.push(SelectorUse {
                matchers: selector.matchers.clone(),
                labels: used,
            });
        }
        ExprKind::Matrix(matrix) => pending.push((&matrix.selector, used)),
        ExprKind::Subquery(subquery) => pending.push((&subquery.expr, used)),
        ExprKind::Call(call) => visit_call(call, used, found, pending),
        ExprKind::Aggregate(aggregate) => visit_aggregate(aggregate, pending),
        ExprKind::Binary(binary) => visit_chain(binary, used, pending),
        ExprKind::Unary(unary) => pending.push((&unary.expr, used)),
        ExprKind::Paren(inner) => pending.push((inner, used)),
    }
}

fn visit_call<'e>(
    call: &'e Call,
    used: LabelSet,
    found: &mut Vec<SelectorUse>,
    pending: &mut Pending<'e>,
) {
    if call.function.name == "info" {
        return visit_info(call, found, pending);
    }
    let used = used_by_call(call, used);
    for arg in &call.args {
        // Scalars have no labels.
        let is_scalar = arg.value_type() == ValueType::Scalar;
        pending.push((
            arg,
            if is_scalar {
                LabelSet::none()
            } else {
                used.clone()
            },
        ));
    }
}

/// Returns the labels of the vector arguments that a call uses.
fn used_by_call(call: &Call, used: LabelSet) -> LabelSet {
    match call.function.name {
        // Results of these functions have no labels of the argument's series.
        "scalar" | "absent" | "absent_over_time" => LabelSet::none(),
        "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => {
            used.union(LabelSet::only(&["le".to_owned()]))
        }
        // The destination label is either set or unchanged.
        "label_replace" => used.union(named_by(call, &[1, 3])),
        // The separator counts as a label too, at worst as one that is not needed.
        "label_join" => used.union(named_by(call, &Vec::from_iter(1..call.args.len()))),
        // The order of the result depends on all labels.
        "sort_by_label" | "sort_by_label_desc" => LabelSet::all(),
        _ => used,
    }
}

/// Returns the label names given by the arguments at `positions`.
fn named_by(call: &Call, positions: &[usize]) -> LabelSet {
    LabelSet::only(&Vec::from_iter(positions.iter().filter_map(|position| {
        match &call.args.get(*position)?.kind {
            ExprKind::String(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    })))
}

/// Visits a call of `info`, which joins on fixed labels. Its second argument is not an independent
/// selector.
fn visit_info<'e>(call: &'e Call, found: &mut Vec<SelectorUse>, pending: &mut Pending<'e>) {
    let [base, rest @ ..] = call.args.as_slice() else {
        return;
    };
    pending.push((base, LabelSet::all()));
    let mut matchers = match rest.first().map(|arg| &arg.kind) {
        Some(ExprKind::Vector(selector)) => selector.matchers.clone(),
        _ => Vec::new(),
    };
    if !matchers.iter().any(|matcher| matcher.name() == METRIC_NAME) {
        matchers.push(Matcher::equal(METRIC_NAME, INFO_METRIC));
    }
    // Matchers on data labels do not restrict the info series: series without such a label are
    // joined too.
    matchers.retain(|matcher| matcher.name() == METRIC_NAME);
    found.push(SelectorUse {
        matchers,
        labels: LabelSet::all(),
    });
}

fn visit_aggregate<'e>(aggregate: &'e Aggregate, pending: &mut Pending<'e>) {
    let used = match aggregate.op {
        // The result has all labels, and their order decides between equal values.
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio => LabelSet::all(),
        _ if aggregate.without => LabelSet::all_but(&aggregate.grouping),
        _ => LabelSet::only(&aggregate.grouping),
    };
    pending.push((&aggregate.expr, used));
    pending.extend(
        aggregate
            .param
            .iter()
            .map(|param| (&**param, LabelSet::none())),
    );
}

/// Visits a chain of operators from last to first without recursion.
fn visit_chain<'e>(binary: &'e Binary, mut used: LabelSet, pending: &mut Pending<'e>) {
    let (first, links) = binary.chain();
    for link in links.iter().rev() {
        let (left_labels, right_labels) = used_by_sides(link, used);
        pending.push((&link.rhs, right_labels));
        used = left_labels;
    }
    pending.push((first, used));
}

/// Returns the labels that an operator uses of its left and of its right side.
fn used_by_sides(binary: &Binary, used: LabelSet) -> (LabelSet, LabelSet) {
    let Some(matching) = &binary.matching else {
        return (used.clone(), used);
    };
    let matched = matched(matching);
    let one = || matched.clone().union(LabelSet::only(&matching.include));
    match (binary.op, matching.cardinality) {
        (BinaryOp::And | BinaryOp::Unless, _) => (used.union(matched.clone()), matched),
        (BinaryOp::Or, _) => (used.clone().union(matched.clone()), used.union(matched)),
        (_, Cardinality::ManyToOne) => (used.union(matched.clone()), one()),
        (_, Cardinality::OneToMany) => (one(), used.union(matched.clone())),
        // The result of a one-to-one match has only the matching labels.
        (_, Cardinality::OneToOne | Cardinality::ManyToMany) => (matched.clone(), matched),
    }
}

fn matched(matching: &VectorMatching) -> LabelSet {
    if matching.on {
        LabelSet::only(&matching.labels)
    } else {
        LabelSet::all_but(&matching.labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_promql::{CHAIN_LEN_MAX, Features, parse};

    fn features() -> Features {
        let mut features = Features::default();
        features.enable("promql-experimental-functions");
        features
    }

    /// Checks the usage of `text`. Each string in `expect` has a metric and its labels: `a: x y`,
    /// or `a: all but x`.
    fn check(text: &str, expect: &[&str]) {
        let names = |names: &BTreeSet<String>| {
            names
                .iter()
                .map(|name| format!(" {name}"))
                .collect::<String>()
        };
        let print = |used: &SelectorUse| {
            let metric = used
                .matchers
                .iter()
                .find(|matcher| matcher.name() == METRIC_NAME)
                .unwrap()
                .value()
                .to_owned();
            match &used.labels {
                LabelSet::Only(only) => format!("{metric}:{}", names(only)),
                LabelSet::AllBut(but) if but.is_empty() => format!("{metric}: all"),
                LabelSet::AllBut(but) => format!("{metric}: all but{}", names(but)),
            }
        };
        let mut found: Vec<_> = of(&parse(text, &features()).unwrap())
            .iter()
            .map(print)
            .collect();
        found.sort();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn the_result_uses_all_labels() {
        check("1", &[]);
        check("-rate(a{x=\"1\"}[5m])", &["a: all"]);
        check("a > 0", &["a: all"]);
        check("max_over_time((a + 1)[1h:])", &["a: all"]);
    }

    #[test]
    fn aggregations_use_the_grouping_labels() {
        check("sum(a)", &["a:"]);
        check("sum by (x, y) (rate(a[5m]))", &["a: x y"]);
        check("count without (x) (a)", &["a: all but x"]);
        check("sum(max by (x) (a))", &["a: x"]);
        check("topk by (x) (scalar(b), a)", &["a: all", "b:"]);
        check("limit_ratio(0.5, a)", &["a: all"]);
    }

    #[test]
    fn operators_use_the_matching_labels() {
        check("sum by (x) (a / on (y) b)", &["a: y", "b: y"]);
        check("a / ignoring (y) b", &["a: all but y", "b: all but y"]);
        check(
            "sum by (x) (a * on (y) group_left (z) b)",
            &["a: x y", "b: y z"],
        );
        check(
            "sum by (x) (b * on (y) group_right (z) a)",
            &["a: x y", "b: y z"],
        );
        check("sum by (x) (a and on (y) b)", &["a: x y", "b: y"]);
        check("sum by (x) (a or on () b)", &["a: x", "b: x"]);
        check("sum by (x) (a unless b)", &["a: all", "b: all"]);
        check("sum by (x) (a * 2) > scalar(c)", &["a: x", "c:"]);
    }

    #[test]
    fn functions_use_the_labels_they_name() {
        check("absent(a{x=\"1\"})", &["a:"]);
        check("histogram_quantile(0.9, sum by (le) (a))", &["a: le"]);
        check("sum(histogram_quantile(0.9, a))", &["a: le"]);
        check(
            "sum by (x) (label_replace(a, \"x\", \"$1\", \"y\", \"(.*)\"))",
            &["a: x y"],
        );
        check(
            "sum by (x) (label_join(a, \"x\", \",\", \"y\", \"z\"))",
            &["a: , x y z"],
        );
        check("sum(sort_by_label(a, \"x\"))", &["a: all"]);
        check("sum by (x) (info(a))", &["a: all", "target_info: all"]);
        check(
            "info(a, {__name__=\"b_info\", x=~\".+\"})",
            &["a: all", "b_info: all"],
        );
    }

    #[test]
    fn long_chains_take_no_stack_and_bounded_memory() {
        let term = |i: usize| format!("or on (l{i}) a");
        let text = format!(
            "a {}",
            (0..CHAIN_LEN_MAX).map(term).collect::<Vec<_>>().join(" ")
        );
        let found = of(&parse(&text, &features()).unwrap());
        assert_eq!(found.len(), CHAIN_LEN_MAX + 1);
        let sum = |text: &str| of(&parse(&format!("sum(a {text})"), &features()).unwrap());
        let many = (0..=LABELS_MAX)
            .map(|i| format!("l{i}"))
            .collect::<Vec<_>>()
            .join(", ");
        assert_eq!(sum(&format!("+ on ({many}) b"))[0].labels, LabelSet::all());
    }
}
