//! What the server and the tools share: the configuration file, the HTTP client, logs, printing,
//! quantities as people type them, and the limits of the machine.
//!
//! Used by all crates under `bin/`. The crate knows no route, no command and no store.

#![forbid(unsafe_code)]

// First: its macros replace those of the standard library in the modules below.
#[macro_use]
pub mod printing;

pub mod client;
pub mod config;
pub mod excerpt;
pub mod grpc;
pub mod log;
pub mod machine;
pub mod protobuf;
pub mod quantity;
pub mod service_manager;
pub mod tls;
pub mod version;
