//! Kernels for ranges with native histograms, alone or among floats.
//!
//! They run only for windows that have histograms: the kernels of floats know nothing of them.

pub(super) mod over_time;
pub(super) mod rate;

use super::window::{SampleValue, Window};
use crate::annotations::{HistogramOperation, Remark};
use crate::histogram::Added;

pub(crate) use rate::interpolate;

/// The value for the samples in a window that has histograms, and remarks about them; `None` if there is none.
pub(crate) type MixedKernel = fn(&Window<'_>, &mut Remarks) -> Option<SampleValue>;

/// What kernels have to say about a series, each thing once; of overlapping start timestamps, in how many windows.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    pub(crate) list: Vec<Remark>,
}

impl Remarks {
    pub(crate) fn add(&mut self, remark: Remark) {
        let known = self.list.iter_mut().find_map(|known| match known {
            Remark::StartsOverlap(n) => Some(n),
            _ => None,
        });
        if let (Remark::StartsOverlap(more), Some(n)) = (remark, known) {
            *n += more;
            return;
        }
        if !self.list.contains(&remark) {
            self.list.push(remark);
        }
    }

    /// Takes over other remarks.
    fn merge(&mut self, other: Self) {
        other.list.into_iter().for_each(|remark| self.add(remark));
    }

    /// Says what had to be done to combine two histograms, but for resets.
    fn reconciled(&mut self, added: Added, operation: HistogramOperation) {
        if added.bounds_reconciled {
            self.add(Remark::BoundsReconciled(operation));
        }
    }
}
