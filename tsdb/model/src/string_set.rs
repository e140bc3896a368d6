//! Sets of label names and values, as results of label queries.
//!
//! The strings come from several heads and blocks, unsorted and repeated. They are stored in one
//! buffer, a table removes duplicates, and they are sorted when they are read.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use varve_context::{Charge, QueryContext, Result};

/// Memory of an entry besides its string: its end, its position in a table that may be half empty,
/// its position in the sorted order, and a second one while it is sorted.
const ENTRY_SIZE: usize =
    2 * size_of::<usize>() + 2 * (size_of::<usize>() + 1) + 2 * size_of::<&str>();
/// Number of entries that are charged at first.
const CHARGED_MIN: usize = 8;
/// Initial capacity in bytes.
const SIZE_MIN: usize = 1 << 10;

/// A set of strings, charged to a request until it is dropped.
#[derive(Debug)]
pub struct StringSet {
    all: String,
    /// The end of each string, where the next one begins.
    ends: Vec<usize>,
    /// The indexes of the strings.
    places: HashTable<usize>,
    hasher: DefaultHashBuilder,
    charge: Charge,
    /// Number of entries that are charged.
    n_charged: usize,
    /// Only so many strings are needed, the first ones in order.
    n_first: usize,
    /// `true` if the string at place `n_first - 1` is the last one that is needed. Later ones are
    /// not added.
    has_last: bool,
}

/// Adds strings in ascending order to a set, until it needs no further ones.
#[derive(Debug)]
pub struct Ascending<'a> {
    set: &'a mut StringSet,
    n_left: usize,
}

impl StringSet {
    /// Creates an empty set.
    pub fn new(ctx: &QueryContext) -> Self {
        Self::of_first(ctx, usize::MAX)
    }

    /// Creates an empty set that keeps the first `n_first` strings in order of all that are added.
    /// It may keep almost twice as many.
    pub fn of_first(ctx: &QueryContext, n_first: usize) -> Self {
        Self {
            all: String::new(),
            ends: Vec::new(),
            places: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            charge: ctx.charge(),
            n_charged: 0,
            n_first: n_first.max(1),
            has_last: false,
        }
    }

    /// Returns the number of strings that are needed, the first ones in order.
    #[must_use]
    pub fn n_first(&self) -> usize {
        self.n_first
    }

    /// Begins to add strings in ascending order.
    pub fn ascending(&mut self) -> Ascending<'_> {
        Ascending {
            n_left: self.n_first,
            set: self,
        }
    }

    /// Returns `false` if a string need not be added, because enough strings before it were.
    #[must_use]
    pub fn wants(&self, text: &str) -> bool {
        !self.has_last || text < text_at(&self.all, &self.ends, self.n_first - 1)
    }

    /// Adds a string.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    pub fn insert(&mut self, text: &str) -> Result<()> {
        let hash = self.hasher.hash_one(text);
        if !self.wants(text) || self.find(hash, text) {
            return Ok(());
        }
        if self.len() >= self.n_first.saturating_mul(2) {
            self.drop_last()?;
            if !self.wants(text) {
                return Ok(());
            }
        }
        self.make_room(text.len())?;
        let place = self.ends.len();
        self.all.push_str(text);
        self.ends.push(self.all.len());
        let Self {
            all,
            ends,
            places,
            hasher,
            ..
        } = self;
        places.insert_unique(hash, place, |&place| {
            hasher.hash_one(text_at(all, ends, place))
        });
        Ok(())
    }

    /// Keeps the strings that are needed.
    fn drop_last(&mut self) -> Result<()> {
        let n_before = self.len();
        let mut places: Vec<_> = (0..n_before).collect();
        places.select_nth_unstable_by_key(self.n_first - 1, |&place| {
            text_at(&self.all, &self.ends, place)
        });
        places.truncate(self.n_first);

        let size = self.all.capacity();
        self.charge.grow_without_waiting(size)?;
        let mut kept = String::with_capacity(size);
        let mut kept_ends = Vec::with_capacity(self.n_first);
        for &place in &places {
            kept.push_str(text_at(&self.all, &self.ends, place));
            kept_ends.push(kept.len());
        }
        self.has_last = true;
        self.all = kept;
        self.ends = kept_ends;
        self.charge.shrink(size);
        self.charge
            .shrink((self.n_charged - self.n_first) * ENTRY_SIZE);
        self.n_charged = self.n_first;

        let Self {
            all,
            ends,
            places,
            hasher,
            ..
        } = self;
        places.clear();
        for place in 0..ends.len() {
            let hash = hasher.hash_one(text_at(all, ends, place));
            places.insert_unique(hash, place, |&place| {
                hasher.hash_one(text_at(all, ends, place))
            });
        }
        Ok(())
    }

    /// Charges one more string before memory is allocated. The buffer and the number of charged
    /// entries double when they grow, as the lists do.
    fn make_room(&mut self, size: usize) -> Result<()> {
        // Strings of a head are added under its lock, where waiting is not allowed.
        if self.len() == self.n_charged {
            let n_more = self.n_charged.max(CHARGED_MIN);
            self.charge.grow_without_waiting(n_more * ENTRY_SIZE)?;
            self.n_charged += n_more;
        }
        let needed = self.all.len() + size;
        if needed > self.all.capacity() {
            let grown = needed.max(2 * self.all.capacity()).max(SIZE_MIN);
            self.charge
                .grow_without_waiting(grown - self.all.capacity())?;
            self.all.reserve_exact(grown - self.all.len());
        }
        Ok(())
    }

    /// Adds all strings of another set.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    pub fn extend(&mut self, other: &Self) -> Result<()> {
        (0..other.len()).try_for_each(|place| self.insert(text_at(&other.all, &other.ends, place)))
    }

    /// Returns `true` if the set contains a string.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.find(self.hasher.hash_one(text), text)
    }

    fn find(&self, hash: u64, text: &str) -> bool {
        self.places
            .find(hash, |&place| text_at(&self.all, &self.ends, place) == text)
            .is_some()
    }

    /// Returns the number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if there are no strings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Sorts the strings and iterates over them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut sorted: Vec<_> = (0..self.len())
            .map(|place| text_at(&self.all, &self.ends, place))
            .collect();
        // Stable, because that merges the ascending strings of a few sources without sorting them.
        sorted.sort();
        sorted.into_iter()
    }
}

impl Ascending<'_> {
    /// Returns `true` if no further strings are needed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.n_left == 0
    }

    /// Returns `false` if neither this string nor later ones need be added.
    #[must_use]
    pub fn needs(&self, text: &str) -> bool {
        !self.is_full() && self.set.wants(text)
    }

    /// Adds a string after the previous one.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    pub fn insert(&mut self, text: &str) -> Result<()> {
        self.n_left = self.n_left.saturating_sub(1);
        self.set.insert(text)
    }
}

fn text_at<'a>(all: &'a str, ends: &[usize], place: usize) -> &'a str {
    let start = place.checked_sub(1).map_or(0, |before| ends[before]);
    &all[start..ends[place]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::time::Duration;
    use varve_context::MemoryBudget;

    proptest! {
        #[test]
        fn strings_are_sorted_and_unique(
            texts in proptest::collection::vec("[a-cé]{0,3}", 0..200), n_first in 0..200_usize,
        ) {
            let ctx = QueryContext::unbounded();
            let mut first = StringSet::new(&ctx);
            let mut second = StringSet::new(&ctx);
            for (i, text) in texts.iter().enumerate() {
                if i < n_first { first.insert(text).unwrap() } else { second.insert(text).unwrap() }
            }
            first.extend(&second).unwrap();
            let model: BTreeSet<_> = texts.iter().map(String::as_str).collect();
            prop_assert_eq!((first.len(), first.is_empty()), (model.len(), model.is_empty()));
            prop_assert!(first.iter().eq(model));
        }

        #[test]
        fn the_first_strings_are_kept(
            texts in proptest::collection::vec("[a-cé]{0,3}", 0..200), n_first in 1..20_usize,
        ) {
            let memory = MemoryBudget::new(varve_context::Limit::Other("memory"), usize::MAX);
            let ctx = QueryContext::new(Duration::from_secs(60), memory.clone());
            let mut kept = StringSet::of_first(&ctx, n_first);
            let mut model = BTreeSet::new();
            for text in &texts {
                kept.insert(text).unwrap();
                model.insert(text.as_str());
                prop_assert!(kept.len() <= 2 * n_first && kept.len() >= model.len().min(n_first));
                prop_assert!(kept.iter().take(n_first).eq(model.iter().copied().take(n_first)));
                prop_assert!(kept.iter().all(|text| model.contains(text) && kept.contains(text)));
            }
            drop(kept);
            prop_assert_eq!(memory.used(), 0);
        }
    }

    proptest! {
        #[test]
        fn the_first_strings_of_ascending_sources_are_kept(
            sources in proptest::collection::vec(proptest::collection::btree_set("[a-cé]{0,3}", 0..30), 1..5),
            n_first in 1..20_usize,
        ) {
            let mut kept = StringSet::of_first(&QueryContext::unbounded(), n_first);
            for source in &sources {
                let mut strings = kept.ascending();
                let mut n_added = 0;
                for text in source {
                    if !strings.needs(text) {
                        break;
                    }
                    strings.insert(text).unwrap();
                    n_added += 1;
                }
                prop_assert!(n_added <= n_first);
            }
            let model: BTreeSet<_> = sources.iter().flatten().map(String::as_str).collect();
            prop_assert!(kept.iter().take(n_first).eq(model.into_iter().take(n_first)));
        }
    }

    #[test]
    fn strings_are_charged_until_the_set_is_dropped() {
        let memory = MemoryBudget::new(varve_context::Limit::Other("memory"), 1 << 16);
        let ctx = QueryContext::new(Duration::from_secs(60), memory.clone());
        let mut texts = StringSet::new(&ctx);
        let n_taken = (0..)
            .take_while(|i| texts.insert(&format!("{i:0100}")).is_ok())
            .count();
        let size = texts.all.capacity() + texts.len() * (size_of::<usize>() + size_of::<&str>());
        assert!(
            n_taken == texts.len() && size <= memory.used() && memory.used() <= 1 << 16,
            "{n_taken} {size}"
        );
        assert_eq!(
            texts.insert(&format!("{:0100}", 0)).ok(),
            Some(()),
            "it is there"
        );
        drop(texts);
        assert_eq!(memory.used(), 0);
    }
}
