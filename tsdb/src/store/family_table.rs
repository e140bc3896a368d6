//! Metadata of metric families, bounded in number and size.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use varve_model::metadata::{Families, FamilyKey, METADATA_FAMILIES_MAX, Metadata};

/// The metadata of a store. Above its limits, the tenant with the most metadata loses the family
/// that it added first: a sender that still uses it sends it again. So no tenant evicts the metadata
/// of one that has less.
#[derive(Debug)]
pub(crate) struct FamilyTable {
    /// Shared with readers. A change copies the map, but not the metadata, while a reader uses it.
    families: Arc<Families>,
    /// By the text of the labels in [`FamilyKey`]: empty for senders without tenant.
    tenants: HashMap<Arc<str>, TenantFamilies>,
    /// The sizes of all tenants, ascending.
    sizes: BTreeSet<(usize, Arc<str>)>,
    size: usize,
    size_max: usize,
    n_evicted: u64,
}

/// The families of a tenant.
#[derive(Debug, Default)]
struct TenantFamilies {
    /// In order of addition.
    order: VecDeque<Arc<str>>,
    size: usize,
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
            tenants: HashMap::new(),
            sizes: BTreeSet::new(),
            size: 0,
            size_max,
            n_evicted: 0,
        }
    }

    /// Returns the current families without copying them.
    pub(crate) fn families(&self) -> &Arc<Families> {
        &self.families
    }

    /// Returns all families, those of each tenant in order of addition.
    pub(crate) fn by_age(&self) -> Vec<(Arc<str>, Arc<Metadata>)> {
        let mut families = Vec::with_capacity(self.families.len());
        for tenant in self.tenants.values() {
            for family in &tenant.order {
                if let Some(metadata) = self.families.get(family) {
                    families.push((Arc::clone(family), Arc::clone(metadata)));
                }
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
        let added_size = size(&family, &metadata);
        let replaced =
            Arc::make_mut(&mut self.families).insert(Arc::clone(&family), Arc::new(metadata));
        let replaced_size = match &replaced {
            Some(replaced) => size(&family, replaced),
            None => 0,
        };
        self.change_tenant(FamilyKey::parse(&family).tenant, |tenant| {
            tenant.size = tenant.size + added_size - replaced_size;
            if replaced.is_none() {
                tenant.order.push_back(Arc::clone(&family));
            }
        });
        while self.size > self.size_max || self.families.len() > METADATA_FAMILIES_MAX {
            if !self.evict_first() {
                break;
            }
        }
    }

    /// Evicts the first family of the tenant with the most metadata. Returns `false` if there is
    /// none.
    fn evict_first(&mut self) -> bool {
        let Some((_, largest)) = self.sizes.last().cloned() else {
            return false;
        };
        let first = self
            .tenants
            .get_mut(&largest)
            .and_then(|tenant| tenant.order.pop_front());
        let Some(first) = first else {
            return false;
        };
        let evicted = Arc::make_mut(&mut self.families).remove(&first);
        let evicted_size = evicted.map_or(0, |evicted| size(&first, &evicted));
        self.change_tenant(&largest, |tenant| tenant.size -= evicted_size);
        self.n_evicted += 1;
        true
    }

    /// Changes the families of a tenant, and the sums of their sizes.
    fn change_tenant(&mut self, tenant: &str, change: impl FnOnce(&mut TenantFamilies)) {
        let (key, mut families) = match self.tenants.remove_entry(tenant) {
            Some((key, families)) => (key, families),
            None => (Arc::from(tenant), TenantFamilies::default()),
        };
        let old_size = families.size;
        change(&mut families);
        self.size = self.size + families.size - old_size;
        self.sizes.remove(&(old_size, Arc::clone(&key)));
        if !families.order.is_empty() {
            self.sizes.insert((families.size, Arc::clone(&key)));
            self.tenants.insert(key, families);
        }
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> MetadataStats {
        let n_families = self.families.len() as u64;
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

    /// A tenant with ever new families evicted those of all others.
    #[test]
    fn a_tenant_evicts_its_own_families() {
        let mut table = FamilyTable::new(10 * (ENTRY_SIZE + 110));
        let key = |name: char, team: &str| format!("{name}\0team\0{team}");
        for name in ['x', 'y', 'z'] {
            table.set(&key(name, "b"), help(100));
        }
        table.set("x", help(100));
        ('a'..='w').for_each(|name| table.set(&key(name, "a"), help(100)));
        let kept: Vec<_> = table
            .by_age()
            .into_iter()
            .map(|(key, _)| key.replace("\0team\0", " of "))
            .collect();
        let expect = [
            "r of a", "s of a", "t of a", "u of a", "v of a", "w of a", "x", "x of b", "y of b",
            "z of b",
        ];
        let mut sorted = kept.clone();
        sorted.sort();
        assert_eq!(sorted, expect);
        let of_a: Vec<_> = kept.iter().filter(|key| key.ends_with('a')).collect();
        assert!(of_a.is_sorted(), "in order of addition: {of_a:?}");

        // An evicted tenant leaves nothing behind.
        table.set("large", help(10_000));
        assert_eq!((table.tenants.len(), table.sizes.len()), (2, 2));
        assert!(!table.families().contains_key("large") && !table.families().contains_key("x"));
        assert_eq!(table.size, 9 * (ENTRY_SIZE + 108));
    }

    #[test]
    fn the_number_is_bounded() {
        let mut table = FamilyTable::new(usize::MAX);
        (0..=METADATA_FAMILIES_MAX).for_each(|i| table.set(&i.to_string(), help(1)));
        assert_eq!(table.stats().n_families, METADATA_FAMILIES_MAX as u64);
        assert!(!table.families().contains_key("0") && table.families().contains_key("1"));
    }
}
