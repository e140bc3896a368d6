//! A small cache by label set, for label sets that series share in memory.
//!
//! If an aggregation reads only a few labels, thousands of series share a few dozen sets. Values
//! that depend only on the labels are then computed once per set, and found without reading the
//! labels. At most 64 short sets stay in memory longer. If sets turn out not to be shared, no more
//! are stored.

use varve_model::Labels;

/// Number of slots. The address of a set selects its slot.
const SLOTS: usize = 64;

/// Number of stored sets after which the cache gives up, unless as many were found.
const STORED_MAX_UNSHARED: usize = 8 * SLOTS;

/// Maximum size of a stored set in bytes. The cache is not charged.
const STORED_SIZE_MAX: usize = 4 << 10;

/// The cache; see the module documentation. Each entry keeps its set, so that no other set gets its
/// address.
#[derive(Debug)]
pub(crate) struct SharedSets<T> {
    slots: Vec<Option<(Labels, T)>>,
    n_stored: usize,
    n_found: usize,
}

impl<T> Default for SharedSets<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            n_stored: 0,
            n_found: 0,
        }
    }
}

impl<T: Clone> SharedSets<T> {
    /// Returns what was stored for the same set in memory, unless another set has taken its slot.
    #[inline]
    pub(crate) fn get(&mut self, labels: &Labels) -> Option<T> {
        let (known, value) = self.slots.get(slot(labels))?.as_ref()?;
        if !known.is_shared_with(labels) {
            return None;
        }
        self.n_found += 1;
        Some(value.clone())
    }

    /// Stores a value for a set, unless sets are not shared or the set is long.
    pub(crate) fn insert(&mut self, labels: &Labels, value: T) {
        if labels.size() > STORED_SIZE_MAX {
            return;
        }
        if self.n_stored > STORED_MAX_UNSHARED.max(self.n_found) {
            return;
        }
        self.n_stored += 1;
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        self.slots[slot(labels)] = Some((labels.clone(), value));
    }
}

/// Mixes the address: neighbors in memory are a few words apart.
fn slot(labels: &Labels) -> usize {
    let address = labels.as_packed().as_ptr().addr() / 16;
    (address ^ (address / SLOTS) ^ (address / SLOTS / SLOTS)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_set_in_memory_is_found() {
        let labels = |value: &str| Labels::from_pairs([("a", value)]).unwrap();
        let mut sets = SharedSets::default();
        let one = labels("1");
        let equal = labels("1");
        assert_eq!(sets.get(&one), None);
        sets.insert(&one, 1);
        assert_eq!(
            (sets.get(&one), sets.get(&one.clone()), sets.get(&equal)),
            (Some(1), Some(1), None)
        );
        // More sets than slots: none is taken for another, and at most one per slot is kept.
        let many: Vec<_> = (0..10 * SLOTS).map(|i| labels(&i.to_string())).collect();
        many.iter()
            .enumerate()
            .for_each(|(i, set)| sets.insert(set, i));
        let found: Vec<_> = many.iter().map(|set| sets.get(set)).enumerate().collect();
        assert!(
            found
                .iter()
                .all(|&(i, value)| value.is_none_or(|value| value == i))
        );
        assert!((1..=SLOTS).contains(&found.iter().filter(|(_, value)| value.is_some()).count()));
    }

    #[test]
    fn long_sets_are_not_stored() {
        let long = Labels::from_pairs([("a", &*"x".repeat(STORED_SIZE_MAX))]).unwrap();
        let mut sets = SharedSets::default();
        sets.insert(&long, 1);
        assert_eq!(sets.get(&long), None);
    }

    #[test]
    fn sets_that_are_not_shared_are_no_longer_stored() {
        let mut sets = SharedSets::default();
        let one = Labels::from_pairs([("a", "1")]).unwrap();
        sets.insert(&one, 0);
        for _ in 0..=STORED_MAX_UNSHARED {
            assert_eq!(sets.get(&one), Some(0));
            sets.insert(&one, 0);
        }
        let mut others = Vec::new();
        for i in 0..4 * STORED_MAX_UNSHARED {
            let labels = Labels::from_pairs([("a", &*i.to_string())]).unwrap();
            sets.insert(&labels, i);
            others.push(labels);
        }
        let last = others.last().unwrap();
        sets.insert(last, 7);
        assert_eq!(sets.get(last), None);
    }
}
