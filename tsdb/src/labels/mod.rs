//! Labels of series, and the matchers that select series by them.

mod hint;
pub(crate) mod label_set;
pub(crate) mod matcher;
mod metadata;
mod string_set;

pub use hint::LabelHint;
pub use label_set::{
    LABELS_SIZE_MAX, LabelsBuilder, LabelsError, METRIC_NAME, NAME_LABELS, is_legacy_name,
    prometheus_hash,
};
pub(crate) use label_set::{Labels, PackedBuilder, PackedLabel, compare_packed};
pub(crate) use matcher::{MatchOp, Matcher};
pub use metadata::{Families, METADATA_FAMILIES_MAX, METADATA_SIZE_MAX, Metadata, MetricType};
pub use string_set::StringSet;
