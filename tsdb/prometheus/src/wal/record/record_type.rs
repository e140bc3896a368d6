//! Types of records.

/// Type of a record. The discriminants are the codes of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordType {
    /// Series definitions.
    Series = 1,
    /// Float samples.
    Samples = 2,
    /// Tombstones.
    Tombstones = 3,
    /// Exemplars.
    Exemplars = 4,
    /// In the WBL: which out-of-order samples are in head chunks.
    MmapMarkers = 5,
    /// Metadata: types, units and help texts.
    Metadata = 6,
    /// Histograms with integer counts.
    Histograms = 7,
    /// Histograms with float counts.
    FloatHistograms = 8,
    /// Like type 7, with custom buckets.
    CustomHistograms = 9,
    /// Like type 8, with custom buckets.
    CustomFloatHistograms = 10,
    /// Float samples with start timestamps.
    SamplesV2 = 11,
    /// Histograms with integer counts and start timestamps.
    HistogramsV2 = 12,
    /// Histograms with float counts and start timestamps.
    FloatHistogramsV2 = 13,
    /// First in a checkpoint: the timestamp before which the WAL was truncated.
    MinValidTime = 14,
}

impl RecordType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 14] = [
        Self::Series,
        Self::Samples,
        Self::Tombstones,
        Self::Exemplars,
        Self::MmapMarkers,
        Self::Metadata,
        Self::Histograms,
        Self::FloatHistograms,
        Self::CustomHistograms,
        Self::CustomFloatHistograms,
        Self::SamplesV2,
        Self::HistogramsV2,
        Self::FloatHistogramsV2,
        Self::MinValidTime,
    ];
    /// Prometheus' names of the types.
    const NAMES: [&str; Self::ALL.len()] = [
        "series",
        "samples",
        "tombstones",
        "exemplars",
        "mmapmarkers",
        "metadata",
        "histogram_samples",
        "float_histogram_samples",
        "custom_buckets_histogram_samples",
        "custom_buckets_float_histogram_samples",
        "samples_v2",
        "histogram_samples_v2",
        "float_histogram_samples_v2",
        "min_valid_time",
    ];

    /// Returns the type of a record, or `None` if it is empty or unknown.
    #[must_use]
    pub fn of(record: &[u8]) -> Option<Self> {
        let code = *record.first()?;
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Describes a record without a known type.
    pub(crate) fn unknown_reason(record: &[u8]) -> String {
        match record.first() {
            Some(code) => format!("unknown record type {code}"),
            None => "empty record".to_owned(),
        }
    }

    /// Returns Prometheus' name for the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1]
    }
}
