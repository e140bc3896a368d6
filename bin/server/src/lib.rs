//! The parts of one running server, without its protocols: the open store, the configuration in
//! force, metrics, rules, active requests, records of queries and rejects, memory pressure,
//! notifications and traces.
//!
//! Used by `varve-http`, which serves it, and by the package `varve`, which starts and stops it. The
//! crate knows no route and no flag.

#![forbid(unsafe_code)]

pub mod auto_reload;
pub mod lifecycle;
pub mod live_config;
pub mod metrics;
pub mod notifications;
pub mod notifier;
pub mod pressure;
pub mod queries;
pub mod rejections;
pub mod reload;
pub mod requests;
pub mod rules;
pub mod self_scrape;
pub mod sender_stats;
pub mod shutdown;
pub mod store;
pub mod traces;
