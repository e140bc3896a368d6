//! Metrics by their name: type, labels and help text come from the table of docs/metrics.md.
//!
//! Each part of a server registers its own ([`Registrar`]), or returns values that it collects on
//! each scrape ([`families`], [`counts`], [`family`]).

mod registrar;
mod summary;
mod table;

pub use registrar::Registrar;
pub use summary::SummaryVec;
pub use table::{counts, families, family};

/// The label `job` of Varve's own metrics in its own store.
pub const OWN_JOB: &str = "varve";
