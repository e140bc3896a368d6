//! Series, label names, label values and metadata.

pub(crate) mod families;
pub(crate) mod labels;
pub(crate) mod series;
