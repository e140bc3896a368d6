//! Queries: evaluation, exemplars, formatting and parsing.

pub(crate) mod evaluate;
pub(crate) mod exemplars;
pub(crate) mod format;
mod points;
mod result;
