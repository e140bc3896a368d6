//! The labels that are asked for, of whole label sets.
//!
//! Where several streams are merged, series are compared by all their labels. What goes on to the caller is made once for all
//! series that agree in it, as `head::Projection` does where there is but one stream.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::hints::LabelHint;
use crate::labels::{Labels, PackedBuilder};

/// Label sets that are kept before all are forgotten.
const KEPT_MAX: usize = 4096;

/// Makes label sets of others.
#[derive(Debug)]
pub(super) struct Narrow {
    asked: LabelHint,
    made: HashTable<Labels>,
    hasher: DefaultHashBuilder,
    builder: PackedBuilder,
}

impl Narrow {
    pub(super) fn new(asked: LabelHint) -> Self {
        let (made, hasher) = (HashTable::new(), DefaultHashBuilder::default());
        Self { asked, made, hasher, builder: PackedBuilder::default() }
    }

    /// Returns the labels of a set that are asked for.
    pub(super) fn labels(&mut self, whole: &Labels) -> Labels {
        let Self { asked, made, hasher, builder } = self;
        if made.len() >= KEPT_MAX {
            made.clear();
        }
        builder.clear();
        whole.iter().filter(|(name, _)| asked.asks_for(name)).for_each(|(name, value)| builder.push(name, value));
        let hash = hasher.hash_one(builder.as_packed());
        if let Some(known) = made.find(hash, |known| known.as_packed() == builder.as_packed()) {
            return known.clone();
        }
        let labels = builder.labels();
        made.insert_unique(hash, labels.clone(), |known| hasher.hash_one(known.as_packed()));
        labels
    }
}
