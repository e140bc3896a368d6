//! Budgets of teams.

use prometheus::proto::MetricFamily;
use varve_ingest::Receiver;
use varve_ingest::admission::{Amounts, TeamStatus};
use varve_system::metrics::family;

/// Returns the metrics of budgets, and those of teams if there are any.
pub(super) fn teams(receiver: &Receiver) -> Vec<MetricFamily> {
    let (all, teams) = receiver.team_stats();
    let of_all = amounts(all.budget.maximum).map(|(amount, n)| ([amount], n));
    let mut families = vec![family(
        "varve_ingest_new_series_total",
        [([], all.new_series as f64)],
    )];
    families.extend(limits("varve_ingest_budget_maximum", of_all));
    if teams.iter().all(|team| team.name.is_empty()) {
        return families;
    }
    let mut by_amount = |name, amounts_of: fn(&TeamStatus) -> Amounts| {
        let of_team = teams.iter().flat_map(|team| {
            amounts(amounts_of(team)).map(|(amount, n)| ([&*team.name, amount], n))
        });
        families.extend(limits(name, of_team));
    };
    by_amount("varve_ingest_team_guaranteed", |team| {
        team.budget.guaranteed
    });
    by_amount("varve_ingest_team_maximum", |team| team.budget.maximum);
    let by_team = |name, n: fn(&TeamStatus) -> u64| {
        family(
            name,
            teams.iter().map(|team| ([&*team.name], n(team) as f64)),
        )
    };
    families.extend([
        by_team("varve_ingest_team_active_series", |team| {
            team.use_now.active_series
        }),
        by_team("varve_ingest_team_borrowed_series", |team| {
            team.borrowed.active_series
        }),
        by_team("varve_ingest_team_new_series_total", |team| team.new_series),
        by_team("varve_ingest_team_samples_total", |team| team.samples),
        by_team("varve_ingest_team_series_rejected_total", |team| {
            team.series_refused
        }),
    ]);
    families
}

/// Returns the amounts of a budget by the key in the configuration. `None` is unlimited.
fn amounts(amounts: Amounts) -> [(&'static str, Option<u64>); 3] {
    let Amounts {
        active_series,
        new_series_per_second,
        samples_per_second,
    } = amounts;
    [
        ("active_series", active_series),
        ("new_series_per_second", new_series_per_second),
        ("samples_per_second", samples_per_second),
    ]
}

/// Returns a family of limits, if any is set.
fn limits<'a, const N: usize>(
    name: &str,
    limits: impl IntoIterator<Item = ([&'a str; N], Option<u64>)>,
) -> Option<MetricFamily> {
    let mut set = limits
        .into_iter()
        .filter_map(|(labels, limit)| Some((labels, limit? as f64)))
        .peekable();
    set.peek()?;
    Some(family(name, set))
}
