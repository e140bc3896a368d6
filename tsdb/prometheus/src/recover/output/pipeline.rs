//! An ordered parallel pipeline: all threads produce a batch of items while one of them consumes
//! the batch before, in order.

use rayon::prelude::*;
use varve_tsdb::Result;

/// Produces items `0..len` on the current thread pool and consumes them in order. At most `ahead`
/// items, but at least two, are in production or waiting.
///
/// # Errors
/// An error of `make` or `write`. No item after the failed one is consumed.
pub(crate) fn produce_in_order<T: Send>(
    len: usize,
    ahead: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
    mut write: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let batch_len = (ahead / 2).max(1);
    let mut waiting = Vec::new();
    // The last step only consumes.
    for start in (0..len).step_by(batch_len).chain([len]) {
        let end = len.min(start + batch_len);
        let (made, written) = rayon::join(
            || {
                let items = (start..end).into_par_iter();
                items.map(&make).collect::<Result<Vec<_>>>()
            },
            || waiting.drain(..).try_for_each(&mut write),
        );
        written?;
        waiting = made?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use varve_tsdb::Error;

    use super::*;

    const LEN: usize = 300;

    fn on_threads<T: Send>(n: usize, run: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .build()
            .unwrap()
            .install(run)
    }

    #[test]
    fn items_are_consumed_in_order_and_few_wait() {
        for (n_threads, ahead) in [(1, 2), (1, 64), (2, 3), (5, 2), (5, 64), (5, 2 * LEN)] {
            let made = AtomicUsize::new(0);
            let n_written = AtomicUsize::new(0);
            let most = AtomicUsize::new(0);
            let make = |item: usize| {
                let n_made = made.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(
                    n_made.saturating_sub(n_written.load(Ordering::SeqCst)),
                    Ordering::SeqCst,
                );
                // Some take longer.
                (0..item % 7 * 50).for_each(|_| std::thread::yield_now());
                Ok(item)
            };
            let mut written = Vec::new();
            let write = |item| {
                written.push(item);
                n_written.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            on_threads(n_threads, || produce_in_order(LEN, ahead, make, write)).unwrap();
            assert!(
                written.into_iter().eq(0..LEN),
                "{n_threads} threads, {ahead} ahead"
            );
            assert!(
                most.into_inner() <= ahead,
                "{n_threads} threads, {ahead} ahead"
            );
        }
    }

    #[test]
    fn nothing_is_consumed_after_an_error() {
        let limit = || Error::Limit {
            what: varve_context::Limit::Other("items"),
            used: 1,
            limit: 0,
        };
        let fails_at =
            |at: usize| move |item: usize| if item == at { Err(limit()) } else { Ok(item) };
        for (make_at, write_at) in [(100, LEN), (LEN, 100)] {
            let mut n_written = 0;
            let write = fails_at(write_at);
            let write = |item| write(item).map(|_| n_written += 1);
            let result = on_threads(3, || produce_in_order(LEN, 8, fails_at(make_at), write));
            assert!(matches!(result, Err(Error::Limit { .. })));
            assert!(n_written <= 100);
        }
    }
}
