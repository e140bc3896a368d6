//! Recording and alerting rules.
//!
//! ```text
//! text -> file (YAML, expressions) -> Group
//! ```
//!
//! The crate knows no HTTP and no clock. Files, API and semantics are those of Prometheus 3.16.
#![forbid(unsafe_code)]

pub mod file;
