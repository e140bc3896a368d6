//! Limits of an evaluation: samples held at once, and memory of the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use varve_context::{Charge, scheduler};
use varve_tsdb::ReadContext;

use super::column::Column;
use crate::error::{Error, Result};

/// Columns up to this number of steps are allocated without a check that there is memory for them.
const UNCHECKED_STEPS_MAX: usize = 512;
/// Label sets up to this size in bytes are built before they are charged.
const UNCHARGED_LABELS_SIZE: usize = 64 << 10;

/// Number of series between two checks of a loop that does little for each: reading the clock takes
/// as long. A series has at most some ten thousand steps, so this is less than a millisecond.
pub(crate) const SERIES_PER_CHECK: usize = 16;

/// The number of samples that a query holds, and the limit.
#[derive(Debug, Clone)]
pub(crate) struct SampleLimit {
    held: Arc<AtomicUsize>,
    /// Maximum of `held` so far.
    peak: Arc<AtomicUsize>,
    max: usize,
}

impl SampleLimit {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            held: Arc::default(),
            peak: Arc::default(),
            max,
        }
    }

    /// Returns the peak number of samples held at once.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns a guard that counts no samples yet.
    pub(crate) fn guard(&self) -> HeldSamples {
        HeldSamples {
            limit: self.clone(),
            n_samples: 0,
        }
    }

    /// Fails if `n_samples` more would exceed the limit.
    pub(crate) fn check(&self, n_samples: usize) -> Result<()> {
        if self.held.load(Ordering::Relaxed).saturating_add(n_samples) > self.max {
            return Err(Error::too_many_samples());
        }
        Ok(())
    }
}

/// Guard that counts samples as held until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldSamples {
    limit: SampleLimit,
    n_samples: usize,
}

impl HeldSamples {
    /// Returns the number of samples.
    pub(crate) fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Counts more samples as held.
    ///
    /// # Errors
    /// [`Error::Limit`] if the query holds too many.
    pub(crate) fn grow(&mut self, n_samples: usize) -> Result<()> {
        let SampleLimit { held, peak, max } = &self.limit;
        let before = held.fetch_add(n_samples, Ordering::Relaxed);
        self.n_samples += n_samples;
        let after = before.saturating_add(n_samples);
        peak.fetch_max(after, Ordering::Relaxed);
        if after > *max {
            Err(Error::too_many_samples())
        } else {
            Ok(())
        }
    }
}

impl Drop for HeldSamples {
    fn drop(&mut self) {
        self.limit.held.fetch_sub(self.n_samples, Ordering::Relaxed);
    }
}

/// The limits of an evaluation, passed to all code that builds vectors.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) ctx: ReadContext,
    pub(crate) samples: SampleLimit,
}

impl Limits {
    /// Pauses if other requests are due, then fails if the request was interrupted or its deadline
    /// had passed before the pause.
    pub(crate) fn check(&self) -> Result<()> {
        // Pausing and checking share one reading of the clock, because this is called once per
        // series. If the deadline passes during the pause, the next check fails.
        let now = Instant::now();
        scheduler::pause_at(now);
        Ok(self.ctx.check_at(now)?)
    }

    /// Calls [`Limits::check`] for every [`SERIES_PER_CHECK`]th series of a loop, and for the first.
    #[inline]
    pub(crate) fn check_series(&self, series_idx: usize) -> Result<()> {
        if series_idx.is_multiple_of(SERIES_PER_CHECK) {
            self.check()
        } else {
            Ok(())
        }
    }

    /// Charges the memory of a column. Must be called before allocating it.
    pub(crate) fn charge_column(&self, n_steps: usize) -> Result<Charge> {
        // A column with more steps than the limit on samples is rejected without allocating it.
        if n_steps > self.samples.max {
            return Err(Error::too_many_samples());
        }
        let mut charge = self.ctx.charge();
        charge.grow(Column::size(n_steps))?;
        Ok(charge)
    }

    /// Fails if there is no memory for a large column. The caller charges what it stores.
    pub(crate) fn check_column(&self, n_steps: usize) -> Result<()> {
        if n_steps > UNCHECKED_STEPS_MAX {
            drop(self.charge_column(n_steps)?);
        }
        Ok(())
    }

    /// Creates a column without values. The caller charges it if it stores it.
    pub(crate) fn column(&self, n_steps: usize) -> Result<Column> {
        self.check_column(n_steps)?;
        Ok(Column::absent(n_steps))
    }

    /// Charges `size` bytes in which label sets are built, if they are many. The charge covers the
    /// sets and their buffers until the caller has charged the sets that it stores. Charging each
    /// of many small sets would take longer than building it.
    #[inline]
    pub(crate) fn charge_building(&self, size: usize) -> Result<Option<Charge>> {
        if size <= UNCHARGED_LABELS_SIZE {
            return Ok(None);
        }
        let mut charge = self.ctx.charge();
        charge.grow(size)?;
        Ok(Some(charge))
    }
}
