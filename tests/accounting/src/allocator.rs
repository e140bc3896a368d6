//! [`CountingAllocator`]: the system's allocator, with a count of allocated bytes and of their peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Maximum number of bytes that the process may allocate after [`CountingAllocator::start`].
/// Further allocations fail, which ends the process: a request that allocates without limit must
/// not take down the machine.
const ALLOCATED_MAX: isize = 2 << 30;

/// Counts the bytes that the process allocates after [`CountingAllocator::start`].
///
/// Threads: counts for all threads. The peak is exact while one thread allocates.
pub(crate) struct CountingAllocator {
    /// Negative if more is freed than allocated.
    allocated: AtomicIsize,
    peak: AtomicIsize,
}

impl CountingAllocator {
    pub(crate) const fn new() -> Self {
        Self {
            allocated: AtomicIsize::new(0),
            peak: AtomicIsize::new(0),
        }
    }

    /// Starts to count from zero.
    pub(crate) fn start(&self) {
        self.allocated.store(0, Ordering::Relaxed);
        self.peak.store(0, Ordering::Relaxed);
    }

    /// Returns the maximum of allocated bytes since the start.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed).unsigned_abs()
    }

    /// Returns the bytes that are allocated now and were not at the start.
    pub(crate) fn allocated(&self) -> usize {
        usize::try_from(self.allocated.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Counts `size` more bytes. Returns `false` above [`ALLOCATED_MAX`].
    fn count(&self, size: isize) -> bool {
        let allocated = self.allocated.fetch_add(size, Ordering::Relaxed) + size;
        self.peak.fetch_max(allocated, Ordering::Relaxed);
        allocated <= ALLOCATED_MAX
    }
}

#[expect(
    unsafe_code,
    reason = "a global allocator is unsafe; it is used only by this test"
)]
// SAFETY: every call goes to `System` with the same arguments; a failed allocation returns null, as
// the trait allows. The counters do not affect the memory. `realloc` keeps its default, which calls
// `alloc` and `dealloc`: old and new bytes exist at the same time, and both are counted.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.count(layout.size().cast_signed()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.count(-layout.size().cast_signed());
        // SAFETY: the caller upholds the contract of `dealloc`, and `pointer` comes from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
