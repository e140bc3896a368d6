//! What the operator sets: the configuration file, as typed and checked values.
//!
//! Used by all crates under `bin/` that act on settings. The crate knows no running server.

#![forbid(unsafe_code)]

pub mod file;
