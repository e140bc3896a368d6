//! Evaluation: computes the series of a plan at all steps.
//!
//! ```text
//! selector, range function -> abs, * 8, ...  ->  one series after the other  ->  sum, avg, topk, ...  ->  groups
//!          in batches, on all threads                                        '-> Vector -> joins, sort, ... -> Vector
//! ```
//!
//! Every expression is evaluated once for all steps. Selectors and range functions produce their
//! series one at a time, in ascending order of labels ([`Evaluator::each_series`]), so an
//! aggregation over them holds only its groups. See `stream` and `workers`.
//!
//! The evaluator is one type. Each submodule adds the methods for its operators. All methods
//! recurse through [`Evaluator::vector`], [`Evaluator::each_series`] and [`Evaluator::scalar`].
//!
//! ```text
//! caller needs         all labels   the labels of a hint
//! all series at once   vector       vector_with_labels
//! one after the other  each_series  each_with_labels, for an aggregation each_input
//! ```
//!
//! Invariants
//! 1. Each stored series is decoded once per selector, for any number of steps.
//! 2. Computations across series run in label order, unless they only count, so results do not
//!    depend on how the data is stored.

mod evaluator;

mod aggregate;
mod binary;
mod calls;
pub(crate) mod columns;
pub(crate) mod profile;
mod range;
pub(crate) mod sample_stats;
mod scalar;
pub(crate) mod select;
mod share;
pub(crate) mod shared_results;
pub(crate) mod sort;
mod stream;
mod time_cursor;
pub(crate) mod workers;

pub(crate) use evaluator::{Evaluator, Settings};
