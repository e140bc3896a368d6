//! Reading the head: copying the samples of series that a reader sees.

use super::Head;
use super::copy::HeadCopies;
use super::table::SlotRef;
use crate::isolation::ReadView;
use crate::sample::TimeRange;

impl Head {
    /// Appends the visible samples of some series that overlap `range` to `out`. A slot that now names another series
    /// contributes none. Of two samples with one timestamp, the one accepted first comes first: frozen samples before
    /// newer ones.
    pub(crate) fn copy(&self, slots: &[SlotRef], range: TimeRange, view: &ReadView, out: &mut HeadCopies) {
        for &of in slots {
            if self.is_current(of) {
                if let Some(frozen) = &self.frozen {
                    frozen.copy(of.slot, range, Some(view).filter(|_| !self.frozen_is_visible), out);
                }
                self.live.copy(of.slot, range, Some(view), out);
            }
            out.end_series();
        }
    }

    /// Copies one series as [`Head::copy`] does and returns `true` if it has samples. If not, `out` is unchanged.
    pub(crate) fn copy_one(&self, of: SlotRef, range: TimeRange, view: &ReadView, out: &mut HeadCopies) -> bool {
        self.copy(&[of], range, view, out);
        let found = out.has(out.len() - 1);
        if !found {
            out.pop_series();
        }
        found
    }

    /// Returns `true` if a series has a visible sample in `range`. Decodes only chunks that `range` cuts.
    pub(crate) fn has_sample(&self, of: SlotRef, range: TimeRange, view: &ReadView, scratch: &mut HeadCopies) -> bool {
        scratch.clear();
        self.copy(&[of], range, view, scratch);
        scratch.has_sample(0, range)
    }
}
