//! Series, label names, label values and metadata.

pub(crate) mod labels;
pub(crate) mod metadata;
mod request;
pub(crate) mod series;
pub(crate) mod visible_families;
