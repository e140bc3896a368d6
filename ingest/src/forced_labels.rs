//! Labels that the server adds to all series of a request. They replace labels of the same name.
//!
//! There are two kinds. The added label, the tenant of a Thanos router, is set before relabeling,
//! and rules may change or remove it. The forced labels, those of a token, are set before HA
//! deduplication and relabeling, and again after relabeling. The routes of such requests have keys
//! of their own in the route cache, as the same label set leads to other series.

use varve_model::Labels;

use crate::batch::{RouteHasher, RouteKey};
use crate::sources::remote_write::LabelPairs;

/// The labels of one request.
#[derive(Debug)]
pub(crate) struct ForcedLabels<'a> {
    added: Option<(&'a str, &'a str)>,
    labels: &'a [(String, String)],
    /// The hash of all labels. `None` without labels.
    key: Option<(RouteKey, &'a RouteHasher)>,
}

impl<'a> ForcedLabels<'a> {
    pub(crate) fn new(
        added: Option<(&'a str, &'a str)>,
        labels: &'a [(String, String)],
        hasher: &'a RouteHasher,
    ) -> Self {
        let key = (added.is_some() || !labels.is_empty()).then(|| {
            let mut bytes = Vec::new();
            // Always two texts of an added label, so that it has another key than the same label in
            // `labels`.
            let (name, value) = added.unwrap_or_default();
            let labels = labels.iter().flat_map(|(name, value)| [&**name, &**value]);
            for text in [name, value].into_iter().chain(labels) {
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
            (hasher.hash(&bytes), hasher)
        });
        Self { added, labels, key }
    }

    /// Returns the labels of a series as sent, and the added label instead of the first one of its
    /// name.
    pub(crate) fn add<'b>(&self, sent: LabelPairs<'b>) -> impl Iterator<Item = (&'b [u8], &'b [u8])>
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
    /// [`ForcedLabels::add`] that they do not replace.
    pub(crate) fn add_all<'b>(
        &self,
        sent: LabelPairs<'b>,
    ) -> impl Iterator<Item = (&'b [u8], &'b [u8])>
    where
        'a: 'b,
    {
        let labels = self.labels;
        let forced = labels
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let is_replaced = move |sent: &[u8]| labels.iter().any(|(name, _)| name.as_bytes() == sent);
        forced.chain(self.add(sent).filter(move |(name, _)| !is_replaced(name)))
    }

    /// As [`ForcedLabels::add`].
    pub(crate) fn add_to<'b>(&self, sent: &mut Vec<(&'b str, &'b str)>)
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

    /// Prints the forced labels. Returns an empty string without any.
    pub(crate) fn print(&self) -> String {
        let labels: Vec<_> = self
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(", "))
        }
    }

    /// Returns the labels of a series with the forced labels.
    pub(crate) fn apply(&self, labels: Labels) -> Labels {
        self.labels
            .iter()
            .fold(labels, |labels, (name, value)| labels.with(name, value))
    }

    /// Returns the key of a series in the route cache.
    #[inline]
    pub(crate) fn key(&self, key: RouteKey) -> RouteKey {
        // Fast path: no tenant.
        let Some((of_labels, hasher)) = self.key else {
            return key;
        };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&key.to_bytes());
        bytes[16..].copy_from_slice(&of_labels.to_bytes());
        // Hashes both in order: the sum of both would be the same if they were swapped.
        hasher.hash(&bytes)
    }
}
