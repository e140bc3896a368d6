//! Sets of label names or values on their way to a client.

use std::collections::BTreeSet;

use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::Charge;

/// What an entry takes besides its text: the `String` and its share of the tree.
const ENTRY_SIZE: usize = 2 * size_of::<String>();

/// A sorted set of texts, charged to a request until it is dropped.
#[derive(Debug)]
pub struct Texts {
    set: BTreeSet<String>,
    charge: Charge,
}

impl Texts {
    /// Starts empty.
    pub(crate) fn new(ctx: &QueryContext) -> Self {
        Self { set: BTreeSet::new(), charge: ctx.charge() }
    }

    /// Adds a text.
    ///
    /// # Errors
    /// When the request's memory is used up.
    pub(crate) fn insert(&mut self, text: &str) -> Result<()> {
        if !self.set.contains(text) {
            // Texts of a head are taken under its lock.
            self.charge.grow_at_once(text.len() + ENTRY_SIZE)?;
            self.set.insert(text.to_owned());
        }
        Ok(())
    }

    /// Adds all texts of another set of the same request.
    pub fn extend(&mut self, other: Self) {
        self.charge.absorb(other.charge);
        self.set.extend(other.set);
    }

    /// Counts the texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Tells whether there are no texts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Iterates over the texts in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.set.iter().map(String::as_str)
    }
}
