//! Prefetching without instructions of its own: ordinary loads whose results nobody needs.
//!
//! A processor that executes out of order runs ahead of a load that misses its caches, as far as the next operations do
//! not depend on it. Code that follows a pointer for one element, computes, and then follows the next one stays ahead
//! by one element at most, so each miss is waited for alone. A loop that only loads has dozens of misses in flight, and
//! takes little longer than one of them. The code that then visits the elements finds them in the cache.

use std::hint::black_box;
use std::ops::BitXor;

/// Executes loads that are independent of each other, so that their cache lines arrive together. Each item of `loads`
/// is a word from a cache line that is needed next.
///
/// The exclusive or and [`black_box`] keep the compiler from removing the loads.
#[inline]
pub fn prefetch<T: BitXor<Output = T> + Default>(loads: impl Iterator<Item = T>) {
    black_box(loads.fold(T::default(), |a, b| a ^ b));
}
