//! The index of a shard's head: from label names and values to series.
//!
//! [`Symbols`] stores each distinct string once and gives it an id. [`Index`] holds the postings of
//! every label value. It finds the series that matchers select, and their label names and values.
//! Matching works on the values of a label, not on series: a regular expression runs once per
//! distinct value.

mod bulk;
mod head_terms;
mod label_counts;
mod label_lists;
mod lookup;
mod postings;
mod remove;
mod select;
mod slot_bits;
mod slot_ranges;
mod slot_set;
mod symbols;
mod value_order;
mod values;

pub(crate) use bulk::LabelBuilder;
pub(crate) use label_counts::LabelCounts;
pub(crate) use label_lists::passes;
pub(crate) use lookup::{Index, SlotLabels};
pub(crate) use postings::SLOTS_MAX;
pub(crate) use select::{Candidates, TERMS_PER_CHECK, Terms, ValueTest, select, select_in};
pub(crate) use slot_ranges::SlotRanges;
pub(crate) use symbols::{Pair, SymbolId, Symbols};
