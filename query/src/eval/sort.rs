//! Sorting of series that ends at the deadline.

use std::cmp::Ordering;

use varve_context::CHECK_INTERVAL;

use super::columns::Limits;
use crate::error::Result;

/// Sorts items. The sort is stable, and checks the deadline between runs of [`CHECK_INTERVAL`]
/// items.
///
/// # Errors
/// [`Error::Limit`](crate::Error::Limit) if the query exceeds its memory limit, and the interrupts
/// of the request.
pub(crate) fn sort_by<T>(
    items: &mut Vec<T>,
    limits: &Limits,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    // Fast path: one run.
    if items.len() <= CHECK_INTERVAL {
        items.sort_by(compare);
        return Ok(());
    }
    let mut charge = limits.ctx.charge();
    charge.grow(2 * items.len() * size_of::<T>())?;
    let mut runs = Vec::new();
    let mut rest = std::mem::take(items).into_iter();
    while rest.len() > 0 {
        limits.check()?;
        let mut part: Vec<T> = rest.by_ref().take(CHECK_INTERVAL).collect();
        part.sort_by(&mut compare);
        runs.push(part);
    }
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len() / 2 + 1);
        let mut pairs = runs.into_iter();
        while let Some(left) = pairs.next() {
            merged.push(match pairs.next() {
                Some(right) => merge(left, right, limits, &mut compare)?,
                None => left,
            });
        }
        runs = merged;
    }
    items.extend(runs.into_iter().flatten());
    Ok(())
}

/// Merges two sorted runs. Equal items of `left` come first.
fn merge<T>(
    left: Vec<T>,
    right: Vec<T>,
    limits: &Limits,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) -> Result<Vec<T>> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let mut left = left.into_iter().peekable();
    let mut right = right.into_iter().peekable();
    while let Some(a) = left.peek()
        && let Some(b) = right.peek()
    {
        if merged.len().is_multiple_of(CHECK_INTERVAL) {
            limits.check()?;
        }
        merged.extend(if compare(b, a) == Ordering::Less {
            right.next()
        } else {
            left.next()
        });
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::columns::SampleLimit;
    use varve_context::Interrupt;
    use varve_tsdb::ReadContext;

    #[test]
    fn the_order_is_that_of_a_stable_sort() {
        let limits = Limits {
            ctx: ReadContext::unbounded(),
            samples: SampleLimit::new(1),
        };
        for n in [
            0,
            1,
            CHECK_INTERVAL,
            CHECK_INTERVAL + 1,
            5 * CHECK_INTERVAL + 7,
        ] {
            let mut items: Vec<_> = (0..n).map(|at| (at * 7919 % 1009, at)).collect();
            let mut expect = items.clone();
            expect.sort();
            sort_by(&mut items, &limits, |a, b| a.0.cmp(&b.0)).unwrap();
            assert_eq!(items, expect, "{n}");
        }
    }

    #[test]
    fn an_interrupt_ends_the_sort_within_a_run() {
        let limits = Limits {
            ctx: ReadContext::unbounded(),
            samples: SampleLimit::new(1),
        };
        let mut n_compared = 0;
        let mut items: Vec<_> = (0..20 * CHECK_INTERVAL).rev().collect();
        let outcome = sort_by(&mut items, &limits, |a, b| {
            n_compared += 1;
            if n_compared == 10 * CHECK_INTERVAL {
                limits.ctx.interrupt(Interrupt::Canceled);
            }
            a.cmp(b)
        });
        assert!(
            outcome.is_err() && n_compared < 40 * CHECK_INTERVAL,
            "{n_compared}"
        );
    }
}
