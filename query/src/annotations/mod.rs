//! Annotations: warnings and infos about the result of a query.
//!
//! The messages are those of Prometheus (`util/annotations`), including the position of the
//! expression in the query.
//!
//! Invariants
//! 1. No two annotations of a response have the same text. For equal annotations, the last position
//!    is reported. Exception: annotations with details are merged, and reported at the first
//!    position.
//! 2. A response has annotations in the order of their positions, then of their texts: neither
//!    depends on which steps are evaluated together.
//! 3. An annotation is kept with the steps that it is about, unless they are unknown, so that the
//!    result cache can join steps ([`Occurrence`]).

mod annotation;
mod list;
mod occurrence;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use annotation::{
    Annotation, ForcedMonotonicity, HistogramOperation, RaisedExtent, SeriesAnnotation,
    SeriesAnnotations,
};
pub use list::{ANNOTATIONS_MAX, Annotations};
pub(crate) use list::{AnnotationEntry, AnnotationList};
pub(crate) use occurrence::Occurrence;
