//! Finds unused series, records who queries which metrics, and explains which labels create new
//! series.
//!
//! ```text
//! rule files, a server's rules, dashboards, usage record -> needs  \
//!                                                                    findings -> relabel_rules
//! a store, scrapes, another server                   -> inventory  /
//! ```
//!
//! Used by the server for `/api/v1/status/` and by `varve advise`. The crate knows no HTTP, no
//! command line, no clock and no runtime: the caller reads files, responses and the time.
#![forbid(unsafe_code)]

mod advice;
mod alternation;
pub mod churn;
mod counted;
pub mod findings;
pub mod inventory;
pub mod keep;
pub mod needs;
pub mod relabel_rules;
pub mod usage;

pub use advice::Advice;
pub use counted::counted;
