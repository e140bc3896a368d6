//! The head: the series of a shard and their newest samples, in memory.
//!
//! Structures of arrays indexed by a dense slot. `Table` contains the series, `Samples` the
//! samples since the last freeze, and [`Frozen`] older samples that are being flushed. The lock of
//! the shard guards the head. The head does not depend on the WAL. Readers copy encoded bytes under
//! the lock ([`HeadCopies`]) and decode them without it.
//!
//! Invariants
//! 1. A slot names the same series until its generation changes. [`Head::is_current`] detects an
//!    outdated [`SlotRef`].
//! 2. In-order samples of a series ascend strictly in time, also across freezes. Out-of-order
//!    samples and histograms are stored beside them. A series never has both a float and a
//!    histogram at one timestamp.
//! 3. Within `Samples` no timestamp of a series is both in order and out of order. If a frozen
//!    and a newer sample share a timestamp, the frozen one wins.
//! 4. A series with samples in memory is not evicted.
//! 5. `size` lags behind the memory allocated for series and samples by at most one growth of a
//!    buffer.

mod head;

mod append;
mod copy;
mod created_series;
mod evict;
mod evicted;
mod freeze;
mod frozen;
mod groups;
mod label_names;
mod label_order;
mod load;
mod lowest_ranks;
mod merge;
mod projection;
mod read;
mod samples;
mod table;

pub use append::Bounds;
pub(crate) use append::{Appended, Replayed};
pub(crate) use copy::HeadCopies;
pub(crate) use evict::{ShrinkTarget, StaleSeries};
pub(crate) use frozen::Frozen;
pub use groups::BudgetGroup;
pub(crate) use head::{Head, HeadTotals};
pub(crate) use label_order::{Ranks, SeriesOrder, SlotSort};
pub(crate) use lowest_ranks::LowestRanks;
pub(crate) use merge::HeadMerge;
pub(crate) use projection::Projection;
pub(crate) use samples::AnySample;
pub(crate) use table::{NewSeries, SlotRef};

#[cfg(test)]
mod tests;
