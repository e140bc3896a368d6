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
pub mod findings;
pub mod inventory;
pub mod needs;
pub mod relabel_rules;
pub mod usage;

pub use advice::Advice;

/// Returns a part in percent of a whole, which may be 0.
fn percent(part: u64, of: u64) -> f64 {
    if of == 0 {
        0.0
    } else {
        100.0 * part as f64 / of as f64
    }
}
