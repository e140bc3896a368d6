//! The parameters of a selection.

use std::sync::Arc;

use varve_context::QueryContext;
use varve_model::{Matcher, TimeRange};

use crate::isolation::ReadView;
use crate::store::Store;

/// Number of series copied or looked up per acquisition of a lock.
pub(super) const BATCH_SERIES: usize = 256;

/// The purpose of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Labels and samples.
    Samples,
    /// Labels, and the newest sample.
    Newest,
    /// Labels of series that have samples in the range.
    Labels,
}

/// The position of a series in a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The index of the head; 0 in a block.
    pub(super) head: u32,
    /// The slot, or the ordinal in a block.
    pub(super) at: u32,
}

/// Parameters of a selection, the same for each head.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    pub(super) ctx: &'a QueryContext,
    pub(super) store: &'a Arc<Store>,
    pub(super) matchers: &'a [Matcher],
    pub(super) range: TimeRange,
    pub(super) need: Need,
    pub(super) view: &'a ReadView,
    /// The series need not be in label order.
    pub(super) any_order: bool,
}
