//! The context of a request: deadline, cancellation, memory.

mod memory;
pub(crate) mod query_context;
pub mod scheduler;

pub use memory::{Charge, MemoryBudget, MemoryReclaimer};
pub use query_context::CHECK_INTERVAL;
pub(crate) use query_context::QueryContext;
