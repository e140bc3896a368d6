//! Prefetching with ordinary loads, because safe Rust has no prefetch instruction.
//!
//! A processor that executes out of order continues past a load that misses its caches, until an
//! operation needs the result. A loop that follows a pointer, computes, and then follows the next
//! pointer waits for each miss separately. The misses of a loop of independent loads overlap. The
//! code that then visits the elements finds them in the cache.

use std::hint::black_box;
use std::ops::BitXor;

/// Executes loads that are independent of each other, so that their cache lines arrive together.
/// Each item of `loads` is a word from a cache line that is needed next.
///
/// The exclusive or and [`black_box`] keep the compiler from removing the loads.
#[inline]
pub fn prefetch<T: BitXor<Output = T> + Default>(loads: impl Iterator<Item = T>) {
    black_box(loads.fold(T::default(), |a, b| a ^ b));
}
