//! Numbers for label sets that are told apart by some of their labels: groups, signatures, histograms without `le`.
//!
//! A label set is looked up as it is, and the set of those labels is made once for each key.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use varve_tsdb::Labels;

/// The keys so far, numbered as they appear.
#[derive(Debug, Default)]
pub(super) struct Keys {
    hasher: DefaultHashBuilder,
    places: HashTable<usize>,
    labels: Vec<Labels>,
}

impl Keys {
    /// Returns the number of the labels that `keep` tells to keep, and whether it is new.
    pub(super) fn number(&mut self, labels: &Labels, keep: impl Fn(&str) -> bool) -> (usize, bool) {
        let hash = hash(&self.hasher, labels, &keep);
        if let Some(place) = self.find(hash, labels, &keep) {
            return (place, false);
        }
        let place = self.labels.len();
        self.labels.push(labels.filter(&keep));
        let Self { hasher, places, labels } = self;
        places.insert_unique(hash, place, |&place| self::hash(hasher, &labels[place], &|_: &str| true));
        (place, true)
    }

    /// Returns the number of the labels that `keep` tells to keep, if they have one.
    pub(super) fn get(&self, labels: &Labels, keep: impl Fn(&str) -> bool) -> Option<usize> {
        self.find(hash(&self.hasher, labels, &keep), labels, &keep)
    }

    /// Returns the keys by number.
    pub(super) fn labels(&self) -> &[Labels] {
        &self.labels
    }

    /// Gives the keys away.
    pub(super) fn into_labels(self) -> Vec<Labels> {
        self.labels
    }

    /// Returns the bytes that a key takes.
    pub(super) fn size(labels: &Labels) -> usize {
        labels.size() + size_of::<Labels>() + 2 * size_of::<usize>()
    }

    fn find(&self, hash: u64, labels: &Labels, keep: &impl Fn(&str) -> bool) -> Option<usize> {
        let is_it = |&place: &usize| self.labels[place].iter().eq(labels.iter().filter(|(name, _)| keep(name)));
        self.places.find(hash, is_it).copied()
    }
}

fn hash(hasher: &DefaultHashBuilder, labels: &Labels, keep: &impl Fn(&str) -> bool) -> u64 {
    let mut state = hasher.build_hasher();
    labels.iter().filter(|(name, _)| keep(name)).for_each(|pair| pair.hash(&mut state));
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_sets_with_the_same_labels_of_a_key_have_one_number() {
        let labels = |text: &str| Labels::from_pairs(text.split(',').filter_map(|pair| pair.split_once('='))).unwrap();
        let by = |name: &str| name == "a" || name == "b";
        let mut keys = Keys::default();
        let mut number = |text: &str| keys.number(&labels(text), by);
        assert_eq!(number("a=1,c=1"), (0, true));
        assert_eq!(number("b=1,c=1"), (1, true));
        assert_eq!(number("a=1,c=2"), (0, false));
        assert_eq!(number("c=2"), (2, true));
        assert_eq!(
            (0..100).map(|i| number(&format!("a={i},b=2,d={i}")).0).collect::<Vec<_>>(),
            (3..103).collect::<Vec<_>>()
        );
        assert_eq!(keys.labels()[1], labels("b=1"));
        assert_eq!((keys.get(&labels("a=1,z=1"), by), keys.get(&labels("a=7"), by)), (Some(0), None));
    }
}
