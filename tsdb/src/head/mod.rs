//! The head: the series of a shard and their newest samples, in memory.
//!
//! Structures of arrays indexed by a dense slot; label sets as symbol ids in one arena; an open chunk per series. The
//! shard's lock guards all of it; nothing here knows of the log.
//!
//! Invariants
//! 1. A slot, once given, names the same series as long as its generation lasts.
//! 2. Samples of a series ascend strictly in time.
//! 3. `size` never falls behind what was allocated for series and samples by more than one growth of a buffer.

mod append;
mod series;

pub(crate) use append::{Appended, Bounds};
pub(crate) use series::{Head, NewSeries, SeriesRef};
