//! The reduction of complete label sets to the labels that a caller of a selection requests.
//!
//! If several streams are merged, series are compared by all their labels, and reduced afterwards.
//! All series with the same reduced set share it, as `head::Projection` does for a single stream.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use varve_model::Labels;
use varve_model::labels::PackedBuilder;

use crate::label_hint::LabelHint;

/// Maximum number of cached label sets. A full cache is cleared.
const CACHED_MAX: usize = 4096;

/// Builds reduced label sets.
#[derive(Debug)]
pub(super) struct LabelProjection {
    requested: LabelHint,
    cache: HashTable<Labels>,
    hasher: DefaultHashBuilder,
    builder: PackedBuilder,
}

impl LabelProjection {
    pub(super) fn new(requested: LabelHint) -> Self {
        Self {
            requested,
            cache: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            builder: PackedBuilder::default(),
        }
    }

    /// Returns the requested labels of a set.
    pub(super) fn labels(&mut self, whole: &Labels) -> Labels {
        let Self {
            requested,
            cache,
            hasher,
            builder,
        } = self;
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
        builder.clear();
        for (name, value) in whole.iter().filter(|(name, _)| requested.includes(name)) {
            builder.push(name, value);
        }
        let hash = hasher.hash_one(builder.as_packed());
        if let Some(known) = cache.find(hash, |known| known.as_packed() == builder.as_packed()) {
            return known.clone();
        }
        let labels = builder.labels();
        cache.insert_unique(hash, labels.clone(), |known| {
            hasher.hash_one(known.as_packed())
        });
        labels
    }
}
