//! Buffers that write requests reuse.

use parking_lot::Mutex;
use varve_model::Exemplar;
use varve_tsdb::WriteBatch;

use crate::admission::Team;
use crate::batch::DecodedBatch;
use crate::outcome::ExemplarCounts;
use crate::relabel::AttributedSamples;
use crate::route::{CacheKey, Route};

/// The buffers of one request.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The decompressed message.
    pub(crate) message: Vec<u8>,
    pub(crate) batch: DecodedBatch,
    pub(crate) request: RequestBuffers,
}

/// The buffers of a decoded request.
#[derive(Debug, Default)]
pub(crate) struct RequestBuffers {
    /// The cached route of each series.
    pub(crate) routes: Vec<Option<Route>>,
    /// The keys of the request, sorted by stripe of the route cache.
    pub(crate) order: Vec<(u32, CacheKey)>,
    pub(crate) outgoing: Outgoing,
}

/// The buffers of an append.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) batch: WriteBatch,
    /// The indexes of samples whose series handles are outdated
    /// ([`RejectionReason::Moved`](varve_model::RejectionReason::Moved)).
    pub(crate) moved: Vec<u32>,
    /// Exemplars whose series handles are outdated, with the indexes of the series.
    pub(crate) moved_exemplars: Vec<(u32, Exemplar)>,
    /// The outcome of exemplars, over all passes so far.
    pub(crate) exemplars: ExemplarCounts,
    /// Number of rejected histograms, over all passes so far.
    pub(crate) histograms_rejected: u64,
    /// Pushed samples of teams and relabel rules.
    pub(crate) attributed: AttributedSamples,
    /// Samples of this pass that budgets must admit.
    pub(crate) requested: AttributedSamples,
    /// Number of samples per team; reused memory.
    pub(crate) by_team: Vec<(Team, u64)>,
    /// Indexes of series that were evicted from the store while the request was written, in the
    /// last append.
    pub(crate) evicted: Vec<u32>,
    /// Indexes of series that an earlier pass pushed but that were evicted before the append,
    /// ascending. Their samples are charged to their budget, and their invalid histograms are
    /// rejected.
    pub(crate) pushed_before: Vec<u32>,
}

impl RequestBuffers {
    /// Buffers for samples of rules or of the server itself. The store accepts their timestamps
    /// without making samples of senders too old.
    pub(crate) fn internal() -> Self {
        Self {
            outgoing: Outgoing {
                batch: WriteBatch::own(),
                ..Outgoing::default()
            },
            ..Self::default()
        }
    }
}

impl Outgoing {
    /// Forgets the previous request, which may have failed, and keeps the memory. Each append
    /// clears `moved`, `moved_exemplars` and `evicted`.
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.exemplars = ExemplarCounts::default();
        self.histograms_rejected = 0;
        self.attributed.clear();
        self.requested.clear();
        self.by_team.clear();
        self.pushed_before.clear();
    }
}

/// Unused buffers, of at most `size_max` bytes together.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Buffers>>,
    size_max: usize,
}

impl BufferPool {
    pub(crate) fn new(size_max: usize) -> Self {
        Self {
            free: Mutex::default(),
            size_max,
        }
    }

    /// Takes unused buffers, or new ones.
    pub(crate) fn take(&self) -> Buffers {
        self.free.lock().pop().unwrap_or_default()
    }

    /// Keeps buffers for a later request. Frees them if they take more than a quarter of the pool or
    /// do not fit in it, so that the memory of huge requests is not held forever.
    pub(crate) fn give_back(&self, buffers: Buffers) {
        let mut free = self.free.lock();
        if buffers.size() <= self.size_max / 4 && size(&free) + buffers.size() <= self.size_max {
            free.push(buffers);
        }
    }

    /// Returns the bytes of memory of all unused buffers.
    pub(crate) fn size(&self) -> usize {
        size(&self.free.lock())
    }

    /// Frees all unused buffers.
    pub(crate) fn clear(&self) {
        self.free.lock().clear();
    }
}

/// Returns the size of all buffers in bytes. Linear, but there are never more buffers than requests
/// at a time.
fn size(free: &[Buffers]) -> usize {
    free.iter().map(Buffers::size).sum()
}

impl Buffers {
    /// Returns the size in bytes. The outgoing batch has about twice the size of the decoded one.
    fn size(&self) -> usize {
        self.message.capacity() + 3 * self.batch.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn use_at_once(pool: &BufferPool, n: usize) {
        let mut taken: Vec<Buffers> = (0..n).map(|_| pool.take()).collect();
        for mut buffers in taken.drain(..) {
            buffers.message.reserve_exact(900);
            pool.give_back(buffers);
        }
    }

    /// Reserves `size` bytes in buffers of the pool, and returns their capacity.
    fn reserve(pool: &BufferPool, size: usize) -> usize {
        let mut buffers = pool.take();
        buffers.message.reserve_exact(size);
        let capacity = buffers.message.capacity();
        pool.give_back(buffers);
        capacity
    }

    #[test]
    fn buffers_are_reused_within_the_size_of_the_pool() {
        let pool = BufferPool::new(4_000);
        reserve(&pool, 1_000);
        assert!(reserve(&pool, 0) >= 1_000);
        reserve(&pool, 1_001);
        assert_eq!(pool.size(), 0, "more than a quarter");
        use_at_once(&pool, 10);
        assert!((3_600..=4_000).contains(&pool.size()), "{}", pool.size());
        pool.clear();
        assert_eq!(pool.size(), 0);
    }
}
