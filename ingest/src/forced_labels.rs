//! Labels that all series of a sender get, whatever it sends: the labels of a tenant.
//!
//! They replace labels of the same name, before HA deduplication and relabeling, and again after relabeling. The routes
//! of such a sender have keys of their own in the route cache, as the same label set leads to other series.

use varve_tsdb::Labels;

use crate::batch::{RouteHasher, RouteKey};

/// The labels of one sender.
#[derive(Debug)]
pub(crate) struct ForcedLabels<'a> {
    labels: &'a [(String, String)],
    hasher: &'a RouteHasher,
}

impl<'a> ForcedLabels<'a> {
    pub(crate) fn new(labels: &'a [(String, String)], hasher: &'a RouteHasher) -> Self {
        Self { labels, hasher }
    }

    /// Returns the labels of a series with these labels.
    pub(crate) fn apply(&self, labels: Labels) -> Labels {
        self.labels.iter().fold(labels, |labels, (name, value)| labels.with(name, value))
    }

    /// Returns the key of a series in the route cache.
    #[inline]
    pub(crate) fn key(&self, key: RouteKey) -> RouteKey {
        // Fast path: no tenant.
        if self.labels.is_empty() { key } else { self.key_of_tenant(key) }
    }

    #[inline(never)]
    fn key_of_tenant(&self, key: RouteKey) -> RouteKey {
        let mut bytes = key.to_bytes().to_vec();
        for text in self.labels.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        self.hasher.hash(&bytes)
    }
}
