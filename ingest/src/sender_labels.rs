//! Labels that the server adds to all series of a request. They replace labels of the same name.
//!
//! There are two kinds. The added label, the tenant of a Thanos router, is set before relabeling,
//! and relabel rules may change or remove it. The forced labels, those of a token, are set before HA
//! deduplication and relabeling, and again after relabeling. The routes of such requests have keys
//! of their own in the route cache, as the same label set leads to other series.

use varve_model::{Labels, TenantLabels};

use crate::batch::{RouteHasher, RouteKey};
use crate::route::{CacheKey, Scope};
use crate::sources::remote_write::LabelPairs;

/// The labels that the server adds to the series of one request.
#[derive(Debug)]
pub(crate) struct SenderLabels<'a> {
    added: Option<(&'a str, &'a str)>,
    forced: &'a [(String, String)],
    /// The hash of all labels. `None` without labels.
    hash: Option<(RouteKey, &'a RouteHasher)>,
}

impl<'a> SenderLabels<'a> {
    pub(crate) fn new(
        added: Option<(&'a str, &'a str)>,
        forced: &'a [(String, String)],
        hasher: &'a RouteHasher,
    ) -> Self {
        let hash = (added.is_some() || !forced.is_empty()).then(|| {
            let mut bytes = Vec::new();
            // Always two texts of an added label, so that it has another key than the same label in
            // `forced`.
            let (name, value) = added.unwrap_or_default();
            let forced = forced.iter().flat_map(|(name, value)| [&**name, &**value]);
            for text in [name, value].into_iter().chain(forced) {
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
            (hasher.hash(&bytes), hasher)
        });
        Self {
            added,
            forced,
            hash,
        }
    }

    /// Returns the labels of a series as sent, and the added label instead of the first one of its
    /// name.
    pub(crate) fn with_added<'b>(
        &self,
        sent: LabelPairs<'b>,
    ) -> impl Iterator<Item = (&'b [u8], &'b [u8])>
    where
        'a: 'b,
    {
        let added = self
            .added
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut replaced = added.map(|(name, _)| name);
        added.into_iter().chain(
            sent.filter(move |(name, _)| replaced.take_if(|replaced| replaced == name).is_none()),
        )
    }

    /// Returns the labels of a series for HA deduplication: the forced labels, then those of
    /// [`SenderLabels::with_added`] that they do not replace.
    pub(crate) fn with_added_and_forced<'b>(
        &self,
        sent: LabelPairs<'b>,
    ) -> impl Iterator<Item = (&'b [u8], &'b [u8])>
    where
        'a: 'b,
    {
        let forced_labels = self.forced;
        let forced = forced_labels
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let is_replaced = move |sent: &[u8]| {
            forced_labels
                .iter()
                .any(|(name, _)| name.as_bytes() == sent)
        };
        forced.chain(
            self.with_added(sent)
                .filter(move |(name, _)| !is_replaced(name)),
        )
    }

    /// As [`SenderLabels::with_added`].
    pub(crate) fn insert_added<'b>(&self, sent: &mut Vec<(&'b str, &'b str)>)
    where
        'a: 'b,
    {
        if let Some(added) = self.added {
            sent.iter()
                .position(|(name, _)| *name == added.0)
                .map(|idx| sent.remove(idx));
            sent.insert(0, added);
        }
    }

    /// Returns the tenant of the sender: that of its token, and that of a router.
    pub(crate) fn tenant(&self) -> TenantLabels {
        let mut labels = self.forced.to_vec();
        if let Some((name, value)) = self.added
            && !labels.iter().any(|(forced, _)| forced == name)
        {
            labels.insert(0, (name.to_owned(), value.to_owned()));
        }
        TenantLabels::new(&labels)
    }

    /// Returns the labels of a series with the forced labels.
    pub(crate) fn with_forced(&self, labels: Labels) -> Labels {
        self.forced
            .iter()
            .fold(labels, |labels, (name, value)| labels.with(name, value))
    }

    /// Returns the key of a series in the route cache.
    #[inline]
    pub(crate) fn cache_key(&self, key: RouteKey, scope: Scope) -> CacheKey {
        // Fast path: no tenant.
        let Some((labels_hash, hasher)) = self.hash else {
            return CacheKey::new(key, scope);
        };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&key.to_bytes());
        bytes[16..].copy_from_slice(&labels_hash.to_bytes());
        // Hashes both in order: the sum of both would be the same if they were swapped.
        CacheKey::new(hasher.hash(&bytes), scope)
    }
}
