//! Matchers of remote read on external labels. A response shows an external label on each series
//! that has no label of its name, so these matchers apply to the labels that are shown.

use std::collections::BTreeMap;

use varve_context::QueryContext;
use varve_model::{Labels, MatchOp, Matcher};

use crate::error::Result;

/// The matchers of a query.
#[derive(Debug)]
pub(super) struct ShownMatchers<'a> {
    external: &'a BTreeMap<String, String>,
    /// Matchers that the store applies, by its index. They select all series that match, and perhaps
    /// others.
    pub(super) stored: Vec<Matcher>,
    /// Matchers on external labels.
    on_external: Vec<Matcher>,
}

impl<'a> ShownMatchers<'a> {
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(super) fn new(
        ctx: &QueryContext,
        matchers: Vec<Matcher>,
        external: &'a BTreeMap<String, String>,
    ) -> Result<Self> {
        let mut stored = Vec::new();
        let mut on_external = Vec::new();
        for matcher in matchers {
            let Some(external_value) = external.get(matcher.name()) else {
                stored.push(matcher);
                continue;
            };
            // The store sees an empty value where the response shows the external one.
            let shown = matcher.matches_in(ctx, external_value)?;
            let selected = matcher.matches_in(ctx, "")?;
            if !shown && selected {
                stored.push(with_label(matcher.name()));
            }
            if !shown || selected {
                stored.push(matcher.clone());
            }
            on_external.push(matcher);
        }
        Ok(Self {
            external,
            stored,
            on_external,
        })
    }

    /// Returns `true` if the labels that a response shows for a stored series match.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(super) fn match_shown(&self, ctx: &QueryContext, labels: &Labels) -> Result<bool> {
        for matcher in &self.on_external {
            let name = matcher.name();
            let external = self.external.get(name).map_or("", String::as_str);
            let shown = labels.get(name).unwrap_or(external);
            if !matcher.matches_in(ctx, shown)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns a matcher for the series with a label.
fn with_label(name: &str) -> Matcher {
    Matcher::new(MatchOp::NotEqual, name, "").expect("only regular expressions can be invalid")
}

#[cfg(test)]
mod tests {
    use varve_model::MatchOp::{Equal, NotEqual, NotRegexp, Regexp};

    use super::*;

    /// Only the matcher that is equal to an external label was right.
    #[test]
    fn matchers_apply_to_the_labels_of_the_response() {
        let external = BTreeMap::from([("role".to_owned(), "far".to_owned())]);
        let stored = Labels::from_pairs([("__name__", "up")]).unwrap();
        let own = Labels::from_pairs([("__name__", "up"), ("role", "near")]).unwrap();
        let check = |op: MatchOp, value: &str, shows: (bool, bool)| {
            let matchers = vec![
                Matcher::equal("__name__", "up"),
                Matcher::new(op, "role", value).unwrap(),
            ];
            let ctx = QueryContext::unbounded();
            let matchers = ShownMatchers::new(&ctx, matchers, &external).unwrap();
            let found = [&stored, &own].map(|labels| matchers.match_shown(&ctx, labels).unwrap());
            assert_eq!(found, [shows.0, shows.1], "{op:?} {value:?}");
            for (labels, is_shown) in [(&stored, shows.0), (&own, shows.1)] {
                let is_selected = matchers
                    .stored
                    .iter()
                    .all(|matcher| matcher.matches(labels.get(matcher.name()).unwrap_or("")));
                assert!(is_selected || !is_shown, "{op:?} {value:?} {labels}");
            }
            // Without this the store reads all series of the other matchers.
            let is_narrowed = matchers.stored.len() > 1;
            let narrows = !shows.0 || (op, value) == (NotEqual, "near");
            assert_eq!(is_narrowed, narrows, "{op:?} {value:?}");
        };
        check(Equal, "far", (true, false));
        check(Equal, "near", (false, true));
        check(Equal, "", (false, false));
        check(NotEqual, "far", (false, true));
        check(NotEqual, "near", (true, false));
        check(NotEqual, "", (true, true));
        check(Regexp, "fa.*", (true, false));
        check(Regexp, ".*a.*", (true, true));
        check(Regexp, "|x", (false, false));
        check(NotRegexp, "fa.*", (false, true));
        check(NotRegexp, "|x", (true, true));
    }
}
