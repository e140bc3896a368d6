//! The process and its terminal: logs, printing, limits of the machine, the service manager, the
//! version; registration of metrics; quantities and texts as people read and type them.
//!
//! Used by all crates under `bin/`. The crate knows no setting, no protocol and no store.

#![forbid(unsafe_code)]

// First: its macros replace those of the standard library in the modules below.
#[macro_use]
pub mod printing;

pub mod excerpt;
pub mod log;
pub mod machine;
pub mod metrics;
pub mod quantity;
pub mod service_manager;
pub mod version;
pub mod yaml;
