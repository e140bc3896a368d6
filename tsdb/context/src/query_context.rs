//! [`QueryContext`]: deadline, cancellation, memory budget and progress of one request, which may
//! also be a write or administrative.
//!
//! It is passed from the socket to the innermost loop. Every loop over series, chunks or steps
//! calls [`QueryContext::check`] at least once per [`CHECK_INTERVAL`] small pieces of work; every
//! buffer that grows with user data is charged to a [`Charge`] first. A request may end early by an
//! [`Interrupt`] or [`Error::Limit`].
//!
//! Threads: all threads that work for a request share its context. Other threads observe and
//! interrupt it.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::limit::Limit;
use crate::memory::{Charge, MemoryBudget};

/// Maximum pieces of work (samples, labels, steps) between two calls of [`QueryContext::check`].
pub const CHECK_INTERVAL: usize = 4096;

/// Size of an entry of the map of held values, in a map that has just grown.
const HELD_ENTRY_SIZE: usize = 4 * size_of::<(usize, Arc<dyn Any>)>();

/// What a request may read, and how. The default has no limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions {
    /// Reads do not wait for the replay of the log. They return partial results, which
    /// [`QueryContext::partial`] reports.
    pub takes_partial: bool,
    /// Maximum number of series that the request selects.
    pub series_max: Option<(Limit, u64)>,
    /// Maximum number of samples that the request reads.
    pub samples_max: Option<(Limit, u64)>,
    /// Maximum time between the first and the last sample of a selection, in whole seconds.
    pub range_s_max: Option<(Limit, u64)>,
}

/// Deadline, cancellation flag and memory budget of one request, shared by all clones.
#[derive(Clone)]
pub struct QueryContext {
    cancellation: Cancellation,
    shared: Arc<Shared>,
}

struct Shared {
    memory: MemoryBudget,
    /// Bytes reserved until the request ends.
    held: AtomicUsize,
    /// The values of [`MatchRequest::hold_shared`](varve_regexp::MatchRequest::hold_shared) by address.
    held_values: Mutex<HashMap<usize, Arc<dyn Any + Send + Sync>>>,
    options: ReadOptions,
    /// Description of the data missing from the results.
    partial: OnceLock<String>,
    /// Number of series selected and samples read for the request.
    n_series: AtomicU64,
    n_samples: AtomicU64,
}

impl QueryContext {
    /// Creates the context of a request that must end within `timeout` and may reserve the memory
    /// of `memory`.
    #[must_use]
    pub fn new(timeout: Duration, memory: MemoryBudget) -> Self {
        Self::with_options(timeout, memory, ReadOptions::default())
    }

    /// Like [`QueryContext::new`], for a request that may read what `options` allow.
    #[must_use]
    pub fn with_options(timeout: Duration, memory: MemoryBudget, options: ReadOptions) -> Self {
        let shared = Shared {
            memory,
            held: AtomicUsize::new(0),
            held_values: Mutex::default(),
            options,
            partial: OnceLock::new(),
            n_series: AtomicU64::new(0),
            n_samples: AtomicU64::new(0),
        };
        Self {
            cancellation: Cancellation::new(Instant::now().checked_add(timeout)),
            shared: Arc::new(shared),
        }
    }

    /// Returns a context without deadline and limits, for internal work of the store and for tests.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(
            Duration::MAX,
            MemoryBudget::new(Limit::Other("memory"), usize::MAX),
        )
    }

    /// Returns `true` if the samples that the request reads, or the length of its selections, are
    /// limited.
    #[must_use]
    pub fn has_read_limits(&self) -> bool {
        let options = &self.shared.options;
        options.samples_max.is_some() || options.range_s_max.is_some()
    }

    /// Checks the length of a selection of samples, in milliseconds.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`ReadOptions::range_s_max`].
    pub fn check_range(&self, length_ms: u64) -> Result<()> {
        within(self.shared.options.range_s_max, length_ms.div_ceil(1000))
    }

    /// Returns the maximum length of a selection in milliseconds, if there is one.
    #[must_use]
    pub fn range_ms_max(&self) -> Option<u64> {
        let (_, range_s_max) = self.shared.options.range_s_max?;
        Some(range_s_max.saturating_mul(1000))
    }

    /// Counts series selected for this request.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`ReadOptions::series_max`].
    pub fn count_series(&self, n_series: u64) -> Result<()> {
        let n_before = self.shared.n_series.fetch_add(n_series, Ordering::Relaxed);
        within(
            self.shared.options.series_max,
            n_before.saturating_add(n_series),
        )
    }

    /// Counts samples read for this request.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`ReadOptions::samples_max`].
    pub fn count_samples(&self, n_samples: usize) -> Result<()> {
        let n_before = self
            .shared
            .n_samples
            .fetch_add(n_samples as u64, Ordering::Relaxed);
        within(
            self.shared.options.samples_max,
            n_before.saturating_add(n_samples as u64),
        )
    }

    /// Returns the number of series selected for this request so far. Repeated selections count
    /// again.
    #[must_use]
    pub fn n_series(&self) -> u64 {
        self.shared.n_series.load(Ordering::Relaxed)
    }

    /// Returns the number of samples read for this request so far.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.shared.n_samples.load(Ordering::Relaxed)
    }

    /// Returns a warning that describes the data missing from the results, or `None` if they are
    /// complete.
    #[must_use]
    pub fn partial(&self) -> Option<&str> {
        self.shared.partial.get().map(String::as_str)
    }

    /// Records the missing data and returns `true` if the request accepts partial results. Returns
    /// `false` otherwise. The first record wins.
    pub fn note_partial(&self, missing: impl FnOnce() -> String) -> bool {
        if self.shared.options.takes_partial {
            self.shared.partial.get_or_init(missing);
        }
        self.shared.options.takes_partial
    }

    /// Records that data is missing which nothing can bring, whether or not the request accepts
    /// partial results. The first record wins.
    pub fn note_missing(&self, missing: String) {
        self.shared.partial.get_or_init(|| missing);
    }

    /// Interrupts the request: the next check on any thread fails. The first reason wins.
    pub fn interrupt(&self, reason: Interrupt) {
        self.cancellation.interrupt(reason);
    }

    /// Returns `Ok` while the request may continue. Reads the clock, which takes about 25 ns.
    ///
    /// # Errors
    /// [`Error::Interrupted`] after the deadline or [`QueryContext::interrupt`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.cancellation.check(Instant::now)
    }

    /// Calls [`QueryContext::check`] for every `interval`th item of a loop, and for the first.
    ///
    /// # Errors
    /// The error of [`QueryContext::check`].
    #[inline]
    pub fn check_every(&self, interval: usize, item_idx: usize) -> Result<()> {
        if item_idx.is_multiple_of(interval) {
            self.check()
        } else {
            Ok(())
        }
    }

    /// Like [`QueryContext::check`], for callers that have just read the clock.
    ///
    /// # Errors
    /// [`Error::Interrupted`] after the deadline or [`QueryContext::interrupt`].
    #[inline]
    pub fn check_at(&self, now: Instant) -> Result<()> {
        self.cancellation.check(|| now)
    }

    /// Returns the reason why the request must end, or `None` while it may continue.
    #[must_use]
    pub fn interrupted(&self) -> Option<Interrupt> {
        self.cancellation.interrupted()
    }

    /// Returns deadline and cancellation alone.
    #[must_use]
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Returns the remaining time, or `None` without a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.cancellation.remaining()
    }

    /// Creates an empty charge on the memory budget.
    #[must_use]
    pub fn charge(&self) -> Charge {
        self.shared.memory.charge()
    }

    /// Returns the memory budget.
    #[must_use]
    pub fn memory(&self) -> &MemoryBudget {
        &self.shared.memory
    }
}

/// Regular expressions are compiled and matched within the limits of the request.
impl varve_regexp::MatchRequest for QueryContext {
    type Error = Error;
    type Charge = Charge;

    #[inline]
    fn check(&self) -> Result<()> {
        self.check()
    }

    fn charge(&self) -> Charge {
        self.charge()
    }

    fn grow(&self, charge: &mut Charge, size: usize) -> Result<()> {
        charge.grow_without_waiting(size)
    }

    fn hold(&self, size: usize) -> Result<()> {
        self.shared.memory.reserve_without_waiting(size)?;
        self.shared.held.fetch_add(size, Ordering::Relaxed);
        Ok(())
    }

    fn hold_shared<T: Any + Send + Sync>(&self, value: &Arc<T>, size: usize) -> Result<()> {
        let mut held = self.shared.held_values.lock();
        if let Entry::Vacant(entry) = held.entry(Arc::as_ptr(value) as usize) {
            self.hold(size + HELD_ENTRY_SIZE)?;
            entry.insert(Arc::clone(value) as _);
        }
        Ok(())
    }
}

/// Checks a value against its limit.
fn within(maximum: Option<(Limit, u64)>, used: u64) -> Result<()> {
    match maximum {
        Some((what, limit)) if used > limit => Err(Error::Limit { what, used, limit }),
        _ => Ok(()),
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.memory.release(*self.held.get_mut());
    }
}

impl fmt::Debug for QueryContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "QueryContext({:?}, {} bytes)",
            self.interrupted(),
            self.memory().used()
        )
    }
}

#[cfg(test)]
mod tests {
    use varve_regexp::{MatchRequest as _, Regexp};

    use super::*;

    #[test]
    fn a_regular_expression_is_charged_until_the_request_ends() {
        let memory = MemoryBudget::new(Limit::Other("memory"), 1 << 20);
        let ctx = QueryContext::new(Duration::MAX, memory.clone());
        let compile =
            |ctx: &QueryContext, pattern: &str| Regexp::parse(pattern).unwrap().compile(ctx);
        compile(&ctx, "[ab]+charged").unwrap();
        let used = memory.used();
        assert!(used > 0);
        assert!(matches!(
            compile(&ctx, &format!("(.x{{999}}{})", "y.*".repeat(9999))),
            Err(Error::Limit { .. })
        ));
        assert_eq!(memory.used(), used);
        ctx.interrupt(Interrupt::Canceled);
        assert!(matches!(
            compile(&ctx, "[ab]+canceled"),
            Err(Error::Interrupted(Interrupt::Canceled))
        ));
        drop(ctx);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn the_first_interrupt_wins() {
        let ctx = QueryContext::new(Duration::ZERO, MemoryBudget::new(Limit::Other("memory"), 0));
        assert!(matches!(
            ctx.check(),
            Err(Error::Interrupted(Interrupt::Deadline))
        ));
        ctx.interrupt(Interrupt::Canceled);
        assert_eq!(ctx.interrupted(), Some(Interrupt::Deadline));
        let endless = QueryContext::unbounded();
        endless.check().unwrap();
        endless.interrupt(Interrupt::Shutdown);
        assert!(matches!(
            endless.check(),
            Err(Error::Interrupted(Interrupt::Shutdown))
        ));
    }

    #[test]
    fn a_shared_value_is_reserved_once() {
        let memory = MemoryBudget::new(Limit::Other("memory"), usize::MAX);
        let ctx = QueryContext::new(Duration::MAX, memory.clone());
        let [a, b] = [Arc::new(1), Arc::new(2)];
        for value in [&a, &a, &b, &a] {
            ctx.hold_shared(value, 100).unwrap();
        }
        assert_eq!(memory.used(), 2 * (100 + HELD_ENTRY_SIZE));
        drop(ctx);
        assert_eq!((memory.used(), Arc::strong_count(&a)), (0, 1));
    }

    fn context(options: ReadOptions) -> QueryContext {
        let memory = MemoryBudget::new(Limit::Other("memory"), usize::MAX);
        QueryContext::with_options(Duration::MAX, memory, options)
    }

    #[test]
    fn series_and_samples_are_limited() {
        let series_max = Some((Limit::Other("series of a call"), 8));
        let ctx = context(ReadOptions {
            series_max,
            ..ReadOptions::default()
        });
        ctx.count_series(7).unwrap();
        ctx.count_series(1).unwrap();
        let refused = ctx.count_series(1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "series of a call: 9 exceeds the limit of 8"
        );
        ctx.count_samples(3).unwrap();
        assert_eq!((ctx.n_series(), ctx.n_samples()), (9, 3));
        assert!(!ctx.has_read_limits());

        let samples_max = Some((Limit::Other("samples of a call"), 4));
        let ctx = context(ReadOptions {
            samples_max,
            ..ReadOptions::default()
        });
        assert!(ctx.has_read_limits());
        ctx.count_samples(3).unwrap();
        ctx.count_samples(1).unwrap();
        let refused = ctx.count_samples(1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "samples of a call: 5 exceeds the limit of 4"
        );
    }

    #[test]
    fn the_length_of_a_selection_is_limited() {
        let ctx = QueryContext::unbounded();
        ctx.check_range(u64::MAX).unwrap();
        assert_eq!(ctx.range_ms_max(), None);

        let ctx = context(ReadOptions {
            range_s_max: Some((Limit::Other("range"), 2)),
            ..ReadOptions::default()
        });
        assert!(ctx.has_read_limits());
        assert_eq!(ctx.range_ms_max(), Some(2000));
        ctx.check_range(2000).unwrap();
        assert_eq!(
            ctx.check_range(2001).unwrap_err().to_string(),
            "range: 3 exceeds the limit of 2"
        );
        ctx.check_range(u64::MAX).unwrap_err();
    }
}
