//! External labels: labels of all series that the configuration sets (`global.external_labels`),
//! and that no series stores. A series' own label of the same name is hidden, as in Thanos.

use std::collections::BTreeMap;

use varve_context::QueryContext;
use varve_model::{MatchOp, Matcher};
use varve_promql::print_label;
use varve_promql::quote::quoted;

use crate::error::{ApiError, Result};
use varve_wire::prometheus::types::LabelMatcher;

pub(super) type ExternalLabels = BTreeMap<String, String>;

/// Splits matchers into those of external labels, which are decided here, and the others. Returns
/// the others, or `None` if an external label does not match.
///
/// # Errors
/// If a matcher is invalid, or the request exceeds its memory limit.
pub(super) fn own_matchers(
    ctx: &QueryContext,
    matchers: &[LabelMatcher],
    external: &ExternalLabels,
) -> Result<Option<Vec<Matcher>>> {
    let matchers = matchers
        .iter()
        .map(LabelMatcher::parse)
        .collect::<Result<_, _>>()
        .map_err(ApiError::bad_data)?;
    without_external(ctx, matchers, external)
}

/// As [`own_matchers`].
///
/// # Errors
/// If the request exceeds its memory limit.
pub(super) fn without_external(
    ctx: &QueryContext,
    matchers: Vec<Matcher>,
    external: &ExternalLabels,
) -> Result<Option<Vec<Matcher>>> {
    let mut own = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        match external.get(matcher.name()) {
            None => own.push(matcher),
            Some(value) if matcher.matches_in(ctx, value)? => {}
            Some(_) => return Ok(None),
        }
    }
    Ok(Some(own))
}

/// Prints matchers as a selector, for lists and logs.
pub(super) fn shown(matchers: &[LabelMatcher]) -> String {
    let mut texts = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        let name = print_label(&matcher.name);
        let op = matcher.op().map_or("?", MatchOp::as_str);
        texts.push(format!("{name}{op}{}", quoted(&matcher.value)));
    }
    format!("{{{}}}", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use varve_promql::print_matchers;

    use super::*;

    #[test]
    fn external_labels_are_decided_here() {
        let external = ExternalLabels::from([("cluster".to_owned(), "a".to_owned())]);
        let check = |matchers: &[(i32, &str, &str)], expect: Result<Option<&str>, &str>| {
            let matcher = |&(kind, name, value): &(i32, &str, &str)| LabelMatcher {
                kind,
                name: name.to_owned(),
                value: value.to_owned(),
            };
            let matchers: Vec<_> = matchers.iter().map(matcher).collect();
            let own = own_matchers(&QueryContext::unbounded(), &matchers, &external);
            let own = own
                .map(|own| own.map(|own| print_matchers(&own)))
                .map_err(|error| error.message);
            assert_eq!(
                own,
                expect
                    .map(|own| own.map(str::to_owned))
                    .map_err(str::to_owned),
                "{}",
                shown(&matchers)
            );
        };
        check(
            &[(0, "cluster", "a"), (0, "job", "x")],
            Ok(Some("{job=\"x\"}")),
        );
        check(
            &[(2, "cluster", "a|b"), (3, "job", "x.+")],
            Ok(Some("{job!~\"x.+\"}")),
        );
        check(&[(1, "cluster", "a"), (0, "job", "x")], Ok(None));
        check(&[(0, "cluster", "a")], Ok(Some("{}")));
        check(&[(4, "a", "b")], Err("invalid matcher type 4"));
    }
}
