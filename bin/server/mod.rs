//! The parts of one running server: its state, the open store, the configuration in force, metrics, active requests,
//! records of queries and rejects, memory pressure.
//!
//! Used by `http`, which serves it, and by `serve`, which starts and stops it.

pub(crate) mod active_requests;
pub(crate) mod app;
pub(crate) mod auto_reload;
pub(crate) mod external_url;
pub(crate) mod live_config;
pub(crate) mod metrics;
pub(crate) mod notifications;
pub(crate) mod pressure;
pub(crate) mod queries;
pub(crate) mod rejects;
pub(crate) mod request_context;
pub(crate) mod rules;
pub(crate) mod self_scrape;
pub(crate) mod senders;
pub(crate) mod settings;
pub(crate) mod shutdown;
pub(crate) mod store;
