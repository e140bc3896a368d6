//! Buffers that write requests reuse.

use std::sync::{Mutex, PoisonError};

use crate::append::Outgoing;
use crate::batch::{DecodedBatch, RouteKey};
use crate::route::Route;

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

/// Unused buffers.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Buffers>>,
}

impl BufferPool {
    /// Calls `work` with unused buffers. Frees them afterwards if they have grown beyond [`SIZE_MAX`], so that the
    /// memory of one huge request is not held forever.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Buffers) -> R) -> R {
        let mut buffers = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let result = work(&mut buffers);
        if buffers.size() <= SIZE_MAX {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < POOL_LEN_MAX {
                free.push(buffers);
            }
        }
        result
    }
}

impl Buffers {
    /// Returns the size in bytes, without the outgoing batch, which has about twice the size of the samples.
    fn size(&self) -> usize {
        self.message.capacity() + self.batch.size()
    }
}

/// Maximum bytes of message and decoded batch that are kept for reuse. A request of 10,000 series takes about 3 MiB.
const SIZE_MAX: usize = 8 << 20;
const POOL_LEN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_unless_they_are_large() {
        let pool = BufferPool::default();
        pool.with(|buffers| buffers.message.reserve_exact(1000));
        pool.with(|buffers| assert!(buffers.message.capacity() >= 1000));
        pool.with(|buffers| buffers.message.reserve_exact(SIZE_MAX + 1));
        pool.with(|buffers| assert_eq!(buffers.message.capacity(), 0));
    }
}
