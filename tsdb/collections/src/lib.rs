//! Collections for data under a lock: an operation moves or allocates a bounded piece, whatever the
//! number of elements. The exception is [`IdAllocator::free`], which visits all free ids at the
//! end.
//!
//! A `Vec` or a hash table that doubles copies all its elements, and everything that waits for the
//! lock waits for that. Used by the heads and by the recovery of Prometheus' files. This crate
//! knows nothing of what it stores. [`prefetch`] is for elements that are visited in another order
//! than that of their memory. [`PositionIndex`] is for frequent lookups in a sorted list.

#![forbid(unsafe_code)]

mod arena;
mod column;
mod id_allocator;
mod position_index;
mod prefetch;
mod slab_chains;
mod wide_table;

pub use arena::{Arena, Piece};
pub use column::Column;
pub use id_allocator::IdAllocator;
pub use position_index::PositionIndex;
pub use prefetch::prefetch;
pub use slab_chains::SlabChains;
pub use wide_table::WideTable;
