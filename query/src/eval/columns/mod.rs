//! Columns: the values of expressions, one per series and step.
//!
//! Used by all of `eval`. Only `combine` (operators between columns) depends on `plan`.

mod column;
pub(crate) mod combine;
mod grouping_keys;
mod limits;
mod scalars;
mod series;
mod shared_sets;
mod vector;

pub(crate) use column::{Column, HISTOGRAM_ENTRY_SIZE};
pub(crate) use grouping_keys::{GroupingKeys, HINT_NAMES_MAX};
pub(crate) use limits::{Limits, SampleLimit};
pub(crate) use scalars::Scalars;
pub(crate) use series::{Series, printed, series_size, without_name};
pub(crate) use shared_sets::SharedSets;
pub(crate) use vector::Vector;

pub(crate) use crate::step_set::StepSet;
