//! The black-box tests: they start the built binary and speak HTTP with it, as its users do.
//!
//! `harness` starts and stops processes; each other module is about one promise of the store.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod harness;

mod advise;
mod cli;
mod crash;
mod damage;
mod ha;
mod http;
mod otlp;
mod prometheus;
mod promql;
mod protection;
mod recovery;
mod relabel;
mod tidy;
