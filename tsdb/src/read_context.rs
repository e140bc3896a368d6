//! [`ReadContext`]: the context of a request that reads, with the series that it may read.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use varve_context::QueryContext;
use varve_model::labels::METRIC_NAME;
use varve_model::{Matcher, TimeRange};

use crate::error::Result;

/// A [`QueryContext`], and the matchers that every series of the request must pass: those of its
/// tenant.
///
/// Every read of a [`Db`](crate::Db) by matchers needs one, so that a caller decides once whether a
/// request is restricted, and no read can miss it.
#[derive(Debug, Clone)]
pub struct ReadContext {
    ctx: QueryContext,
    restriction: Arc<[Matcher]>,
}

impl ReadContext {
    /// Creates the context of a request that reads only series that pass `matchers`.
    #[must_use]
    pub fn restricted(ctx: QueryContext, matchers: Arc<[Matcher]>) -> Self {
        Self {
            ctx,
            restriction: matchers,
        }
    }

    /// Creates the context of a request that may read all series.
    #[must_use]
    pub fn unrestricted(ctx: QueryContext) -> Self {
        Self::restricted(ctx, Arc::default())
    }

    /// Returns a context without deadline, limits and restriction, for tools and tests.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::unrestricted(QueryContext::unbounded())
    }

    /// Returns the matchers that every series must pass; none for a request that may read all
    /// series.
    #[must_use]
    pub fn restriction(&self) -> &[Matcher] {
        &self.restriction
    }

    /// Returns `true` if the request may read every series that has certain values of some labels,
    /// whatever its other labels are. `label` returns the value of a label, which may be empty, or
    /// `None` if it may have any. Ignores matchers on the name: the caller checks it.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub fn may_read_all<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> Result<bool> {
        for matcher in self.restriction() {
            if matcher.name() == METRIC_NAME {
                continue;
            }
            // A label with any value may be that of another tenant.
            let Some(value) = label(matcher.name()) else {
                return Ok(false);
            };
            if !matcher.matches_in(self, value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns `matchers` and the restriction.
    pub(crate) fn restrict<'a>(&self, matchers: &'a [Matcher]) -> Cow<'a, [Matcher]> {
        match self.restriction() {
            [] => Cow::Borrowed(matchers),
            restriction => Cow::Owned([matchers, restriction].concat()),
        }
    }

    /// Checks the length of a selection of samples.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) above the limit of the request.
    pub(crate) fn check_range(&self, range: TimeRange) -> Result<()> {
        self.ctx
            .check_range(range.end_ms.abs_diff(range.start_ms))?;
        Ok(())
    }

    /// Returns the end of `range` that the limit of the request allows: for names and values of
    /// labels, which clients request for all of time.
    pub(crate) fn clamp_range(&self, range: TimeRange, now_ms: i64) -> TimeRange {
        let Some(max_ms) = self.ctx.range_ms_max() else {
            return range;
        };
        let end_ms = range.end_ms.min(now_ms.max(range.start_ms));
        let start_ms = end_ms.saturating_sub_unsigned(max_ms);
        TimeRange {
            start_ms: start_ms.max(range.start_ms),
            ..range
        }
    }
}

/// What a request carries besides its restriction.
impl Deref for ReadContext {
    type Target = QueryContext;

    fn deref(&self) -> &QueryContext {
        &self.ctx
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use varve_context::{Limit, MemoryBudget, ReadOptions};

    use super::*;

    #[test]
    fn the_length_of_a_selection_is_limited() {
        let ctx = ReadContext::unbounded();
        let range = |start_ms, end_ms| TimeRange { start_ms, end_ms };
        ctx.check_range(TimeRange::ALL).unwrap();
        assert_eq!(ctx.clamp_range(TimeRange::ALL, 0), TimeRange::ALL);

        let options = ReadOptions {
            range_s_max: Some((Limit::Other("range"), 2)),
            ..ReadOptions::default()
        };
        let memory = MemoryBudget::new(Limit::Other("memory"), usize::MAX);
        let limited = QueryContext::with_options(Duration::MAX, memory, options);
        let ctx = ReadContext::unrestricted(limited);
        ctx.check_range(range(-1000, 1000)).unwrap();
        assert_eq!(
            ctx.check_range(range(0, 2001)).unwrap_err().to_string(),
            "range: 3 exceeds the limit of 2"
        );
        ctx.check_range(TimeRange::ALL).unwrap_err();
        let check = |start_ms, end_ms, expect| {
            assert_eq!(ctx.clamp_range(range(start_ms, end_ms), 9000), expect);
        };
        check(i64::MIN, i64::MAX, range(7000, i64::MAX));
        check(8000, i64::MAX, range(8000, i64::MAX));
        check(1000, 5000, range(3000, 5000));
        check(20_000, 30_000, range(20_000, 30_000));
    }
}
