//! Sets of label names and values on their way to a client.
//!
//! Texts come from several heads and blocks, in no order and more than once. They lie one behind the other in one buffer, a
//! table finds those that are there, and they are brought in order when they are read.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Charge;

/// What an entry takes besides its text: where it ends, its place in the table, half of which may be empty, and its place in
/// the order.
const ENTRY_SIZE: usize = 2 * size_of::<usize>() + 2 * (size_of::<usize>() + 1) + size_of::<&str>();
/// Bytes that are made room for at first.
const SIZE_MIN: usize = 1 << 10;

/// A set of texts, charged to a request until it is dropped.
#[derive(Debug)]
pub struct Texts {
    all: String,
    /// Where each text ends, and the next begins.
    ends: Vec<usize>,
    /// The numbers of the texts.
    places: HashTable<usize>,
    hasher: DefaultHashBuilder,
    charge: Charge,
}

impl Texts {
    /// Starts empty.
    pub(crate) fn new(ctx: &QueryContext) -> Self {
        Self {
            all: String::new(),
            ends: Vec::new(),
            places: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            charge: ctx.charge(),
        }
    }

    /// Adds a text.
    ///
    /// # Errors
    /// When the request's memory is used up.
    pub(crate) fn insert(&mut self, text: &str) -> Result<()> {
        let hash = self.hasher.hash_one(text);
        if self.places.find(hash, |&place| text_at(&self.all, &self.ends, place) == text).is_some() {
            return Ok(());
        }
        self.make_room(text.len())?;
        let place = self.ends.len();
        self.all.push_str(text);
        self.ends.push(self.all.len());
        let Self { all, ends, places, hasher, .. } = self;
        places.insert_unique(hash, place, |&place| hasher.hash_one(text_at(all, ends, place)));
        Ok(())
    }

    /// Charges one more text before it takes memory. The buffer doubles, as the lists do.
    fn make_room(&mut self, size: usize) -> Result<()> {
        // Texts of a head are taken under its lock: nobody may be waited for.
        self.charge.grow_at_once(ENTRY_SIZE)?;
        let needed = self.all.len() + size;
        if needed > self.all.capacity() {
            let grown = needed.max(2 * self.all.capacity()).max(SIZE_MIN);
            self.charge.grow_at_once(grown - self.all.capacity())?;
            self.all.reserve_exact(grown - self.all.len());
        }
        Ok(())
    }

    /// Adds all texts of another set.
    ///
    /// # Errors
    /// When the request's memory is used up.
    pub fn extend(&mut self, other: &Self) -> Result<()> {
        (0..other.len()).try_for_each(|place| self.insert(text_at(&other.all, &other.ends, place)))
    }

    /// Counts the texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Tells whether there are no texts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Brings the texts in order and iterates over them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut sorted: Vec<_> = (0..self.len()).map(|place| text_at(&self.all, &self.ends, place)).collect();
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
    use crate::memory::MemoryBudget;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    proptest! {
        #[test]
        fn texts_come_in_order_and_each_once(
            texts in proptest::collection::vec("[a-cé]{0,3}", 0..200), n_first in 0..200_usize,
        ) {
            let ctx = QueryContext::unbounded();
            let (mut first, mut second) = (Texts::new(&ctx), Texts::new(&ctx));
            for (i, text) in texts.iter().enumerate() {
                if i < n_first { first.insert(text).unwrap() } else { second.insert(text).unwrap() }
            }
            first.extend(&second).unwrap();
            let model: BTreeSet<_> = texts.iter().map(String::as_str).collect();
            prop_assert_eq!((first.len(), first.is_empty()), (model.len(), model.is_empty()));
            prop_assert!(first.iter().eq(model));
        }
    }

    #[test]
    fn what_texts_take_is_charged_until_they_are_dropped() {
        let memory = MemoryBudget::new("memory", 1 << 16);
        let ctx = QueryContext::new(Duration::from_secs(60), memory.clone());
        let mut texts = Texts::new(&ctx);
        let n_taken = (0..).take_while(|i| texts.insert(&format!("{i:0100}")).is_ok()).count();
        let size = texts.all.capacity() + texts.len() * (size_of::<usize>() + size_of::<&str>());
        assert!(n_taken == texts.len() && size <= memory.used() && memory.used() <= 1 << 16, "{n_taken} {size}");
        assert_eq!(texts.insert(&format!("{:0100}", 0)).ok(), Some(()), "it is there");
        drop(texts);
        assert_eq!(memory.used(), 0);
    }
}
