//! The groups of a head's series.

use roaring::RoaringBitmap;

use super::Head;
use super::groups::{GroupCounts, SeriesGroup};

impl Head {
    /// Counts the series of this head in `counts`. Must be called before the first series is
    /// created.
    pub(crate) fn count_in(&mut self, counts: GroupCounts) {
        debug_assert_eq!(self.len(), 0, "the counts of existing series would be lost");
        self.table.groups.count_in(counts);
    }

    /// Returns the group of a series.
    pub(crate) fn group(&self, slot: u32) -> SeriesGroup {
        self.table.groups.of(slot)
    }

    /// Assigns a series to a group if it has no group.
    pub(crate) fn assign_group(&mut self, slot: u32, group: SeriesGroup) {
        if self.group(slot) == SeriesGroup::NONE {
            self.table.groups.set(slot, group);
        }
    }

    /// Removes a series from its group.
    pub(crate) fn ungroup(&mut self, slot: u32) {
        self.table.groups.set(slot, SeriesGroup::NONE);
    }

    /// Assigns each series to the group that `group_of` returns for its value of `label`. Series
    /// without the label have no group. If `label` is `None`, no series has a group.
    pub(crate) fn set_group_label(
        &mut self,
        label: Option<&str>,
        group_of: &mut dyn FnMut(&str) -> SeriesGroup,
    ) {
        let table = &mut self.table;
        // Slots are less than 2^31.
        (0..table.end() as u32).for_each(|slot| table.groups.set(slot, SeriesGroup::NONE));
        let Some(label) = label else { return };
        table
            .index
            .for_each_value(&table.symbols, label, |value, slots: RoaringBitmap| {
                let group = group_of(value);
                slots
                    .into_iter()
                    .for_each(|slot| table.groups.set(slot, group));
            });
    }
}
