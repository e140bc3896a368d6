//! Evaluation of matchers, which heads and blocks share.
//!
//! A matcher works on the values of its label, not on series. An absent label is the empty value. A
//! matcher that rejects the empty value names the values whose series it keeps. A matcher that
//! accepts the empty value names the values whose series it drops. Matchers that keep series come
//! first, and among them those with few values, because they leave few candidates to the others.

use roaring::RoaringBitmap;
use varve_context::QueryContext;
use varve_model::{MatchOp, Matcher};

use crate::error::Result;

/// The data that matchers are evaluated on: label values and their series, by slot or ordinal.
pub(crate) trait Terms {
    /// Returns all series.
    fn all(&self) -> RoaringBitmap;

    /// Returns the number of series.
    fn n_series(&self) -> u64;

    /// Adds the series with this value, which is not empty, to `set`.
    fn unite(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()>;

    /// Keeps in `set` only the series with this value, which is not empty.
    fn intersect(&mut self, name: &str, value: &str, set: &mut RoaringBitmap) -> Result<()>;

    /// Adds to `set` the series of all values that pass.
    fn unite_where(&mut self, values: &ValueTest<'_>, set: &mut RoaringBitmap) -> Result<()>;

    /// If reading the value of each series in `set` is cheaper than reading all values with the
    /// prefix, keeps only the series whose value (empty if they have none) passes, and returns
    /// `true`. Otherwise returns `false`.
    fn retain_where(&mut self, _values: &ValueTest<'_>, _set: &mut RoaringBitmap) -> Result<bool> {
        Ok(false)
    }

    /// Returns `true` if it is known that every series has a label of this name.
    fn is_on_all(&mut self, _name: &str) -> Result<bool> {
        Ok(false)
    }

    /// Returns `true` if it is known that more than `n_series` series have a value that passes.
    fn passes_more(&mut self, _values: &ValueTest<'_>, _n_series: u64) -> Result<bool> {
        Ok(false)
    }

    /// Returns the cost of finding the series with this value, for comparison with other values.
    fn weight(&mut self, name: &str, value: &str) -> Result<u64>;
}

/// A test of the values of a label.
pub(crate) struct ValueTest<'a> {
    pub(crate) ctx: &'a QueryContext,
    /// The label.
    pub(crate) name: &'a str,
    /// Values with another prefix cannot pass. An implementation that cannot skip them may test
    /// them.
    pub(crate) prefix: &'a str,
    /// Returns `true` if a value passes.
    pub(crate) passes: &'a dyn Fn(&str) -> Result<bool>,
}

/// Values or lists to visit between two checks of the request. Fewer than the usual number, as each
/// may read a page.
pub(crate) const TERMS_PER_CHECK: usize = 256;

/// The series that may pass all matchers.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    /// The series that pass all matchers but the postponed ones. `None`: all series.
    pub(crate) series: Option<RoaringBitmap>,
    /// The matchers that the series were not tested with.
    pub(crate) postponed: Vec<&'a Matcher>,
}

impl Candidates<'_> {
    /// Returns all series.
    pub(super) fn all() -> Self {
        Self {
            series: None,
            postponed: Vec::new(),
        }
    }
}

/// Returns the series that pass all matchers.
///
/// # Errors
/// If the request is interrupted or exceeds its memory limit, and all errors of `terms`.
pub(crate) fn select(
    ctx: &QueryContext,
    terms: &mut impl Terms,
    matchers: &[Matcher],
) -> Result<RoaringBitmap> {
    let found = candidates(ctx, terms, matchers, u64::MAX)?;
    debug_assert!(found.postponed.is_empty(), "no set is that large");
    Ok(found.series.unwrap_or_else(|| terms.all()))
}

/// Returns the series of `set` that pass all matchers.
///
/// # Errors
/// The errors of [`select`].
pub(crate) fn select_in(
    ctx: &QueryContext,
    terms: &mut impl Terms,
    matchers: &[Matcher],
    set: RoaringBitmap,
) -> Result<RoaringBitmap> {
    let found = narrow(ctx, terms, matchers, u64::MAX, Some(set))?;
    Ok(found.series.unwrap_or_default())
}

/// Returns the series that may pass all matchers. Postpones the matchers that more than `n_many`
/// series pass, or that drop some of that many, if finding these series visits values.
///
/// # Errors
/// The errors of [`select`].
pub(crate) fn candidates<'a>(
    ctx: &QueryContext,
    terms: &mut impl Terms,
    matchers: &'a [Matcher],
    n_many: u64,
) -> Result<Candidates<'a>> {
    narrow(ctx, terms, matchers, n_many, None)
}

/// Returns the candidates of `selected`, or of all series if it is `None`, as [`candidates`] does.
fn narrow<'a>(
    ctx: &QueryContext,
    terms: &mut impl Terms,
    matchers: &'a [Matcher],
    n_many: u64,
    mut selected: Option<RoaringBitmap>,
) -> Result<Candidates<'a>> {
    ctx.check()?;
    let mut charge = ctx.charge();
    // The terms of a head are read under its lock, so that waiting is not allowed.
    charge.grow_without_waiting(sets_size(terms.n_series()))?;
    let mut ordered = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        // Normally compiled before, without a lock.
        matcher.compile(ctx)?;
        let named = Named::by(matcher);
        ordered.push((rank(terms, matcher, &named)?, matcher, named));
    }
    ordered.sort_by_key(|(rank, ..)| *rank);
    let mut postponed = Vec::new();
    for (_, matcher, named) in ordered {
        if selected.as_ref().is_some_and(RoaringBitmap::is_empty) {
            break;
        }
        // Fast path: `{__name__=~".+"}` keeps all series.
        if keeps_every_value(matcher) && terms.is_on_all(matcher.name())? {
            continue;
        }
        let n_left = selected
            .as_ref()
            .map_or_else(|| terms.n_series(), RoaringBitmap::len);
        if n_left > n_many && passes_many(ctx, terms, matcher, &named, n_many)? {
            postponed.push(matcher);
            continue;
        }
        apply(ctx, terms, matcher, named, &mut selected)?;
    }
    Ok(Candidates {
        series: selected,
        postponed,
    })
}

/// Returns `true` if a matcher accepts every value but the empty one. Other matchers may do so too.
fn keeps_every_value(matcher: &Matcher) -> bool {
    match matcher.op() {
        MatchOp::Regexp => matcher.value() == ".+",
        MatchOp::NotEqual => matcher.value_bytes().is_empty(),
        MatchOp::Equal | MatchOp::NotRegexp => false,
    }
}

/// Returns `true` if more than `n_many` series pass a matcher, or if it only drops series, and it
/// does not list its values.
fn passes_many(
    ctx: &QueryContext,
    terms: &mut impl Terms,
    matcher: &Matcher,
    named: &Named<'_>,
    n_many: u64,
) -> Result<bool> {
    let Named::Prefixed(prefix) = named else {
        return Ok(false);
    };
    if matcher.matches_empty() {
        return Ok(true);
    }
    let values = ValueTest {
        ctx,
        name: matcher.name(),
        prefix,
        passes: &|value| Ok(matcher.matches_in(ctx, value)?),
    };
    terms.passes_more(&values, n_many)
}

/// Returns the maximum size of the sets of an evaluation in bytes: the present selection, and a
/// union, as bits and as a set.
fn sets_size(n_series: u64) -> usize {
    usize::try_from(n_series / 8 * 3).unwrap_or(usize::MAX)
}

/// The values that a matcher keeps or drops.
pub(super) enum Named<'a> {
    /// One value.
    One(&'a str),
    /// Listed values.
    Listed(&'a [String]),
    /// The values that pass the matcher, all of which begin with this prefix.
    Prefixed(&'a str),
}

impl<'a> Named<'a> {
    /// Returns the values of a matcher.
    pub(super) fn by(matcher: &'a Matcher) -> Self {
        // `=` and `=~` keep the values that they name. `!=` and `!~` drop them. The empty value
        // reverses this: `=""` drops every existing value, `!=""` keeps it.
        let keeps = !matcher.matches_empty();
        let is_plain = matches!(matcher.op(), MatchOp::Equal | MatchOp::Regexp) == keeps;
        match matcher.regexp() {
            Some(regexp) if regexp.matches_all() => Self::Listed(&[]),
            Some(regexp) if is_plain => regexp
                .literals()
                .map_or_else(|| Self::Prefixed(regexp.prefix()), Self::Listed),
            None if is_plain => Self::One(matcher.value()),
            _ => Self::Prefixed(""),
        }
    }
}

/// Returns the rank of a matcher. Lower ranks are evaluated first.
fn rank(terms: &mut impl Terms, matcher: &Matcher, named: &Named) -> Result<(u8, u64)> {
    Ok(match named {
        _ if matcher.matches_empty() => (3, 0),
        Named::One(value) => (0, terms.weight(matcher.name(), value)?),
        Named::Listed(_) => (1, 0),
        Named::Prefixed(_) => (2, 0),
    })
}

/// Narrows `selected`, which begins with all series, to the series that pass a matcher.
fn apply(
    ctx: &QueryContext,
    terms: &mut impl Terms,
    matcher: &Matcher,
    named: Named<'_>,
    selected: &mut Option<RoaringBitmap>,
) -> Result<()> {
    let name = matcher.name();
    let keeps = !matcher.matches_empty();
    let is_done = match (&named, selected.as_mut()) {
        // Fast path: one value.
        (Named::One(value), Some(set)) if keeps => {
            terms.intersect(name, value, set).map(|()| true)?
        }
        // Fast path: few candidates, many values.
        (Named::Prefixed(prefix), Some(set)) => {
            let values = ValueTest {
                ctx,
                name,
                prefix,
                passes: &|value| Ok(matcher.matches_in(ctx, value)?),
            };
            terms.retain_where(&values, set)?
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
                ctx.check_every(TERMS_PER_CHECK, i)?;
                terms.unite(name, value, &mut union)?;
            }
        }
        Named::Prefixed(prefix) => {
            let values = ValueTest {
                ctx,
                name,
                prefix,
                passes: &|value| Ok(matcher.matches_in(ctx, value)? == keeps),
            };
            terms.unite_where(&values, &mut union)?;
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

    /// Series from 0 on with one label each. Records the visited values.
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
            self.values
                .values()
                .fold(RoaringBitmap::new(), |all, list| all | list)
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

        fn unite_where(&mut self, test: &ValueTest<'_>, set: &mut RoaringBitmap) -> Result<()> {
            let values: Vec<_> = self
                .values
                .keys()
                .copied()
                .filter(|value| value.starts_with(test.prefix))
                .collect();
            for value in values {
                let list = self.find(value);
                if (test.passes)(value)? {
                    *set |= list;
                }
            }
            Ok(())
        }
    }

    #[test]
    fn only_values_that_can_match_are_visited() {
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
            let lists = (0..)
                .zip(values)
                .map(|(i, value)| (value, [i].into_iter().collect()))
                .collect();
            let mut terms = Noted {
                values: lists,
                looked_at: Vec::new(),
            };
            let matcher = Matcher::new(op, "x", text).unwrap();
            let selected = select(
                &QueryContext::unbounded(),
                &mut terms,
                std::slice::from_ref(&matcher),
            )
            .unwrap();
            assert_eq!(
                (terms.looked_at.join(" "), selected.len()),
                (looked_at.to_owned(), n_selected),
                "{matcher}"
            );
        }
    }

    #[test]
    fn an_empty_selection_ends_the_evaluation() {
        let mut terms = Noted {
            values: BTreeMap::new(),
            looked_at: Vec::new(),
        };
        let matchers = [
            Matcher::new(MatchOp::Regexp, "x", "b.+").unwrap(),
            Matcher::equal("x", "a"),
        ];
        assert!(
            select(&QueryContext::unbounded(), &mut terms, &matchers)
                .unwrap()
                .is_empty()
        );
        assert_eq!(terms.looked_at, ["a"]);
    }

    #[test]
    fn the_cheapest_value_comes_first() {
        let lists = [("many", 0..9), ("few", 3..5), ("some", 4..9)];
        let values = lists
            .into_iter()
            .map(|(value, list)| (value, list.collect()))
            .collect();
        let mut terms = Noted {
            values,
            looked_at: Vec::new(),
        };
        let matchers = ["many", "few", "some"].map(|value| Matcher::equal("x", value));
        let selected = select(&QueryContext::unbounded(), &mut terms, &matchers).unwrap();
        assert_eq!(
            (terms.looked_at.join(" "), selected.min(), selected.len()),
            ("few some many".to_owned(), Some(4), 1)
        );
    }
}
