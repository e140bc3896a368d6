//! Analysis of the series in a store: who uses them, and which labels create them.
//!
//! Used by the server for `/api/v1/status/`, and by `varve tsdb churn`. The crate knows no HTTP and no command line.
#![forbid(unsafe_code)]

pub mod churn;
pub mod usage;

/// Returns a part in percent of a whole, which may be 0.
fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}
