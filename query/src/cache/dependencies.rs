//! The samples that the steps of a query depend on, and whether each step can be computed without
//! the others.

use varve_model::TimeRange;
use varve_promql::ast::{At, Duration, DurationExprKind, Expr, ExprKind};
use varve_tsdb::changes::NameGroups;

use crate::eval::Settings;
use crate::functions::Implementation;
use crate::plan::{Call, Plan, PlanKind, Selector, Shift};

/// The samples that a query depends on.
#[derive(Debug)]
pub(crate) struct Dependencies {
    pub(super) samples: Vec<SampleWindow>,
    /// Each step can be computed without the others.
    pub(super) are_steps_independent: bool,
}

/// The samples that a selector reads for each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SampleWindow {
    pub(super) names: NameGroups,
    pub(super) times: WindowTimes,
}

/// A range of times, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WindowTimes {
    /// Relative to the step: from `before_ms` before the step to `after_ms` after it. Both may be
    /// negative.
    OfStep {
        before_ms: i64,
        after_ms: i64,
    },
    Fixed(TimeRange),
}

impl WindowTimes {
    const STEP: Self = Self::OfStep {
        before_ms: 0,
        after_ms: 0,
    };

    /// Returns the times at which an operand with a shift is evaluated.
    fn shifted(self, shift: Shift) -> Self {
        let Shift { offset_ms, at_ms } = shift;
        match (at_ms, self) {
            (Some(_), _) => {
                let time_ms = shift.apply(0);
                Self::Fixed(TimeRange::at(time_ms))
            }
            (
                None,
                Self::OfStep {
                    before_ms,
                    after_ms,
                },
            ) => Self::OfStep {
                before_ms: before_ms.saturating_add(offset_ms),
                after_ms: after_ms.saturating_sub(offset_ms),
            },
            (None, Self::Fixed(TimeRange { start_ms, end_ms })) => Self::Fixed(TimeRange {
                start_ms: start_ms.saturating_sub(offset_ms),
                end_ms: end_ms.saturating_sub(offset_ms),
            }),
        }
    }

    /// Returns the times extended into the past, so that steps every `step_ms` leave no time out.
    fn without_gaps(self, step_ms: i64) -> Self {
        match self {
            Self::OfStep {
                before_ms,
                after_ms,
            } => Self::OfStep {
                before_ms: before_ms.max(step_ms.saturating_sub(after_ms)),
                after_ms,
            },
            Self::Fixed(range) => Self::Fixed(range),
        }
    }

    /// Returns the times extended by `range_ms` into the past.
    fn with_range(self, range_ms: i64) -> Self {
        match self {
            Self::OfStep {
                before_ms,
                after_ms,
            } => Self::OfStep {
                before_ms: before_ms.saturating_add(range_ms),
                after_ms,
            },
            Self::Fixed(TimeRange { start_ms, end_ms }) => Self::Fixed(TimeRange {
                start_ms: start_ms.saturating_sub(range_ms),
                end_ms,
            }),
        }
    }
}

impl Dependencies {
    /// Returns the dependencies of a query, or `None` if its result cannot be cached: it depends on
    /// no samples, or on samples that its selectors do not determine. `expr` is the expression of
    /// `plan`. `step_ms` is 0 for an instant query.
    pub(crate) fn of(expr: &Expr, plan: &Plan, settings: &Settings, step_ms: i64) -> Option<Self> {
        let mut samples = Vec::new();
        visit(plan, WindowTimes::STEP, settings, &mut samples)?;
        if samples.is_empty() {
            return None;
        }
        let evaluates_gaps = evaluates_gaps(plan, step_ms, settings.subquery_step_ms);
        if evaluates_gaps {
            for window in &mut samples {
                window.times = window.times.without_gaps(step_ms);
            }
        }
        samples.sort_unstable();
        samples.dedup();
        let are_steps_independent = !evaluates_gaps
            && !settings.features.delayed_name_removal
            && !settings.features.type_and_unit_labels
            && !depends_on_range(expr)
            && plan.order(settings.subquery_step_ms).is_some();
        Some(Self {
            samples,
            are_steps_independent,
        })
    }
}

/// Appends the samples that an expression reads if it is evaluated at `times`. Returns `None` if
/// the selectors do not determine them.
fn visit(
    plan: &Plan,
    times: WindowTimes,
    settings: &Settings,
    found: &mut Vec<SampleWindow>,
) -> Option<()> {
    match &plan.kind {
        // Without buckets, resets are detected between all samples of the query, and warnings
        // depend on them.
        PlanKind::Selector(selector) if selector.skip_buckets => None,
        PlanKind::Range(range) if range.selector.skip_buckets => None,
        PlanKind::Selector(selector) => read(selector, settings.lookback_ms, times, found),
        PlanKind::Range(range) => read(&range.selector, range.range_ms, times, found),
        PlanKind::Subquery(subquery) => visit(
            &subquery.expr,
            times.shifted(subquery.shift).with_range(subquery.range_ms),
            settings,
            found,
        ),
        PlanKind::Call(call) => visit_call(call, times, settings, found),
        _ => plan
            .children()
            .into_iter()
            .try_for_each(|child| visit(child, times, settings, found)),
    }
}

fn visit_call(
    call: &Call,
    times: WindowTimes,
    settings: &Settings,
    found: &mut Vec<SampleWindow>,
) -> Option<()> {
    use Implementation::{Absent, Info, StartTimestamp, Timestamp};
    call.args
        .iter()
        .try_for_each(|arg| match (call.implementation, &arg.kind) {
            (Info, _) => None,
            // These functions do not read values.
            (Absent | Timestamp | StartTimestamp, PlanKind::Selector(selector)) => {
                read(selector, settings.lookback_ms, times, found)
            }
            _ => visit(arg, times, settings, found),
        })
}

fn read(
    selector: &Selector,
    range_ms: i64,
    times: WindowTimes,
    found: &mut Vec<SampleWindow>,
) -> Option<()> {
    // Anchored and smoothed ranges also read samples around the range.
    selector.extension.is_none().then(|| {
        let names = NameGroups::of_matchers(&selector.matchers);
        found.push(SampleWindow {
            names,
            times: times.shifted(selector.shift).with_range(range_ms),
        });
    })
}

/// Returns `true` if a subquery may also be evaluated between the ranges of two steps of the query.
/// Errors and annotations there concern the whole query.
fn evaluates_gaps(plan: &Plan, step_ms: i64, default_step_ms: i64) -> bool {
    match &plan.kind {
        PlanKind::Subquery(subquery) if subquery.shift.at_ms.is_some() => false,
        PlanKind::Subquery(subquery) => {
            let own_step_ms = subquery.step_ms.unwrap_or(default_step_ms);
            // If the ranges of two steps do not overlap by a step of the subquery, neither do the
            // ranges of a subquery inside, which may leave a gap between them.
            let overlaps = step_ms.saturating_add(own_step_ms) <= subquery.range_ms;
            subquery.range_ms < step_ms
                || step_ms > 0
                    && !overlaps
                    && evaluates_gaps(&subquery.expr, own_step_ms, default_step_ms)
        }
        _ => plan
            .children()
            .into_iter()
            .any(|child| evaluates_gaps(child, step_ms, default_step_ms)),
    }
}

/// Returns `true` if an expression may depend on the start or the end of the query. `step()` is 0
/// if they are equal.
fn depends_on_range(expr: &Expr) -> bool {
    let depends = match &expr.kind {
        ExprKind::Vector(selector) => {
            is_edge(selector.at) || selector.offset.as_ref().is_some_and(is_computed)
        }
        ExprKind::Matrix(matrix) => is_computed(&matrix.range),
        ExprKind::Subquery(subquery) => {
            is_edge(subquery.at)
                || is_computed(&subquery.range)
                || subquery.step.as_ref().is_some_and(is_computed)
                || subquery.offset.as_ref().is_some_and(is_computed)
        }
        ExprKind::Call(call) => matches!(call.function.name, "start" | "end" | "range" | "step"),
        _ => false,
    };
    depends || expr.children().into_iter().any(depends_on_range)
}

fn is_edge(at: Option<At>) -> bool {
    matches!(at, Some(At::Start | At::End))
}

/// Returns `true` for a duration that is neither a literal nor a negated literal.
fn is_computed(duration: &Duration) -> bool {
    matches!(duration, Duration::Expr(expr) if !matches!(expr.kind, DurationExprKind::Number(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::build;
    use crate::steps::Steps;
    use varve_promql::{Features, parse};

    fn dependencies(query: &str) -> Option<Dependencies> {
        let expr = parse(query, &Features::all()).unwrap();
        let plan = build(&expr, Steps::range(0, 600_000, 60_000)).unwrap();
        let settings = Settings {
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            features: Features::default(),
        };
        Dependencies::of(&expr, &plan, &settings, 60_000)
    }

    #[test]
    fn steps_are_independent_unless_order_or_range_matters() {
        for (query, expect) in [
            ("m", true),
            ("{job=\"a\"}", false),
            ("rate(m[5m])", true),
            ("rate({__name__=~\"a|b\"}[5m])", false),
            ("sum by (job) (rate(m[5m]))", true),
            ("sum(m)", true),
            ("sum(sum by (job) (m))", true),
            ("sum(count by (job) (m))", true),
            ("sum(sum by (x) (count by (x, y) (m)))", true),
            ("max(sum by (job) (m))", true),
            ("count(sum by (job) (m))", true),
            ("sum by (job) (m) / sum by (job) (n)", true),
            ("sum(m / n)", true),
            ("sum by (x) (m * on (pod) group_left (x) n)", true),
            ("sum by (x) (n * on (pod) group_right (x) m)", true),
            (
                "sum by (x) (sum by (pod) (m) * on (pod) group_left (x) n)",
                true,
            ),
            ("sum(m and on (pod) n)", true),
            ("sum(m or n)", true),
            ("m or n", true),
            ("m + on (x) fill (0) n", false),
            (
                "histogram_quantile(0.9, sum by (le) (rate(m_bucket[5m])))",
                true,
            ),
            ("label_replace(m, \"a\", \"$1\", \"b\", \"(.*)\")", true),
            ("topk(3, m)", true),
            ("topk(3, sum by (x) (m))", true),
            ("topk(scalar(n), m)", false),
            ("sum(topk(3, m))", true),
            ("count(bottomk(3, m))", true),
            ("limitk(3, m)", true),
            ("limitk(3, sum by (x) (m))", false),
            ("limit_ratio(0.5, m)", true),
            ("sort(m)", false),
            ("m @ 100", true),
            ("m @ start()", false),
            ("rate(m[5m] @ end())", false),
            ("m offset 5m", true),
            ("m offset -5m", true),
            ("m + range()", false),
            ("m + step()", false),
            ("rate(m[5m + 1m])", false),
            ("max_over_time(m[1h:5m])", true),
            ("max_over_time(m[1m:5m])", false),
            ("max_over_time(m[1m:30s])", true),
            ("max_over_time(m[50s:30s])", false),
            ("max_over_time(m[50s:30s] @ 100)", true),
            ("max_over_time(max_over_time(m[50s:30s])[5m:1m])", true),
            ("max_over_time(max_over_time(m[50s:30s])[1m:1m])", false),
            ("max_over_time(sum by (x) (m)[1h:5m])", true),
            ("sum(max_over_time(sum by (x) (m)[1h:5m]))", true),
            ("absent(m)", true),
            ("scalar(m) + time()", true),
            ("m > 2", true),
        ] {
            assert_eq!(
                dependencies(query).unwrap().are_steps_independent,
                expect,
                "{query}"
            );
        }
        for query in [
            "1 + 1",
            "time()",
            "info(m)",
            "histogram_count(rate(m[5m]))",
            "rate(m[5m] smoothed)",
            "m anchored",
        ] {
            assert!(
                parse(query, &Features::all()).is_err() || dependencies(query).is_none(),
                "{query}"
            );
        }
    }

    #[test]
    fn windows_of_samples_follow_ranges_offsets_and_fixed_times() {
        let of_step = |before_ms, after_ms| WindowTimes::OfStep {
            before_ms,
            after_ms,
        };
        let fixed = |start_ms, end_ms| WindowTimes::Fixed(TimeRange { start_ms, end_ms });
        for (query, expect) in [
            ("m", vec![of_step(300_000, 0)]),
            ("m offset 1m", vec![of_step(360_000, -60_000)]),
            ("m offset -1m", vec![of_step(240_000, 60_000)]),
            (
                "rate(m[10m] offset 1m) + m",
                vec![of_step(300_000, 0), of_step(660_000, -60_000)],
            ),
            ("m @ 1000", vec![fixed(700_000, 1_000_000)]),
            ("m @ 1000 offset 1m", vec![fixed(640_000, 940_000)]),
            ("max_over_time(m[1h:1m])", vec![of_step(3_900_000, 0)]),
            (
                "max_over_time((m offset 1m)[1h:1m] offset 2m)",
                vec![of_step(4_080_000, -180_000)],
            ),
            (
                "max_over_time(m[1h:1m] @ 10000)",
                vec![fixed(6_100_000, 10_000_000)],
            ),
            (
                "max_over_time((m @ 10)[1h:1m])",
                vec![fixed(-290_000, 10_000)],
            ),
            (
                "max_over_time(rate(m[5s])[20s:5s] offset 1m)",
                vec![of_step(120_000, -60_000)],
            ),
        ] {
            let found: Vec<_> = dependencies(query)
                .unwrap()
                .samples
                .iter()
                .map(|window| window.times)
                .collect();
            assert_eq!(found, expect, "{query}");
        }
    }
}
