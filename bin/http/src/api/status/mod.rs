//! State of the server.

pub mod advice;
pub(crate) mod cardinality;
pub mod churn;
pub(crate) mod features;
pub(crate) mod ha;
pub(crate) mod health;
pub(crate) mod last_words;
pub(crate) mod notifications;
pub(crate) mod queries;
pub(crate) mod rejects;
pub(crate) mod relabel;
pub(crate) mod relabel_test;
pub(crate) mod self_metrics;
pub(crate) mod senders;
pub(crate) mod status_runtime;
pub(crate) mod status_tsdb;
pub(crate) mod teams;
pub(crate) mod top_queries;
pub(crate) mod usage;
