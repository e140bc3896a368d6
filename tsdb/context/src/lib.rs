//! What a request carries from the socket to the innermost loop: its deadline and cancellation, its
//! memory budget, its limits, and its turns among other requests.
//!
//! A [`QueryContext`] belongs to one request. Its [`MemoryBudget`] is a child of the budget of all
//! requests. The [`scheduler`] lets short requests overtake long ones. This crate knows nothing of
//! a store: neither labels nor samples, nor which series a request may read.

#![forbid(unsafe_code)]

mod cancellation;
mod error;
mod interrupt;
mod limit;
mod memory;
mod query_context;
pub mod scheduler;

pub use cancellation::Cancellation;
pub use error::{Error, Result};
pub use interrupt::Interrupt;
pub use limit::{Limit, LimitNames};
pub use memory::{Charge, MemoryBudget, MemoryReclaimer};
pub use query_context::{CHECK_INTERVAL, QueryContext, ReadOptions};
