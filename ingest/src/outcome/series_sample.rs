//! [`SeriesSample`]: some of the series of a request, by which senders are compared.

use crate::batch::RouteKey;
use crate::route::{CacheKey, Scope};
use crate::sender_labels::SenderLabels;

/// Number of series that a sample has at least on average, and less than twice as many, if the request
/// has more.
const SAMPLED: usize = 96;

/// The series of a request whose hash is below a threshold, ascending. Requests with the same series
/// have the same sample.
///
/// Source: E. Cohen and H. Kaplan, *Summarizing data using bottom-k sketches*, 2007.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeriesSample(Vec<SeriesHash>);

/// The hash of a series of a tenant. The order is that of the hashes of the labels as sent, without the
/// tenant. Hashes have other secrets in each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesHash {
    sent: u64,
    of_tenant: CacheKey,
}

impl SeriesSample {
    /// Takes a sample of the `n_series` series of a request.
    pub(crate) fn of(
        keys: impl Iterator<Item = RouteKey>,
        n_series: usize,
        labels: &SenderLabels<'_>,
    ) -> Self {
        let sent_max = match n_series / SAMPLED {
            0 => u64::MAX,
            n_per_sampled => u64::MAX / n_per_sampled as u64,
        };
        let hashes = keys.map(|key| (key.number(), key));
        let mut sampled: Vec<_> = hashes
            .filter(|(sent, _)| *sent <= sent_max)
            .map(|(sent, key)| SeriesHash {
                sent,
                of_tenant: labels.cache_key(key, Scope::default()),
            })
            .collect();
        sampled.sort_unstable();
        Self(sampled)
    }

    /// Iterates over the hashes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = SeriesHash> {
        self.0.iter().copied()
    }

    /// Adds the sample of another part of the same body.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
        self.0.sort_unstable();
        self.0.dedup();
        self.0.truncate(SAMPLED);
    }
}

impl FromIterator<SeriesHash> for SeriesSample {
    /// Collects hashes, which are in ascending order.
    fn from_iter<I: IntoIterator<Item = SeriesHash>>(hashes: I) -> Self {
        Self(hashes.into_iter().collect())
    }
}

impl SeriesHash {
    /// Returns the share of all hashes that are smaller, from 0 to 1.
    #[must_use]
    pub fn share(self) -> f64 {
        self.sent as f64 / u64::MAX as f64
    }

    /// Creates a hash for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn for_tests(sent: u64) -> Self {
        Self {
            sent,
            of_tenant: CacheKey::default(),
        }
    }
}
