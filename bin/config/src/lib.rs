//! What the operator sets: the flags of `varve serve`, the configuration file, the settings that
//! follow from both, and the web configuration file.
//!
//! Used by all crates under `bin/` that act on settings. The crate knows no running server. Defaults
//! of limits are only here.

#![forbid(unsafe_code)]

pub mod external_url;
pub mod file;
pub mod flags;
pub mod limits;
pub mod settings;
pub mod web;
