//! The maximum number of alerts of all rules together.

use std::sync::atomic::{AtomicUsize, Ordering};

use varve_context::Limit;

/// Counts the alerts of all rules.
#[derive(Debug)]
pub struct AlertsMax {
    max: usize,
    used: AtomicUsize,
}

impl AlertsMax {
    /// Creates a count of at most `max` alerts.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            used: AtomicUsize::new(0),
        }
    }

    /// Returns the maximum.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns the number of alerts, resolved ones included.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Replaces `n_old` alerts of a rule by `n_new`.
    ///
    /// # Errors
    /// There would be more than the maximum. Nothing has changed then.
    pub(crate) fn replace(&self, n_old: usize, n_new: usize) -> Result<(), String> {
        let updated = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                self.replaced(used, n_old, n_new).ok()
            });
        updated
            .map(drop)
            .or_else(|used| self.replaced(used, n_old, n_new).map(drop))
    }

    /// Checks whether [`AlertsMax::replace`] would succeed now.
    ///
    /// # Errors
    /// See [`AlertsMax::replace`].
    pub(crate) fn check(&self, n_old: usize, n_new: usize) -> Result<(), String> {
        self.replaced(self.used(), n_old, n_new).map(drop)
    }

    fn replaced(&self, used: usize, n_old: usize, n_new: usize) -> Result<usize, String> {
        let max = self.max;
        let new = used - n_old + n_new;
        if new > max && n_new > n_old {
            return Err(format!(
                "{new} alerts of all rules exceed the limit of {max} ({})",
                Limit::Alerts
            ));
        }
        Ok(new)
    }

    /// Removes alerts.
    pub(crate) fn remove(&self, n: usize) {
        self.used.fetch_sub(n, Ordering::Relaxed);
    }
}
