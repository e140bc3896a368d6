//! Sets of label names and values, as results of label queries.
//!
//! The strings come from several heads and blocks, unsorted and repeated. They are stored in one
//! buffer, a table removes duplicates, and they are sorted when they are read.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use varve_context::{Charge, QueryContext, Result};

/// Memory of an entry besides its string: its end, its position in a table that may be half empty,
/// and its position in the sorted order.
const ENTRY_SIZE: usize = 2 * size_of::<usize>() + 2 * (size_of::<usize>() + 1) + size_of::<&str>();
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
    /// Only so many strings are needed, the first ones in order.
    n_first: usize,
    /// `true` if the string at place `n_first - 1` is the last one that is needed. Later ones are
    /// not added.
    has_last: bool,
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
            n_first: n_first.max(1),
            has_last: false,
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
        if !self.wants(text) || self.contains(text) {
            return Ok(());
        }
        if self.len() >= self.n_first.saturating_mul(2) {
            self.drop_last()?;
            if !self.wants(text) {
                return Ok(());
            }
        }
        let hash = self.hasher.hash_one(text);
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
        self.charge.shrink((n_before - self.n_first) * ENTRY_SIZE);

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

    /// Charges one more string before memory is allocated. The buffer doubles when it grows, as the
    /// lists do.
    fn make_room(&mut self, size: usize) -> Result<()> {
        // Strings of a head are added under its lock, where waiting is not allowed.
        self.charge.grow_without_waiting(ENTRY_SIZE)?;
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
        let hash = self.hasher.hash_one(text);
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
        sorted.sort_unstable();
        sorted.into_iter()
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
