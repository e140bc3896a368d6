//! The bytes of a write request, up to samples accepted by the store.
//!
//! # Life of a write request
//! 1. [`Receiver::write`] takes the body as it came over the wire. Its size and the size that its snappy header
//!    declares are checked against [`Limits`] before anything is allocated, and both are reserved from the bytes in
//!    flight (`admission`); where there is no room it waits a little, and then the sender is asked to come again.
//! 2. `remote_write` decompresses into a pooled buffer and decodes in place: samples and places of label sets go to flat
//!    columns of a [`DecodedBatch`], strings stay where they are. Each label set is hashed as it lies in the message.
//! 3. `route` looks the hashes up: a series seen before is a handle, a label set refused before is the reason why.
//!    Only what is unknown has its labels parsed and checked (`label_set`). Of HA pairs (`ha`) only the series of the
//!    replica that leads go on. Then the rules of `relabel` keep, rewrite or drop it; a dropped label set is a route too.
//!    What is left is looked up in the store. A series that it does not have is made if its team's budget (`budget`) and a
//!    turn (`turns`) allow it now; else the request waits with it (`waiting`) when the rest is stored. Who makes series
//!    gives way to requests of known ones (`precedence`).
//! 4. `append` hands samples and exemplars to the store and resolves series again that have moved in memory meanwhile.
//! 5. What was not stored is counted per [`Reason`] with one example ([`Rejects`]); the rest is stored.
//!
//! # Invariants
//! 1. A request with a malformed byte stores nothing: it is decoded whole before the first append.
//! 2. [`Written`] says of every sample, exemplar, native histogram and metadata entry of the request that it is stored,
//!    or is in [`Rejects`], or for exemplars in [`ExemplarCounts`].
//! 3. After [`WriteError::Store`], [`WriteError::Moved`] and [`WriteError::Throttled`] a part may be stored, and
//!    [`WriteError::Cut`] says which; after the others nothing is. To send the request again is safe in every case: the
//!    store keeps nothing twice.
//! 4. Memory is bounded by [`Limits`] whatever the bytes say.
//!
//! Threads: a [`Receiver`] is shared; each request runs on its caller's thread, without waiting for another one but for
//! the short locks of the route cache, of the store's shards and of budgets, and where something is scarce.

#![forbid(unsafe_code)]

pub mod admission;
mod append;
mod batch;
mod compression;
mod error;
pub mod ha;
mod label_set;
mod limits;
pub mod otlp;
mod outcome;
mod persisted_state;
mod receiver;
pub mod relabel;
pub mod remote_write;
mod request;
mod route;
pub mod text;

pub use admission::Origin;
pub use compression::Compression;
pub use error::{Malformed, WriteError};
pub use limits::Limits;
pub use outcome::{Example, ExemplarCounts, ExemplarRefusal, Reason, Reject, Rejects, Written};
pub use persisted_state::StateFound;
pub use receiver::{Receiver, stats::Stats};
pub use route::RouteStats;
