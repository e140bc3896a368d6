//! The sources of a write: each protocol decodes its request into a batch.

pub(crate) mod batch_builder;
pub(crate) mod otlp;
pub mod remote_write;
pub(crate) mod rules;
mod self_metrics;
pub mod text;
