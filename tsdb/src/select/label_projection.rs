//! The reduction of complete label sets to the labels that a caller of a selection requests.
//!
//! If several streams are merged, series are compared by all their labels, and reduced afterwards.
//! All series with the same reduced set share it, as `head::Projection` does for a single stream.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use varve_context::Charge;
use varve_model::Labels;
use varve_model::labels::PackedBuilder;

use crate::error::Result;
use crate::label_hint::LabelHint;

/// Maximum number of cached label sets. A full cache is cleared.
const CACHED_MAX: usize = 4096;
/// Size in bytes of the cached label sets above which the cache is cleared.
const CACHED_SIZE_MAX: usize = 4 << 20;
/// Maximum bytes of cached label sets that are allocated before they are charged.
const CHARGED_AT_ONCE: usize = 64 << 10;

/// Builds reduced label sets.
#[derive(Debug)]
pub(super) struct LabelProjection {
    requested: LabelHint,
    cache: HashTable<Labels>,
    hasher: DefaultHashBuilder,
    builder: PackedBuilder,
    cached_size: usize,
    /// The memory of the cache and of the builder.
    charge: Charge,
}

impl LabelProjection {
    pub(super) fn new(requested: LabelHint, charge: Charge) -> Self {
        Self {
            requested,
            cache: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            builder: PackedBuilder::default(),
            cached_size: 0,
            charge,
        }
    }

    /// Returns the requested labels of a set.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    pub(super) fn labels(&mut self, whole: &Labels) -> Result<Labels> {
        let Self {
            requested,
            cache,
            hasher,
            builder,
            cached_size,
            charge,
        } = self;
        if cache.len() >= CACHED_MAX || *cached_size > CACHED_SIZE_MAX {
            cache.clear();
            *cached_size = 0;
        }
        builder.clear();
        for (name, value) in whole.iter().filter(|(name, _)| requested.includes(name)) {
            builder.push(name, value);
        }
        let hash = hasher.hash_one(builder.as_packed());
        if let Some(known) = cache.find(hash, |known| known.as_packed() == builder.as_packed()) {
            return Ok(known.clone());
        }
        let labels = builder.labels();
        *cached_size += labels.size() + 2 * size_of::<Labels>();
        let size = *cached_size + builder.size();
        // Charging each set would take longer than building it.
        if size.abs_diff(charge.size()) > CHARGED_AT_ONCE {
            charge.resize(size)?;
        }
        cache.insert_unique(hash, labels.clone(), |known| {
            hasher.hash_one(known.as_packed())
        });
        Ok(labels)
    }
}
