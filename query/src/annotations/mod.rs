//! Annotations: warnings and infos about the result of a query.
//!
//! The messages are those of Prometheus (`util/annotations`), including the position of the
//! expression in the query.
//!
//! Invariants
//! 1. No two annotations of a query have the same text. For equal annotations, the last position is
//!    reported. Exception: overlapping start timestamps are counted, and reported at the first
//!    position.
//! 2. Annotations are in the order in which they were first added.

mod annotation;
mod list;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use annotation::{
    Annotation, ForcedMonotonicity, HistogramOperation, SeriesAnnotation, SeriesAnnotations,
};
pub(crate) use list::AnnotationList;
pub use list::{ANNOTATIONS_MAX, Annotations};
