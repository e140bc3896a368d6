//! A request from its start to its end, for HTTP, gRPC and rules.
//!
//! ```text
//! record: who, what, state -> life: start -> admit -> work -> end: breaker, top queries, query log
//!                               '-> active: list, kill, heaviest -> log: last words
//! ```
//!
//! Every part of a request has the record as an argument: its body, its admission, its work, its
//! response. A context for data is made of a record, so it has the restriction of the tenant.

pub mod active;
pub mod fair_semaphore;
pub mod life;
pub mod log;
pub mod record;
pub mod requester;
pub mod tenant;
