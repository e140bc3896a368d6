//! The selected series of one head in label order: a list of their own, or a part of the order that
//! selections share.

use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::head::{SeriesOrder, SlotRef};

/// Series of a head in label order.
pub(super) enum Slots {
    Own(std::vec::IntoIter<SlotRef>),
    /// The series of `order`, from index `next` on, whose slots are in `wanted`.
    Shared {
        order: Arc<SeriesOrder>,
        next: usize,
        wanted: RoaringBitmap,
    },
}

impl Slots {
    /// Returns an upper bound for the number of remaining series.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Own(slots) => slots.len() as u64,
            Self::Shared { wanted, .. } => wanted.len(),
        }
    }
}

impl Iterator for Slots {
    type Item = SlotRef;

    fn next(&mut self) -> Option<SlotRef> {
        match self {
            Self::Own(slots) => slots.next(),
            Self::Shared {
                order,
                next,
                wanted,
            } => {
                let rest = order.sorted().get(*next..)?;
                let n_passed = rest
                    .iter()
                    .position(|slot_ref| wanted.contains(slot_ref.slot));
                *next += n_passed.map_or(rest.len(), |n_passed| n_passed + 1);
                n_passed.map(|n_passed| rest[n_passed])
            }
        }
    }
}
