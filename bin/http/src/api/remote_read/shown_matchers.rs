//! Matchers of remote read on external labels. A response shows an external label on each series
//! that has no label of its name, so these matchers apply to the labels that are shown.

use std::collections::BTreeMap;

use varve_context::QueryContext;
use varve_model::{Labels, Matcher};

use crate::error::Result;

/// The matchers of a query.
#[derive(Debug)]
pub(super) struct ShownMatchers<'a> {
    external: &'a BTreeMap<String, String>,
    /// Matchers that the store applies.
    pub(super) stored: Vec<Matcher>,
    /// Matchers on external labels. The store does not apply them, since a series without the label
    /// may match.
    on_external: Vec<Matcher>,
}

impl<'a> ShownMatchers<'a> {
    pub(super) fn new(matchers: Vec<Matcher>, external: &'a BTreeMap<String, String>) -> Self {
        let (on_external, stored) = matchers
            .into_iter()
            .partition(|matcher| external.contains_key(matcher.name()));
        Self {
            external,
            stored,
            on_external,
        }
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

#[cfg(test)]
mod tests {
    use varve_model::MatchOp;
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
            let matchers = ShownMatchers::new(matchers, &external);
            assert_eq!(matchers.stored, [Matcher::equal("__name__", "up")]);
            let ctx = QueryContext::unbounded();
            let found = [&stored, &own].map(|labels| matchers.match_shown(&ctx, labels).unwrap());
            assert_eq!(found, [shows.0, shows.1], "{op:?} {value:?}");
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
