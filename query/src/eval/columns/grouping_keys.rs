//! Grouping keys: the labels that identify a group, for example those of `by` or `on`.
//!
//! Looking up a label set does not build its key. Each key is built once.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;
use varve_model::Labels;

use super::limits::Limits;
use crate::error::Result;

/// Maximum number of labels in a hint to the store, which compares each label with all of them.
/// With more labels, all labels are read.
pub(crate) const HINT_NAMES_MAX: usize = 64;

/// The canonical bytes of a key that is looked up, on the stack unless it is long.
type KeyBytes = SmallVec<[u8; 256]>;

/// Copies of a label set while its key is built: the key bytes, whose buffer may be half empty, and
/// the key with its buffer.
const KEY_COPIES: usize = 4;

/// Interned keys, indexed in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct GroupingKeys {
    hasher: DefaultHashBuilder,
    /// Hash and index of each key.
    table: HashTable<(u64, usize)>,
    labels: Vec<Labels>,
}

impl GroupingKeys {
    /// Returns the index of the key with the labels selected by `keep`, and `true` if the key is
    /// new. The caller charges a new key.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if the query exceeds its memory limit.
    pub(crate) fn intern(
        &mut self,
        labels: &Labels,
        limits: &Limits,
        keep: impl Fn(&str) -> bool,
    ) -> Result<(usize, bool)> {
        let _building = limits.charge_building(KEY_COPIES * labels.size())?;
        let key = key_bytes(labels, &keep);
        let hash = self.hasher.hash_one(&*key);
        if let Some(index) = self.find(hash, &key) {
            return Ok((index, false));
        }
        let index = self.labels.len();
        self.labels.push(labels.filter(&keep));
        self.table
            .insert_unique(hash, (hash, index), |&(hash, _)| hash);
        Ok((index, true))
    }

    /// Returns the index of the key with the labels selected by `keep`, or `None` if the key is
    /// unknown.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if the query exceeds its memory limit.
    pub(crate) fn get(
        &self,
        labels: &Labels,
        limits: &Limits,
        keep: impl Fn(&str) -> bool,
    ) -> Result<Option<usize>> {
        let _building = limits.charge_building(KEY_COPIES * labels.size())?;
        let key = key_bytes(labels, &keep);
        Ok(self.find(self.hasher.hash_one(&*key), &key))
    }

    /// Returns the keys by index.
    pub(crate) fn labels(&self) -> &[Labels] {
        &self.labels
    }

    /// Returns the keys by index.
    pub(crate) fn into_labels(self) -> Vec<Labels> {
        self.labels
    }

    /// Returns the size of a key in bytes.
    pub(crate) fn size(labels: &Labels) -> usize {
        labels.size() + size_of::<Labels>() + 2 * size_of::<(u64, usize)>()
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.table
            .find(hash, |&(key_hash, index)| {
                key_hash == hash && self.labels[index].as_packed().as_bytes() == key
            })
            .map(|&(_, index)| index)
    }
}

/// Returns the canonical bytes of the labels that `keep` selects.
fn key_bytes(labels: &Labels, keep: &impl Fn(&str) -> bool) -> KeyBytes {
    let packed = labels.as_packed().as_bytes();
    let mut key = KeyBytes::new();
    for (name, pair) in labels.packed_pairs() {
        if keep(name) {
            key.extend_from_slice(&packed[pair]);
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::columns::SampleLimit;

    #[test]
    fn label_sets_with_equal_keys_share_an_index() {
        let labels = |text: &str| {
            Labels::from_pairs(text.split(',').filter_map(|pair| pair.split_once('='))).unwrap()
        };
        let by = |name: &str| name == "a" || name == "b";
        let limits = Limits {
            ctx: varve_tsdb::ReadContext::unbounded(),
            samples: SampleLimit::new(1),
        };
        let mut keys = GroupingKeys::default();
        let mut intern = |text: &str| keys.intern(&labels(text), &limits, by).unwrap();
        assert_eq!(intern("a=1,c=1"), (0, true));
        assert_eq!(intern("b=1,c=1"), (1, true));
        assert_eq!(intern("a=1,c=2"), (0, false));
        assert_eq!(intern("c=2"), (2, true));
        assert_eq!(
            (0..100)
                .map(|i| intern(&format!("a={i},b=2,d={i}")).0)
                .collect::<Vec<_>>(),
            (3..103).collect::<Vec<_>>()
        );
        assert_eq!(keys.labels()[1], labels("b=1"));
        assert_eq!(
            (
                keys.get(&labels("a=1,z=1"), &limits, by).unwrap(),
                keys.get(&labels("a=7"), &limits, by).unwrap()
            ),
            (Some(0), None)
        );
        assert_eq!(
            (
                keys.get(&labels("a=1,b=1"), &limits, by).unwrap(),
                keys.get(&labels("a=7,b=2"), &limits, by).unwrap()
            ),
            (None, Some(10))
        );
    }
}
