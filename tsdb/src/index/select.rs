//! From matchers to series: the one evaluation that head and blocks share.
//!
//! A matcher works on the values of its label, not on series, and an absent label is the empty value. So a matcher that
//! the empty value fails names values whose series it keeps; one that the empty value passes names values whose series
//! it drops. Matchers that keep come first, those that name few values before the others: they leave little to look at.

use roaring::RoaringBitmap;

use crate::context::QueryContext;
use crate::error::Result;
use crate::matcher::{MatchOp, Matcher};

/// What matchers are evaluated over: label values and the series that have them, by number.
pub(crate) trait Terms {
    /// Returns all series.
    fn all(&self) -> RoaringBitmap;

    /// Counts the series.
    fn n_series(&self) -> u64;

    /// Adds the series that have this value, which is not empty, to `set`.
    fn unite(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()>;

    /// Leaves in `set` only series that have this value, which is not empty.
    fn intersect(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()>;

    /// Adds the series of all values that begin with `prefix` and pass `test` to `set`. Values that do not begin with
    /// `prefix` would not pass; an implementation that cannot skip them may test them.
    fn unite_where(
        &mut self,
        ctx: &QueryContext,
        name: &str,
        prefix: &str,
        test: &dyn Fn(&str) -> bool,
        set: &mut RoaringBitmap,
    ) -> Result<()>;

    /// Leaves in `set` only series whose value, empty if they have none, passes `test`, if looking at each of them is
    /// cheaper than looking at the values that begin with `prefix`; else returns false.
    fn retain_where(
        &mut self,
        _ctx: &QueryContext,
        _name: &str,
        _prefix: &str,
        _test: &dyn Fn(&str) -> bool,
        _set: &mut RoaringBitmap,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Returns how much there is to look at to find the series that have this value, for comparison with other values.
    fn weight(&mut self, name: &str, value: &str) -> Result<u64>;
}

/// Values or lists that may be looked at between two checks of the request. Less than the usual number: each may cost
/// reading a page.
pub(crate) const TERMS_PER_CHECK: usize = 256;

/// Returns the series that pass all matchers.
///
/// # Errors
/// When the request ends or its memory is used up; whatever `terms` fails with.
pub(crate) fn select(ctx: &QueryContext, terms: &mut impl Terms, matchers: &[Matcher]) -> Result<RoaringBitmap> {
    ctx.check()?;
    let mut charge = ctx.charge();
    // The terms of a head are looked at under its lock.
    charge.grow_at_once(sets_size(terms.n_series()))?;
    let mut ordered = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        let named = Named::by(matcher);
        ordered.push((rank(terms, matcher, &named)?, matcher, named));
    }
    ordered.sort_by_key(|(rank, ..)| *rank);
    let mut selected = None;
    for (_, matcher, named) in ordered {
        if selected.as_ref().is_some_and(RoaringBitmap::is_empty) {
            break;
        }
        apply(ctx, terms, matcher, named, &mut selected)?;
    }
    Ok(selected.unwrap_or_else(|| terms.all()))
}

/// Returns the most bytes that the sets of an evaluation take: what is selected so far, and a union.
fn sets_size(n_series: u64) -> usize {
    usize::try_from(n_series / 8 * 2).unwrap_or(usize::MAX)
}

/// The values of its label that a matcher keeps or drops.
enum Named<'a> {
    /// This one.
    One(&'a str),
    /// These.
    Listed(&'a [String]),
    /// Those that the matcher decides on, all of which begin with this.
    Prefixed(&'a str),
}

impl<'a> Named<'a> {
    fn by(matcher: &'a Matcher) -> Self {
        // `=` and `=~` keep what they name, `!=` and `!~` drop it, unless the empty value turns that round: `=""` drops
        // every value there is.
        let keeps = !matcher.matches_empty();
        let is_plain = matches!(matcher.op(), MatchOp::Equal | MatchOp::Regexp) == keeps;
        match matcher.regexp() {
            Some(regexp) if regexp.matches_all() => Self::Listed(&[]),
            Some(regexp) if is_plain => regexp.literals().map_or_else(|| Self::Prefixed(regexp.prefix()), Self::Listed),
            None if is_plain => Self::One(matcher.value()),
            _ => Self::Prefixed(""),
        }
    }
}

/// Orders matchers: the lower, the earlier.
fn rank(terms: &mut impl Terms, matcher: &Matcher, named: &Named) -> Result<(u8, u64)> {
    Ok(match named {
        _ if matcher.matches_empty() => (3, 0),
        Named::One(value) => (0, terms.weight(matcher.name(), value)?),
        Named::Listed(_) => (1, 0),
        Named::Prefixed(_) => (2, 0),
    })
}

/// Narrows `selected`, which begins as all series, to what passes a matcher.
fn apply(
    ctx: &QueryContext,
    terms: &mut impl Terms,
    matcher: &Matcher,
    named: Named<'_>,
    selected: &mut Option<RoaringBitmap>,
) -> Result<()> {
    let (name, keeps) = (matcher.name(), !matcher.matches_empty());
    let is_done = match (&named, selected.as_mut()) {
        // Fast path: one value.
        (Named::One(value), Some(set)) if keeps => terms.intersect(name, value, set).map(|()| true)?,
        // Fast path: few candidates, many values.
        (Named::Prefixed(prefix), Some(set)) => {
            terms.retain_where(ctx, name, prefix, &|value| matcher.matches(value), set)?
        }
        _ => false,
    };
    if is_done {
        return Ok(());
    }
    let mut union = RoaringBitmap::new();
    match named {
        Named::One(value) => terms.unite(name, value, &mut union)?,
        Named::Listed(values) => {
            for (i, value) in values.iter().enumerate() {
                if i % TERMS_PER_CHECK == 0 {
                    ctx.check()?;
                }
                terms.unite(name, value, &mut union)?;
            }
        }
        Named::Prefixed(prefix) => {
            terms.unite_where(ctx, name, prefix, &|value| matcher.matches(value) == keeps, &mut union)?;
        }
    }
    match selected {
        None if keeps => *selected = Some(union),
        Some(set) if keeps => *set &= union,
        _ => *selected.get_or_insert_with(|| terms.all()) -= union,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Series 0 and on with one label each; notes which values were looked at.
    struct Noted {
        values: BTreeMap<&'static str, RoaringBitmap>,
        looked_at: Vec<String>,
    }

    impl Noted {
        fn find(&mut self, value: &str) -> RoaringBitmap {
            self.looked_at.push(value.to_owned());
            self.values.get(value).cloned().unwrap_or_default()
        }
    }

    impl Terms for Noted {
        fn all(&self) -> RoaringBitmap {
            self.values.values().fold(RoaringBitmap::new(), |all, list| all | list)
        }

        fn n_series(&self) -> u64 {
            self.all().len()
        }

        fn unite(&mut self, _: &str, value: &str, set: &mut RoaringBitmap) -> Result<()> {
            *set |= self.find(value);
            Ok(())
        }

        fn intersect(&mut self, _: &str, value: &str, set: &mut RoaringBitmap) -> Result<()> {
            *set &= self.find(value);
            Ok(())
        }

        fn weight(&mut self, _: &str, value: &str) -> Result<u64> {
            Ok(self.values.get(value).map_or(0, RoaringBitmap::len))
        }

        fn unite_where(
            &mut self,
            _: &QueryContext,
            _: &str,
            prefix: &str,
            test: &dyn Fn(&str) -> bool,
            set: &mut RoaringBitmap,
        ) -> Result<()> {
            let values: Vec<_> = self.values.keys().copied().filter(|value| value.starts_with(prefix)).collect();
            for value in values {
                let list = self.find(value);
                if test(value) {
                    *set |= list;
                }
            }
            Ok(())
        }
    }

    #[test]
    fn only_values_that_can_match_are_looked_at() {
        let values = ["ant", "ape", "bat", "bee", "cat"];
        for (op, text, looked_at, n_selected) in [
            (MatchOp::Equal, "bat", "bat", 1),
            (MatchOp::NotEqual, "bat", "bat", 4),
            (MatchOp::Regexp, "bat|cat|dog", "bat cat dog", 2),
            (MatchOp::NotRegexp, "bat|cat", "bat cat", 3),
            (MatchOp::Regexp, "b.+", "bat bee", 2),
            (MatchOp::NotRegexp, "b[a-z]+e", "bat bee", 4),
            (MatchOp::Regexp, ".*", "", 5),
            (MatchOp::NotRegexp, ".*", "", 0),
            (MatchOp::NotEqual, "", "ant ape bat bee cat", 5),
            (MatchOp::Equal, "", "ant ape bat bee cat", 0),
            (MatchOp::Regexp, "|bee", "ant ape bat bee cat", 1),
            (MatchOp::NotRegexp, "|bee", "ant ape bat bee cat", 4),
        ] {
            let lists = (0..).zip(values).map(|(i, value)| (value, [i].into_iter().collect())).collect();
            let mut terms = Noted { values: lists, looked_at: Vec::new() };
            let matcher = Matcher::new(op, "x", text).unwrap();
            let selected = select(&QueryContext::unbounded(), &mut terms, std::slice::from_ref(&matcher)).unwrap();
            assert_eq!((terms.looked_at.join(" "), selected.len()), (looked_at.to_owned(), n_selected), "{matcher}");
        }
    }

    #[test]
    fn nothing_is_looked_at_when_nothing_is_left() {
        let mut terms = Noted { values: BTreeMap::new(), looked_at: Vec::new() };
        let matchers = [Matcher::new(MatchOp::Regexp, "x", "b.+").unwrap(), Matcher::equal("x", "a")];
        assert!(select(&QueryContext::unbounded(), &mut terms, &matchers).unwrap().is_empty());
        assert_eq!(terms.looked_at, ["a"]);
    }

    #[test]
    fn the_value_with_the_least_to_look_at_comes_first() {
        let lists = [("many", 0..9), ("few", 3..5), ("some", 4..9)];
        let values = lists.into_iter().map(|(value, list)| (value, list.collect())).collect();
        let mut terms = Noted { values, looked_at: Vec::new() };
        let matchers = ["many", "few", "some"].map(|value| Matcher::equal("x", value));
        let selected = select(&QueryContext::unbounded(), &mut terms, &matchers).unwrap();
        assert_eq!(
            (terms.looked_at.join(" "), selected.min(), selected.len()),
            ("few some many".to_owned(), Some(4), 1)
        );
    }
}
