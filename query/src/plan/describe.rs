//! Describes each operator of a plan in one line, for `explain`.

use std::fmt::Write;

use varve_model::MatchOp;
use varve_model::labels::{METRIC_NAME, is_legacy_name};
use varve_promql::ast::{RangeExtension, UnaryOp};
use varve_promql::decimal::Plain;
use varve_promql::duration::print_duration;

use super::tree::{Aggregate, Chain, Plan, PlanKind, Selector, Shift};

/// Describes an operator, without its children.
pub(crate) fn describe(plan: &Plan) -> String {
    match &plan.kind {
        PlanKind::Number(value) => Plain(*value).to_string(),
        PlanKind::String(text) => format!("{:?}", String::from_utf8_lossy(text)),
        PlanKind::Selector(selector) => describe_selector(selector, None),
        PlanKind::Range(range) => describe_selector(&range.selector, Some(range.range_ms)),
        PlanKind::Subquery(subquery) => {
            let step = subquery.step_ms.map_or_else(String::new, print_duration);
            format!(
                "subquery [{}:{step}]{}",
                print_duration(subquery.range_ms),
                describe_shift(subquery.shift)
            )
        }
        PlanKind::Call(call) => format!("{}()", call.function.name),
        PlanKind::Aggregate(aggregate) => describe_aggregate(aggregate),
        PlanKind::Chain(chain) => describe_chain(chain),
        PlanKind::Sign(UnaryOp::Minus, _) => "-".to_owned(),
        PlanKind::Sign(UnaryOp::Plus, _) => "+".to_owned(),
        PlanKind::StepInvariant(_) => "step invariant".to_owned(),
    }
}

fn describe_selector(selector: &Selector, range_ms: Option<i64>) -> String {
    let name = selector.matchers.iter().find(|matcher| {
        matcher.name() == METRIC_NAME
            && matcher.op() == MatchOp::Equal
            && is_legacy_name(matcher.value())
    });
    let others = selector
        .matchers
        .iter()
        .filter(|matcher| !name.is_some_and(|name| std::ptr::eq(name, *matcher)));
    let others: Vec<_> = others.map(ToString::to_string).collect();
    let mut text = name.map_or_else(String::new, |name| name.value().to_owned());
    if name.is_none() || !others.is_empty() {
        text.push_str(&format!("{{{}}}", others.join(", ")));
    }
    // Writing to a string cannot fail.
    let _infallible = range_ms.map(|range_ms| write!(text, "[{}]", print_duration(range_ms)));
    text.push_str(match selector.extension {
        None => "",
        Some(RangeExtension::Anchored) => " anchored",
        Some(RangeExtension::Smoothed) => " smoothed",
    });
    text.push_str(&describe_shift(selector.shift));
    if selector.skip_values {
        text.push_str(" (without values)");
    } else if selector.skip_buckets {
        text.push_str(" (count and sum only)");
    }
    text
}

fn describe_shift(shift: Shift) -> String {
    let at = shift
        .at_ms
        .map_or_else(String::new, |at_ms| format!(" @ {}", at_ms as f64 / 1000.0));
    let offset = if shift.offset_ms == 0 {
        String::new()
    } else {
        format!(" offset {}", print_duration(shift.offset_ms))
    };
    at + &offset
}

fn describe_aggregate(aggregate: &Aggregate) -> String {
    let Aggregate {
        op,
        grouping,
        without,
        ..
    } = aggregate;
    let modifier = match (without, grouping.is_empty()) {
        (false, true) => String::new(),
        (false, false) => format!(" by ({})", grouping.join(", ")),
        (true, _) => format!(" without ({})", grouping.join(", ")),
    };
    format!("{}{modifier}", op.as_str())
}

fn describe_chain(chain: &Chain) -> String {
    let operators: Vec<_> = chain.links.iter().map(|link| link.op.as_str()).collect();
    operators.join(" ")
}
