//! Metadata of metric families, bounded in number and size.

use std::collections::VecDeque;
use std::sync::Arc;

use varve_model::metadata::{Families, METADATA_FAMILIES_MAX, Metadata};

/// The metadata of a store. Above its limits, the family that was added first is evicted: a sender
/// that still uses it sends it again.
#[derive(Debug)]
pub(crate) struct FamilyTable {
    /// Shared with readers. A change copies the map, but not the metadata, while a reader uses it.
    families: Arc<Families>,
    /// In order of addition.
    order: VecDeque<Arc<str>>,
    size: usize,
    size_max: usize,
    n_evicted: u64,
}

/// Statistics of metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MetadataStats {
    /// Metric families with metadata.
    pub n_families: u64,
    /// Their size in bytes.
    pub size_bytes: u64,
    /// Families that were evicted since the store was opened.
    pub n_evicted: u64,
}

/// Bytes of an entry besides its strings: nodes of the map, reference counts, the position in the
/// order.
const ENTRY_SIZE: usize = 256;

impl FamilyTable {
    /// Creates an empty table of at most `size_max` bytes.
    pub(crate) fn new(size_max: usize) -> Self {
        Self {
            families: Arc::default(),
            order: VecDeque::new(),
            size: 0,
            size_max,
            n_evicted: 0,
        }
    }

    /// Returns the current families without copying them.
    pub(crate) fn families(&self) -> &Arc<Families> {
        &self.families
    }

    /// Returns all families in order of addition.
    pub(crate) fn by_age(&self) -> Vec<(Arc<str>, Arc<Metadata>)> {
        let mut families = Vec::with_capacity(self.order.len());
        for family in &self.order {
            if let Some(metadata) = self.families.get(family) {
                families.push((Arc::clone(family), Arc::clone(metadata)));
            }
        }
        families
    }

    /// Returns `true` if a family has this metadata.
    pub(crate) fn contains(&self, family: &str, metadata: &Metadata) -> bool {
        self.families
            .get(family)
            .is_some_and(|known| **known == *metadata)
    }

    /// Sets the metadata of a family, and evicts families above the limits.
    pub(crate) fn set(&mut self, family: &str, metadata: Metadata) {
        let family: Arc<str> = family.into();
        self.size += size(&family, &metadata);
        match Arc::make_mut(&mut self.families).insert(Arc::clone(&family), Arc::new(metadata)) {
            Some(replaced) => self.size -= size(&family, &replaced),
            None => self.order.push_back(family),
        }
        while self.size > self.size_max || self.order.len() > METADATA_FAMILIES_MAX {
            let Some(first) = self.order.pop_front() else {
                break;
            };
            let evicted = Arc::make_mut(&mut self.families).remove(&first);
            self.size -= evicted.map_or(0, |evicted| size(&first, &evicted));
            self.n_evicted += 1;
        }
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> MetadataStats {
        let n_families = self.order.len() as u64;
        let size_bytes = self.size as u64;
        MetadataStats {
            n_families,
            size_bytes,
            n_evicted: self.n_evicted,
        }
    }
}

fn size(family: &str, metadata: &Metadata) -> usize {
    ENTRY_SIZE + family.len() + metadata.kind.len() + metadata.help.len() + metadata.unit.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(size: usize) -> Metadata {
        Metadata {
            help: "h".repeat(size),
            ..Metadata::default()
        }
    }

    #[test]
    fn the_size_is_bounded_and_the_first_families_are_evicted() {
        let mut table = FamilyTable::new(10 * (ENTRY_SIZE + 101));
        (0..1000).for_each(|i| table.set("changed", help(i % 100)));
        ('a'..='z').for_each(|name| table.set(&name.to_string(), help(100)));
        let kept: String = table.families().keys().map(|name| &**name).collect();
        assert_eq!(kept, "qrstuvwxyz");
        let size_bytes = 10 * (ENTRY_SIZE as u64 + 101);
        assert_eq!(
            table.stats(),
            MetadataStats {
                n_families: 10,
                size_bytes,
                n_evicted: 17
            }
        );
        let reader = Arc::clone(table.families());
        table.set("z", help(90));
        assert!(table.contains("z", &help(90)) && reader["z"].help.len() == 100);
        assert_eq!(table.stats().size_bytes, size_bytes - 10);
        table.set("large", help(10_000));
        let expect = MetadataStats {
            n_families: 0,
            size_bytes: 0,
            n_evicted: 28,
        };
        assert_eq!(
            table.stats(),
            expect,
            "a single family above the limit is not stored"
        );
    }

    #[test]
    fn the_number_is_bounded() {
        let mut table = FamilyTable::new(usize::MAX);
        (0..=METADATA_FAMILIES_MAX).for_each(|i| table.set(&i.to_string(), help(1)));
        assert_eq!(table.stats().n_families, METADATA_FAMILIES_MAX as u64);
        assert!(!table.families().contains_key("0") && table.families().contains_key("1"));
    }
}
