//! Freezing: taking samples out of the head for a flush.
//!
//! A freeze swaps out all samples since the last freeze, in constant time. Reads see the frozen
//! samples until the flush has made them durable and drops them.

use std::sync::Arc;

use super::frozen::Frozen;
use super::head::Head;
use super::samples::Samples;

impl Head {
    /// Swaps out all samples. Returns `None` if there are no samples or earlier samples are still
    /// frozen.
    pub(crate) fn freeze(&mut self) -> Option<Arc<Frozen>> {
        if self.frozen.is_some() {
            return None;
        }
        let range = self.live.range()?;
        let samples = std::mem::replace(&mut self.live, Samples::new(self.horizon));
        let frozen = Arc::new(Frozen { samples, range });
        self.frozen = Some(Arc::clone(&frozen));
        self.frozen_is_visible = false;
        Some(frozen)
    }

    /// Returns the frozen samples.
    pub(crate) fn frozen(&self) -> Option<Arc<Frozen>> {
        self.frozen.clone()
    }

    /// Drops the frozen samples, which must be in blocks. To free their memory outside the lock,
    /// keep the returned value until the lock is released.
    pub(crate) fn drop_frozen(&mut self) -> Option<Arc<Frozen>> {
        self.frozen.take()
    }
}
