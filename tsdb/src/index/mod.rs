//! The index of a shard's head: from label names and values to series.
//!
//! [`Symbols`] keeps each distinct text once and numbers it. [`Index`] has the postings of every label value, and
//! answers which series matchers select and which names and values they have. Matching works on the values of a label,
//! not on series: a regular expression runs once per distinct value.

mod arena;
mod build;
mod column;
mod lookup;
mod numbers;
mod postings;
mod remove;
mod select;
mod slot_set;
mod symbols;
mod texts;
mod value_order;
mod wide_table;

pub use arena::{Arena, Piece};
pub(crate) use build::LabelBuilder;
pub use column::Column;
pub(crate) use lookup::{Index, SlotLabels};
pub(crate) use numbers::Numbers;
pub(crate) use postings::SLOTS_MAX;
pub(crate) use select::{TERMS_PER_CHECK, Terms, select};
pub(crate) use symbols::{SymbolId, Symbols};
pub use texts::Texts;
pub(crate) use wide_table::WideTable;
