//! The tools for Varve's own logs.

pub(super) mod dump;
pub(super) mod inspect;
pub(super) mod repair;
pub(super) mod replay;
