//! The sources of a write: each protocol decodes its request into a batch.

pub(crate) mod batch_builder;
pub(crate) mod otlp;
mod own;
pub(crate) mod recorded;
pub mod remote_write;
pub mod text;
