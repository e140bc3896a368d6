//! The label names of the series in memory, over all shards.
//!
//! Each name costs a table of values in every shard that has it, so limits on label names look here
//! before a series is created.
//!
//! Invariant: the count of a name is the number of heads that have a series with it.
//!
//! Threads: a shard takes the lock under the lock of its head, and only when the first series with a
//! name arrives there or the last one leaves. The number of names is read without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// See the module documentation. Clones share one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelNames(Arc<Names>);

#[derive(Debug, Default)]
struct Names {
    /// Number of heads that have the name.
    n_heads: Mutex<HashMap<String, u32>>,
    n_names: AtomicUsize,
}

impl LabelNames {
    /// Returns the number of names.
    pub(crate) fn len(&self) -> usize {
        self.0.n_names.load(Ordering::Relaxed)
    }

    /// Returns how many of some names no series has.
    pub(crate) fn n_unknown<'a>(&self, names: impl Iterator<Item = &'a str>) -> usize {
        let known = self.0.n_heads.lock();
        names.filter(|&name| !known.contains_key(name)).count()
    }

    /// Counts a head that has its first series with a name.
    pub(super) fn add(&self, name: &str) {
        let mut n_heads = self.0.n_heads.lock();
        *n_heads.entry_ref(name).or_default() += 1;
        self.0.n_names.store(n_heads.len(), Ordering::Relaxed);
    }

    /// Removes a head whose last series with a name has left.
    pub(super) fn remove(&self, name: &str) {
        let mut n_heads = self.0.n_heads.lock();
        let Some(n) = n_heads.get_mut(name) else {
            return;
        };
        *n -= 1;
        if *n == 0 {
            n_heads.remove(name);
        }
        self.0.n_names.store(n_heads.len(), Ordering::Relaxed);
    }
}
