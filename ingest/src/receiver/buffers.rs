//! Buffers that write requests reuse.

use parking_lot::Mutex;

use crate::batch::{DecodedBatch, RouteKey};
use crate::route::Route;
use crate::write::append::Outgoing;

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
    pub(crate) order: Vec<(u32, RouteKey)>,
    pub(crate) outgoing: Outgoing,
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

    /// Calls `work` with unused buffers. Frees them afterwards if they take more than a quarter of
    /// the pool or do not fit in it, so that the memory of huge requests is not held forever.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Buffers) -> R) -> R {
        let mut buffers = self.free.lock().pop().unwrap_or_default();
        let result = work(&mut buffers);
        let mut free = self.free.lock();
        if buffers.size() <= self.size_max / 4 && size(&free) + buffers.size() <= self.size_max {
            free.push(buffers);
        }
        result
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

/// There are never more buffers than requests at a time.
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
        pool.with(|buffers| {
            buffers.message.reserve_exact(900);
            if n > 1 {
                use_at_once(pool, n - 1);
            }
        });
    }

    #[test]
    fn buffers_are_reused_within_the_size_of_the_pool() {
        let pool = BufferPool::new(4_000);
        let used = |size: usize| pool.with(|buffers| buffers.message.reserve_exact(size));
        used(1_000);
        pool.with(|buffers| assert!(buffers.message.capacity() >= 1_000));
        used(1_001);
        assert_eq!(pool.size(), 0, "more than a quarter");
        use_at_once(&pool, 10);
        assert!((3_600..=4_000).contains(&pool.size()), "{}", pool.size());
        pool.clear();
        assert_eq!(pool.size(), 0);
    }
}
