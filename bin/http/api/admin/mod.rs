//! Reload, termination, and administration of the store.

pub(crate) mod lifecycle;
pub(crate) mod tsdb;
