//! Buffers of a write request, reused between requests.

use std::sync::{Mutex, PoisonError};

use crate::append::Outgoing;
use crate::batch::{DecodedBatch, RouteKey};
use crate::route::Route;

/// What one request works with.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The decompressed message.
    pub(crate) message: Vec<u8>,
    pub(crate) batch: DecodedBatch,
    pub(crate) passage: Passage,
}

/// What a decoded request needs on its way into the store.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    /// The route of each series of the request, where there is one.
    pub(crate) routes: Vec<Option<Route>>,
    /// The keys of the request by stripe of the route cache.
    pub(crate) order: Vec<(u32, RouteKey)>,
    pub(crate) outgoing: Outgoing,
}

/// Scratch that nobody uses now.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool {
    free: Mutex<Vec<Scratch>>,
}

impl ScratchPool {
    /// Lends scratch. What has grown beyond [`SCRATCH_SIZE_MAX`] is freed afterwards, so that one huge request does not
    /// hold its memory for good.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        let mut scratch = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let result = work(&mut scratch);
        if scratch.size() <= SCRATCH_SIZE_MAX {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < POOL_LEN_MAX {
                free.push(scratch);
            }
        }
        result
    }
}

impl Scratch {
    /// The outgoing batch is not counted: it grows with the samples, to about twice their size.
    fn size(&self) -> usize {
        self.message.capacity() + self.batch.size()
    }
}

/// Bytes of message and decoded batch. A request of 10,000 series takes some 3 MiB.
const SCRATCH_SIZE_MAX: usize = 8 << 20;
const POOL_LEN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_unless_they_are_large() {
        let pool = ScratchPool::default();
        pool.with(|scratch| scratch.message.reserve_exact(1000));
        pool.with(|scratch| assert!(scratch.message.capacity() >= 1000));
        pool.with(|scratch| scratch.message.reserve_exact(SCRATCH_SIZE_MAX + 1));
        pool.with(|scratch| assert_eq!(scratch.message.capacity(), 0));
    }
}
