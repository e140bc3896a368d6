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

mod admission;
mod append;
mod batch;
mod budget;
mod compose;
mod compression;
mod error;
mod exemplars;
mod ha;
mod kept;
mod label_set;
mod limits;
mod metadata;
mod otlp;
mod pipeline;
mod precedence;
mod rejects;
mod relabel;
mod remote_write;
mod request;
mod route;
mod scratch;
mod stats;
mod text;
mod turns;
mod waiting;

pub use batch::DecodedBatch;
pub use budget::{AMOUNT_MAX, Amounts, BudgetError, Budgets, Figures, Scarce, TEAMS_MAX, TeamBudget, TeamStatus};
pub use compression::Compression;
pub use error::{Malformed, WriteError};
pub use exemplars::{ExemplarCounts, ExemplarRefusal};
pub use ha::{Elections, HaCluster, HaReplica, HaSettings};
pub use kept::StateFound;
pub use limits::Limits;
pub use otlp::{OtlpSettings, PromotedAttributes, TranslationStrategy};
pub use pipeline::{Origin, Receiver, Written};
pub use rejects::{Example, Reason, Reject, Rejects};
pub use relabel::{Fallen, FallenRules, RULES_MAX, RelabelConfig, RelabelError, RuleState, RuleStats, Rules};
pub use remote_write::{Version, decode_v1, decode_v2};
pub use route::{RouteHasher, RouteStats};
pub use stats::Stats;
pub use text::{BadLine, ExemplarPart, Import, Line, LineReader, MetadataLine, Pairs, SampleLine, TextFormat};
pub use turns::TurnStats;
