//! The tools for data directories of Prometheus.

pub(super) mod dump;
pub(super) mod inspect;
pub(crate) mod recover;
pub(super) mod repair;
pub(super) mod replay;
