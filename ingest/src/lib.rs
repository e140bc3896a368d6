//! The write path: from the bytes of a write request to samples in the store.
//!
//! # Life of a write request
//! 1. A source (`sources`) takes the body as received, for example [`Receiver::write`]. Its size,
//!    and the size that its snappy header declares, are checked against [`Limits`] before anything
//!    is allocated. Then admission control ([`admission`]) admits or rejects it.
//! 2. The source decompresses it into a reused buffer and decodes it in place: samples and the
//!    spans of label sets go to flat columns (`batch`), strings are not copied. Each label set is
//!    hashed as it is encoded. All sources build the same batch, and end in `write`.
//! 3. `route` looks the hashes up. A known series yields a handle. A label set that is known to be
//!    dropped or rejected also costs only one look-up.
//! 4. `write` runs passes over the request. `push` fills a batch for the store with the samples of
//!    known series. `resolve` handles unknown label sets: `label_set` parses and checks them,
//!    `sender_labels` adds those of a tenant, `ha` deduplicates them, `relabel` drops or rewrites
//!    them, and the store looks them up. New series are created if their team's budget and
//!    admission control allow it without waiting. The rest of the request is deferred, queued, and
//!    stored in later passes.
//! 5. `append` hands samples and exemplars to the store, and resolves series again whose handles
//!    are out of date.
//! 6. [`Written`] counts what was stored, dropped and deduplicated, and has the [`Rejections`] per
//!    [`RejectionReason`](varve_model::RejectionReason), each with one example.
//!
//! Samples of rules ([`Receiver::append_rule_samples`]) and of the server itself
//! ([`Receiver::append_self_metrics`]) take the same way, without what concerns a sender.
//!
//! # Invariants
//! 1. A malformed request stores nothing: it is decoded completely before the first append.
//! 2. Every sample, exemplar, native histogram and metadata entry of a request is counted once in
//!    [`Written`].
//! 3. After [`WriteError::Store`], [`WriteError::Moved`] and [`WriteError::Throttled`] a part of
//!    the request may be stored. [`WriteError::PartialImport`] says which part. After any other
//!    error nothing is stored. A retry is always safe: the store stores nothing twice.
//! 4. Memory is bounded by [`Limits`], for any input.
//!
//! Threads: all request threads share one [`Receiver`], and each request runs on its caller's
//! thread. Requests wait for each other only in admission control and at short locks: those of the
//! route cache, the store's shards and the budgets.

#![forbid(unsafe_code)]

pub mod admission;
mod batch;
pub mod compression;
mod error;
pub mod ha;
mod label_set;
mod limits;
mod outcome;
mod persisted_state;
mod receiver;
pub mod relabel;
mod route;
mod sender_labels;
mod sources;
mod write;

pub use error::{Malformed, WriteError};
pub use limits::Limits;
pub use outcome::{
    Example, ExemplarCounts, ExemplarRejection, PointCounts, RejectionCount, Rejections,
    SampleCounts, SeriesHash, SeriesSample, Written,
};
pub use receiver::{Receiver, stats::IngestStats};
pub use route::RouteStats;
pub use sources::otlp::OtlpEncoding;
pub use sources::rules::{RuleBudget, RuleSample};
pub use sources::{remote_write, text};
