//! The tools for Varve's own logs.

pub(super) mod dump;
pub(crate) mod inspect;
pub(super) mod repair;
pub(super) mod replay;
