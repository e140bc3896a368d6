//! The data model: what all crates of Varve speak of.
//!
//! [`Labels`] identify a series, [`Matcher`]s select series by them. A series has [`Sample`]s,
//! whose values are floats or [native histograms](histogram), in [`SampleColumns`]; a
//! [`TimeRange`] selects samples. [`Exemplar`]s and [`metadata`] describe series further. The last
//! sample of a series may be a [staleness marker](staleness). A [`Rejection`] tells what of a write
//! was not stored.
//!
//! Values only: this crate knows neither store nor disk. Matching a label value may take long, so
//! it happens within the limits of a request ([`QueryContext`](varve_context::QueryContext)).

#![forbid(unsafe_code)]

mod exemplar;
pub mod histogram;
mod label_set;
mod matcher;
pub mod metadata;
mod packed_builder;
mod rejection;
mod sample;
pub mod staleness;
pub mod start_timestamps;
mod string_set;
mod tenant;
mod time_range;

pub use exemplar::{EXEMPLAR_LABELS_LEN_MAX, Exemplar};
pub use label_set::Labels;
pub use matcher::{MatchOp, Matcher};
pub use rejection::{Rejection, RejectionReason};
pub use sample::{Sample, SampleColumns, StoredSeries};
pub use string_set::StringSet;
pub use tenant::{TenantLabels, may_add};
pub use time_range::TimeRange;

/// Building and comparing label sets, and labels with a meaning of their own.
pub mod labels {
    pub use crate::label_set::{
        LABELS_SIZE_MAX, LabelsBuilder, LabelsError, METRIC_NAME, NAME_LABELS, compare_packed,
        is_legacy_name, prometheus_hash,
    };
    pub use crate::packed_builder::{PackedBuilder, PackedLabel};
}
