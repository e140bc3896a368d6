//! The index of a shard's head: from label names and values to series.
//!
//! [`Symbols`] keeps each distinct text once and numbers it. [`Index`] has the [`Postings`] of every label value, and
//! answers which series matchers select and which names and values they have. Matching works on the values of a label,
//! not on series: a regular expression runs once per distinct value.

mod lookup;
mod postings;
mod symbols;
mod texts;

pub(crate) use lookup::Index;
pub(crate) use symbols::{SymbolId, Symbols};
pub use texts::Texts;
