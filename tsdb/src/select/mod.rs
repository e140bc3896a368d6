//! Reading: the series that matchers select, in label order unless no labels are requested, and
//! their samples.
//!
//! A selection first finds its series in the heads, or takes those that an earlier selection with the
//! same matchers found (`kept_selections`). It copies their samples, a few hundred series per
//! acquisition of a lock, so that later writes and flushes do not affect it. Then it merges the
//! label-ordered streams of heads and blocks while the caller reads. Samples of blocks are decoded on
//! demand. Merging needs complete label sets. If there is only one stream, only requested labels are
//! built.
//!
//! A request that needs only the first labels does not visit all series of the heads
//! (`first_series`).
//!
//! Invariants
//! 1. A selection sees every request that had finished when the selection began, completely, and no
//!    part of any other request.
//! 2. A series is returned once, even if several heads and blocks have samples of it.
//! 3. Of several samples at one timestamp, the one accepted first wins.

mod series_set;

mod series;
mod stream;

mod blocks;
mod first_series;
mod heads;
mod kept_selections;
mod label_projection;
mod label_sets;
mod merged_heads;
mod read_ahead;
mod resolved;
mod selection;
mod slots;
mod stream_order;

pub use kept_selections::KeptSelectionStats;
pub(crate) use kept_selections::KeptSelections;
pub use label_sets::{LabelSets, SelectedLabels};
pub(crate) use selection::{FIRST_SERIES_MAX, Need};
pub use series::Series;
pub(crate) use series_set::SelectionSource;
pub use series_set::{SelectHints, SeriesSet};

pub use crate::label_hint::LabelHint;
